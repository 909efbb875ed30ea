"""Records what training steps take of a GPU's memory, on the stand-in for one, for the tests.

    python scripts/software_gpu/record_steps.py --out tests/data/cuda_memory.json

Of each training of `tests/fake_step/cuda_cases.py` it writes the most that torch's own allocator
was asked for at once during a third step, and reserved. What cuBLAS works in is counted apart. Of
some it also writes the largest batch of which several steps run on a GPU of 4 GiB.
"""

from __future__ import annotations

import argparse
import gc
import json
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

from library import HEADERS, build, environment

REQUESTED = "requested_bytes.all.{}"
"""Of the tensors alone. Memory that is allocated includes what blocks of 1 MiB leave over."""
NUM_STEPS = 5
ROOT = Path(__file__).resolve().parents[2]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "tests/data/cuda_memory.json")
    parser.add_argument("--headers", type=Path, default=HEADERS, help="of the CUDA toolkit")
    parser.add_argument("--only", default="", help="models that begin so; other rows stay")
    parser.add_argument("--child", action="store_true", help="measures; torch sees a GPU")
    given = parser.parse_args()
    if given.child:
        given.out.write_text(json.dumps(_recorded(given.only, given.out), indent=1) + "\n")
        return 0
    with tempfile.TemporaryDirectory(prefix="software-gpu-") as name:
        library = build(Path(name), given.headers)
        command = [
            sys.executable,
            __file__,
            "--child",
            "--only",
            given.only,
            "--out",
            str(given.out),
        ]
        return subprocess.run(command, check=False, env=environment(library)).returncode


def _recorded(only: str, out: Path) -> dict[str, Any]:
    import torch

    sys.path.insert(0, str(ROOT))
    from tests.fake_step.cuda_cases import CAPACITY, CASES, LIMITED, SIZE, batch_of, training

    torch.cuda.init()
    rows = []
    if only:
        rows = json.loads(out.read_text())["rows"]
        rows = [row for row in rows if not row["case"][0].startswith(tuple(only.split(",")))]
    for case in sorted(case for case in CASES if case[0].startswith(tuple(only.split(",")))):
        _empty()
        before = torch.cuda.memory_stats()[REQUESTED.format("current")]
        optimizer, step = training(*case, "cuda")
        batch = batch_of(case[0], SIZE, "cuda")
        for number in range(3):
            if number == 2:
                torch.cuda.reset_peak_memory_stats()
            step(batch)
        peak = torch.cuda.memory_stats()[REQUESTED.format("peak")] - before
        reserved = torch.cuda.max_memory_reserved()
        with_cublas = torch.cuda.memory_allocated()
        torch._C._cuda_clearCublasWorkspaces()
        rows.append(
            {
                "case": case,
                "batch_size": SIZE,
                "requested_bytes": peak,
                "reserved_bytes": reserved,
                "cublas_bytes": with_cublas - torch.cuda.memory_allocated(),
            }
        )
        del optimizer, batch, step
        if case in LIMITED:
            rows[-1]["largest_batch"] = _largest(case, CAPACITY, SIZE)
        print(*case, flush=True)
    return {
        "what": "Memory of torch's own CUDA allocator, on a stand-in for an A100: no driver, "
        "no kernels (scripts/software_gpu)",
        "torch": version("torch"),
        "rows": sorted(rows, key=lambda row: list(row["case"])),
    }


def _largest(case: Any, capacity: int, fitting: int) -> int:
    """By halving; pieces make it uneven, so a larger size may run all the same."""
    import torch

    whole = torch.cuda.mem_get_info()[1]
    torch.cuda.set_per_process_memory_fraction(capacity / whole)
    too_large = fitting
    while _runs(case, too_large):
        fitting, too_large = too_large, 2 * too_large
    while too_large - fitting > 1:
        middle = (fitting + too_large) // 2
        if _runs(case, middle):
            fitting = middle
        else:
            too_large = middle
    torch.cuda.set_per_process_memory_fraction(1.0)
    return fitting


def _runs(case: Any, size: int) -> bool:
    import torch

    from tests.fake_step.cuda_cases import batch_of, training

    _empty()
    try:
        _, step = training(*case, "cuda")
        batch = batch_of(case[0], size, "cuda")
        for _ in range(NUM_STEPS):
            step(batch)
    except torch.OutOfMemoryError:
        return False
    return True


def _empty() -> None:
    import torch

    gc.collect()
    torch._C._cuda_clearCublasWorkspaces()
    torch.cuda.empty_cache()


if __name__ == "__main__":
    sys.exit(main())
