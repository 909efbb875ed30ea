"""Records what training steps take of a GPU's memory, on the stand-in for one, for the tests.

    python scripts/stand_in_gpu/record_steps.py --out tests/data/cuda_memory.json

Of each training of `tests/fake_step/cuda_cases.py` it writes the most that torch's own allocator
was asked for at once during a third step, and reserved. What cuBLAS works in is counted apart.
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
ROOT = Path(__file__).resolve().parents[2]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "tests/data/cuda_memory.json")
    parser.add_argument("--headers", type=Path, default=HEADERS, help="of the CUDA toolkit")
    parser.add_argument("--child", action="store_true", help="measures; torch sees a GPU")
    given = parser.parse_args()
    if given.child:
        given.out.write_text(json.dumps(_recorded(), indent=1) + "\n")
        return 0
    with tempfile.TemporaryDirectory(prefix="stand-in-") as name:
        library = build(Path(name), given.headers)
        command = [sys.executable, __file__, "--child", "--out", str(given.out)]
        return subprocess.run(command, check=False, env=environment(library)).returncode


def _recorded() -> dict[str, Any]:
    import torch

    sys.path.insert(0, str(ROOT))
    from tests.fake_step.cuda_cases import CASES, SIZE, training

    torch.cuda.init()
    rows = []
    for case in sorted(CASES):
        _empty()
        before = torch.cuda.memory_stats()[REQUESTED.format("current")]
        optimizer, batch, step = training(*case, "cuda")
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
        print(*case, flush=True)
        del optimizer, batch, step
    return {
        "what": "Memory of torch's own CUDA allocator, on a stand-in for an A100: no driver, "
        "no kernels (scripts/stand_in_gpu)",
        "torch": version("torch"),
        "rows": rows,
    }


def _empty() -> None:
    import torch

    gc.collect()
    torch._C._cuda_clearCublasWorkspaces()
    torch.cuda.empty_cache()


if __name__ == "__main__":
    sys.exit(main())
