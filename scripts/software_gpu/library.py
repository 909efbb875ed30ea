"""Builds the GPU in software (the C files beside this), and runs a command with it.

    python scripts/software_gpu/library.py --model card.conf python train.py

Torch's CUDA build then believes in the cards that the file states, or in one of 80 GiB; README.md
says what they model. It takes a torch of CUDA 13 with NVIDIA's packages beside it, a C compiler,
and nvidia-cuda-crt or the headers of the CUDA toolkit (`--headers`, /usr/local/cuda/include).
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

SOURCES = Path(__file__).parent
HEADERS = Path("/usr/local/cuda/include")
ASKING = ("c10_cuda", "torch_cuda", "torch_cuda_linalg", "torch_python", "caffe2_nvrtc")
"""Libraries of torch that call CUDA's."""
REFUSED = {"cudnn": 3000, "nccl": 5, "cusolver": 9, "cusparse": 10}
"""What functions that are not modelled return: not supported, invalid usage; others: success."""
PACKAGES = ("cu13", "cudnn", "nccl")
"""Of NVIDIA's, whose headers are needed."""
NAMES = ("libcuda.so.1", "libnvidia-ml.so.1")
"""Under which torch looks for the driver and for NVML."""
VISIBLE = "{ global: cu*; __cu*; nvml*; nccl*; software_gpu_*; local: *; };\n"
FLAGS = ("-std=gnu11", "-fPIC", "-O1", "-Wall", "-Wno-unused-parameter")


class MissingError(Exception):
    """Something that the library needs is not here."""


def build(folder: Path, headers: Path = HEADERS) -> Path:
    """Makes the library in a folder.

    Returns:
        The library, to be preloaded.

    Raises:
        MissingError: what, and what to do.
    """
    compiler = shutil.which("cc")
    if compiler is None:
        raise MissingError("no C compiler: there is no cc. Install gcc.")
    torch = _torch()
    libraries = [torch / "lib" / f"lib{name}.so" for name in ASKING]
    packages = [torch.parent / "nvidia" / name / "include" for name in PACKAGES]
    folders = [*packages, headers]
    if not any((path / "crt/host_defines.h").exists() for path in folders):
        raise MissingError(
            f"headers missing: no crt/host_defines.h in {packages[0]} or {headers}. Install "
            "nvidia-cuda-crt of CUDA 13.0, or name the CUDA toolkit's: --headers."
        )
    (folder / "callback_names.h").write_text(_callback_names(packages[0]))
    includes = [f"-I{path}" for path in (*folders, folder)]

    def compiled(source: Path) -> Path:
        made = folder / f"{source.stem}.o"
        command = [compiler, "-c", *FLAGS, *includes, str(source), "-o", str(made)]
        subprocess.run(command, check=True)
        return made

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = list(pool.map(compiled, sorted(SOURCES.glob("*.c"))))
        asked = {name for names in pool.map(_undefined, libraries) for name in names}
    asked |= _asked_by_triton(torch.parent)
    rest = folder / "rest.c"
    empty = sorted(asked - _defined(objects))
    rest.write_text("".join(f"int {name}(void) {{ return {_answer(name)}; }}\n" for name in empty))
    visible = folder / "visible.map"
    visible.write_text(VISIBLE)
    library = folder / "libsoftware_gpu.so"
    command = [compiler, "-shared", f"-Wl,--version-script={visible}"]
    words = [*map(str, [*objects, compiled(rest)]), "-lm", "-lpthread", "-ldl"]
    subprocess.run([*command, *words, "-o", str(library)], check=True)
    for name in NAMES:
        (folder / name).symlink_to(library.name)
    return library


def environment(
    library: Path, model: Path | None = None, machine: Path | None = None
) -> dict[str, str]:
    """Of a process that is to see the GPU.

    Args:
        model: file that states the cards.
        machine: file by which processes share them; beside the library by default.
    """
    paths = [str(library.parent), os.environ.get("LD_LIBRARY_PATH", "")]
    preloaded = [str(library), os.environ.get("LD_PRELOAD", "")]
    own = {} if model is None else {"SOFTWARE_GPU_MODEL": str(model)}
    return {
        **os.environ,
        **own,
        "SOFTWARE_GPU_MACHINE": str(machine or library.with_name("machine")),
        "LD_PRELOAD": ":".join(filter(None, preloaded)),
        "LD_LIBRARY_PATH": ":".join(filter(None, paths)),
    }


def _asked_by_triton(packages: Path) -> set[str]:
    """Functions of the driver that Triton's own module calls; it is compiled when it is needed."""
    source = packages / "triton/backends/nvidia/driver.c"
    return set(re.findall(r"\bcu[A-Z]\w+(?=\()", source.read_text())) if source.exists() else set()


def _callback_names(headers: Path) -> str:
    """CUPTI's names of calls by their numbers, in C: its headers alone hold them."""
    tables = []
    for domain in ("runtime", "driver"):
        text = (headers / f"cupti_{domain}_cbid.h").read_text()
        numbered = rf"CUPTI_{domain.upper()}_TRACE_CBID_(\w+)\s*=\s*(\d+)\b"
        rows = [f'[{number}] = "{name}"' for name, number in re.findall(numbered, text)]
        joined = ",\n".join(rows)
        tables.append(f"static const char *const {domain}_names[] = {{\n{joined}}};\n")
    return "".join(tables)


def _torch() -> Path:
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        raise MissingError(
            "torch is not installed beside this Python. Use one that has it for CUDA 13."
        )
    torch = Path(spec.submodule_search_locations[0])
    if not (torch / "lib/libc10_cuda.so").exists():
        raise MissingError(f"no CUDA build of torch: {torch} has no libc10_cuda.so. Install one.")
    if not (torch.parent / "nvidia/cu13").exists():
        raise MissingError(
            f"another CUDA version: no {torch.parent}/nvidia/cu13. Install CUDA 13's."
        )
    return torch


def _undefined(library: Path) -> set[str]:
    """Functions of CUDA's libraries that a library calls."""
    if not library.exists():
        return set()
    command = ["nm", "-D", "--undefined-only", str(library)]
    listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return set(re.findall(r" U ((?:cu|nccl)\w+)", listed))


def _answer(name: str) -> int:
    """Of a function that is not modelled."""
    return next((code for prefix, code in REFUSED.items() if name.startswith(prefix)), 0)


def _defined(objects: list[Path]) -> set[str]:
    command = ["nm", "--defined-only", *map(str, objects)]
    listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return set(re.findall(r" T (\w+)", listed))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--headers", type=Path, default=HEADERS, help="of the CUDA toolkit")
    parser.add_argument("--model", type=Path, help="file that states the cards; see README.md")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    given = parser.parse_args()
    if not given.command:
        parser.error("which command is to run?")
    with tempfile.TemporaryDirectory(prefix="software-gpu-") as name:
        try:
            library = build(Path(name), given.headers)
        except MissingError as missing:
            parser.error(str(missing))
        own = environment(library, given.model)
        return subprocess.run(given.command, env=own, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
