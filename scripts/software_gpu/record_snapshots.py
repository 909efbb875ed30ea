"""Records snapshots of torch's own CUDA allocator on the stand-in for a GPU, for the tests.

    python scripts/software_gpu/record_snapshots.py --out tests/data/snapshots

Each case runs in a process of its own: requests drawn at random, with room and without, and
trainings of the models of `scripts/gpu_probes/six_models.py`, also until memory runs out; all with
and without expandable segments. What is written is what `torch.cuda.memory._snapshot` says, with
other folders in the paths of its frames. `index.json` says what each case is.
"""

from __future__ import annotations

import argparse
import gzip
import json
import pickle
import random
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from library import HEADERS, build, environment

ROOT = Path(__file__).resolve().parents[2]
GIB = 1 << 30
UNITS = (8, 4096, 40_000, 400_000)
"""Requests are drawn up to these multiples of 512 bytes."""
NUM_REQUESTS = 700
NUM_STEPS = 6


class Case(NamedTuple):
    """What is recorded.

    Attributes:
        model: that trains; empty for requests at random.
        seed: of those requests.
        batch_size: of the first step; it doubles where memory shall run out.
        until_refused: until memory runs out.
    """

    capacity_bytes: int
    model: str = ""
    seed: int = 0
    batch_size: int = 64
    until_refused: bool = False


CASES = {
    "requests": Case(80 * GIB, seed=1),
    "requests-short": Case(GIB, seed=2),
    "requests-shorter": Case(GIB // 2, seed=3),
    "gpt": Case(80 * GIB, "gpt"),
    "gpt-checkpointed": Case(80 * GIB, "gpt checkpointed"),
    "lora": Case(80 * GIB, "lora", batch_size=256),
    "gpt-refused": Case(2 * GIB, "gpt", batch_size=16, until_refused=True),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "tests/data/snapshots")
    parser.add_argument("--headers", type=Path, default=HEADERS, help="of the CUDA toolkit")
    parser.add_argument("--case", help="the child: records this case to the file --out")
    given = parser.parse_args()
    if given.case:
        _record(CASES[given.case], given.out)
        return 0
    given.out.mkdir(parents=True, exist_ok=True)
    index: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="software-gpu-") as name:
        library = build(Path(name), given.headers)
        for title, case in CASES.items():
            for expandable in (False, True):
                file = f"{title}{'-expandable' if expandable else ''}.pickle.gz"
                words = [__file__, "--case", title, "--out", str(given.out / file)]
                own = {
                    **environment(library),
                    "SOFTWARE_GPU_BYTES": str(case.capacity_bytes),
                    "PYTORCH_CUDA_ALLOC_CONF": f"expandable_segments:{expandable}",
                }
                subprocess.run([sys.executable, *words], check=True, env=own)
                index[file] = {**case._asdict(), "expandable": expandable}
                print(file, flush=True)
    (given.out / "index.json").write_text(json.dumps(_about(index), indent=1) + "\n")
    return 0


def _about(index: dict[str, Any]) -> dict[str, Any]:
    return {
        "what": "torch.cuda.memory._snapshot() of torch's own CUDA allocator, on a stand-in for a "
        "GPU: no driver, no kernels (scripts/software_gpu)",
        "torch": version("torch"),
        "files": index,
    }


def _record(case: Case, out: Path) -> None:
    import torch

    torch.cuda.init()
    torch.cuda.memory._record_memory_history(
        context="all" if case.model else None, stacks="python", max_entries=1_000_000
    )
    if case.model:
        _train(case)
    else:
        _serve(_requests(case.seed))
    snapshot = torch.cuda.memory._snapshot()
    out.write_bytes(gzip.compress(pickle.dumps(_moved(snapshot, {})), 9, mtime=0))


def _requests(seed: int) -> list[int]:
    """Bytes that are wanted, or -n for the n-th request's return; see `CachingAllocator.serve`."""
    draw = random.Random(seed)
    requests: list[int] = []
    alive: list[int] = []
    number = 0
    while len(requests) < NUM_REQUESTS:
        if alive and draw.random() < 0.45:
            gone = alive.pop(draw.randrange(len(alive)))
            requests.append(-gone)
        else:
            number += 1
            alive.append(number)
            requests.append(draw.randint(1, 512 * draw.choice(UNITS)))
    return requests


def _serve(requests: list[int]) -> None:
    import torch

    held: dict[int, int] = {}
    number = 0
    for request in requests:
        if request < 0:
            if -request in held:
                torch.cuda.caching_allocator_delete(held.pop(-request))
            continue
        number += 1
        try:
            held[number] = torch.cuda.caching_allocator_alloc(request)
        except torch.OutOfMemoryError:
            continue


def _train(case: Case) -> None:
    import torch

    sys.path.insert(0, str(ROOT / "scripts/gpu_probes"))
    from six_models import steps_of

    size = case.batch_size
    while True:
        model, optimizer, batch, step = steps_of(case.model, "cuda", size)
        try:
            for _ in range(NUM_STEPS):
                step()
        except torch.OutOfMemoryError:
            return
        if not case.until_refused:
            return
        del model, optimizer, batch, step
        size *= 2


def _moved(value: Any, seen: dict[int, Any]) -> Any:
    """The same with paths that are nobody's; what it holds twice stays one object."""
    if id(value) in seen:
        return seen[id(value)]
    moved = value
    if isinstance(value, str):
        moved = value.replace(sys.prefix, "/env").replace(str(ROOT), "/project")
    elif isinstance(value, dict):
        moved = {key: _moved(item, seen) for key, item in value.items()}
    elif isinstance(value, (list, tuple)):
        moved = type(value)(_moved(item, seen) for item in value)
    seen[id(value)] = moved
    return moved


if __name__ == "__main__":
    sys.exit(main())
