"""Builds the stand-in for a GPU (`runtime.c`), and runs a command with it.

    python scripts/stand_in_gpu/library.py python train.py

Torch's CUDA build then believes in one GPU of 80 GiB, or of STAND_IN_GPU_BYTES. Its own allocator,
operators and autograd ask for memory as on a GPU, and run out of it; kernels compute nothing, so
tensors hold zeros, and no time means anything. It takes a torch of CUDA 13 with NVIDIA's packages
beside it, a C compiler, and the headers of the CUDA toolkit (`--headers`, /usr/local/cuda/include).
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCE = Path(__file__).with_name("runtime.c")
HEADERS = Path("/usr/local/cuda/include")
ASKING = ("c10_cuda", "torch_cuda", "torch_cuda_linalg", "torch_python", "caffe2_nvrtc")
"""Libraries of torch that call CUDA's."""
REAL = frozenset({"cudaGetErrorString", "cudaGetErrorName"})
"""Functions that need no GPU."""
NAMES = ("libcuda.so.1", "libnvidia-ml.so.1")
"""Under which torch looks for the driver and for NVML."""


def build(folder: Path, headers: Path = HEADERS) -> Path:
    """Makes the library in a folder.

    Returns:
        The library, to be preloaded.

    Raises:
        SystemExit: what is missing.
    """
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit(
            "torch is not installed beside this Python. Use one that has torch for CUDA 13."
        )
    torch = Path(spec.submodule_search_locations[0])
    libraries = [torch / "lib" / f"lib{name}.so" for name in ASKING]
    if not libraries[0].exists():
        raise SystemExit(
            f"{torch} lacks {libraries[0].name}. Install a build of torch for CUDA 13."
        )
    if not (headers / "crt/host_defines.h").exists():
        raise SystemExit(
            f"{headers} has no crt/host_defines.h. Name the CUDA toolkit's: --headers."
        )
    own = set(re.findall(r"^\w+ (\w+)\(", SOURCE.read_text(), re.MULTILINE))
    asked = {name for library in libraries if library.exists() for name in _undefined(library)}
    rest = folder / "rest.c"
    empty = sorted(asked - own - REAL)
    rest.write_text("".join(f"int {name}(void) {{ return 0; }}\n" for name in empty))
    library = folder / "libstand_in_gpu.so"
    includes = [torch.parent / "nvidia/cu13/include", headers]
    command = ["cc", "-shared", "-fPIC", "-O1", *(f"-I{path}" for path in includes)]
    subprocess.run([*command, str(SOURCE), str(rest), "-o", str(library)], check=True)
    for name in NAMES:
        (folder / name).symlink_to(library.name)
    return library


def environment(library: Path) -> dict[str, str]:
    """Of a process that is to see the stand-in."""
    paths = [str(library.parent), os.environ.get("LD_LIBRARY_PATH", "")]
    return {
        **os.environ,
        "LD_PRELOAD": str(library),
        "LD_LIBRARY_PATH": ":".join(filter(None, paths)),
    }


def _undefined(library: Path) -> list[str]:
    """Functions of CUDA's libraries that a library calls."""
    command = ["nm", "-D", "--undefined-only", str(library)]
    listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return re.findall(r" U (cu\w+)", listed)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--headers", type=Path, default=HEADERS, help="of the CUDA toolkit")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    given = parser.parse_args()
    if not given.command:
        parser.error("which command is to run?")
    with tempfile.TemporaryDirectory(prefix="stand-in-") as name:
        library = build(Path(name), given.headers)
        return subprocess.run(given.command, env=environment(library), check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
