"""The real `pynvml` over a small C library that answers like the driver's."""

import ctypes
import importlib
import os
import shutil
import subprocess
import threading
import time
from pathlib import Path

import pytest
from batchadvisor.probes.nvml import calls
from batchadvisor.probes.nvml.sampler import THREAD_NAME

SOURCE = Path(__file__).parents[2] / "scripts/software_gpu/nvml.c"
PROBES = Path(__file__).parents[2] / "scripts/gpu_probes"


@pytest.fixture(scope="session")
def stub_folder(tmp_path_factory):
    """A folder with the stand-in `libnvidia-ml.so.1`, for `LD_LIBRARY_PATH`."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        message = "no C compiler (cc, gcc, clang): the stand-in for NVML cannot be built"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    folder = tmp_path_factory.mktemp("nvml")
    name = "libnvidia-ml.so.1"
    command = [compiler, "-shared", "-fPIC", "-Wall", "-Wextra", "-std=gnu11"]
    command += [f"-Wl,-soname,{name}", "-o", str(folder / name), str(SOURCE), "-lpthread"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


class Stub:
    """Tells the loaded library what to answer."""

    def __init__(self, library):
        self._library = library
        self._hooks = []
        library.nvml_calls.restype = ctypes.c_longlong

    def set(self, **values):
        for name, value in values.items():
            self[name] = value

    def __setitem__(self, name, value):
        self._library.nvml_set(name.encode(), ctypes.c_longlong(value))

    def refresh(self, act):
        """Before every answer `act` is called, which may set what it will be."""
        hook = ctypes.CFUNCTYPE(None)(act)
        self._hooks.append(hook)  # C holds no reference
        self._library.nvml_refresh(hook)

    def calls(self, function):
        return self._library.nvml_calls(function.encode())

    @property
    def gpm_buffers(self):
        return self._library.nvml_gpm_samples()


@pytest.fixture
def stub(stub_folder, monkeypatch):
    """One GPU with GPM and nobody else on it; nothing is left behind."""
    import pynvml

    monkeypatch.delenv("SOFTWARE_GPU_NVML", raising=False)
    library = ctypes.CDLL(str(stub_folder / "libnvidia-ml.so.1"))
    library.nvml_reset()
    monkeypatch.setattr(pynvml, "nvmlLib", library)
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    monkeypatch.setattr(pynvml, "_nvmlLib_refcount", 0)
    monkeypatch.setattr(calls, "_ready_in_process", None)
    words = dict(pynvml.NVMLError._errcode_to_string)
    monkeypatch.setattr(pynvml.NVMLError, "_errcode_to_string", words)
    control = Stub(library)
    yield control
    assert not [thread for thread in threading.enumerate() if thread.name == THREAD_NAME]
    assert control.gpm_buffers == 0
    library.nvml_reset()  # whoever looks for the driver by name finds this library from now on


class FakeClock:
    """Stands still until it is told to go on."""

    def __init__(self):
        self.now_s = 100.0

    def __call__(self):
        return self.now_s

    def advance(self, seconds):
        self.now_s += seconds


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def wait_until():
    """Waits for something that the sampler's thread does."""

    def wait(condition, limit_s=20.0):
        deadline = time.monotonic() + limit_s
        while not condition():
            assert time.monotonic() < deadline, "it did not happen"
            time.sleep(0.002)

    return wait


@pytest.fixture
def load(monkeypatch):
    """Imports a probe of `scripts/gpu-check`, as its own process would."""
    monkeypatch.syspath_prepend(PROBES)
    return importlib.import_module


@pytest.fixture
def finding(load):
    return load("harness").Finding("any", "Is it so?", "cuda")
