"""Memory that was refused, told apart from bugs: by type, by the allocator's words, by evidence.

The messages of GPU libraries are transcribed, not provoked here; the refusals of `TestReal` are
made by the kernel under a limit. Those of a GPU are in the tests marked `gpu`.
"""

import json
import subprocess
import sys
import textwrap

import pytest
import torch
from batchadvisor.probes.process.faults import is_out_of_memory, outcome_of_exit

AcceleratorError = getattr(torch, "AcceleratorError", RuntimeError)


class DistBackendError(RuntimeError):
    """As torch.distributed has it."""


def accelerator_error(text):
    """torch's own class of error from an asynchronous call."""
    if AcceleratorError is RuntimeError:
        return RuntimeError(text)
    error = AcceleratorError.__new__(AcceleratorError, text)
    error.args = (text,)
    return error


TRANSCRIBED = {
    "the caching allocator": torch.OutOfMemoryError(
        "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 79.25 GiB"
    ),
    "the caching allocator, before torch 1.13": RuntimeError(
        "CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 7.80 GiB total capacity)"
    ),
    "two arguments": RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB", 2),
    "the runtime": accelerator_error(
        "CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported"
    ),
    "the driver": RuntimeError("CUDA driver error: out of memory"),
    "cuBLAS": RuntimeError(
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"
    ),
    "cuDNN": RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
    "NCCL": DistBackendError(
        "NCCL error in: ProcessGroupNCCL.cpp:1970, unhandled cuda error\nncclUnhandledCudaError: "
        "Call to CUDA function failed.\nLast error:\nFailed to CUDA calloc async 608 bytes"
    ),
    "HIP": torch.OutOfMemoryError("HIP out of memory. Tried to allocate 2.00 GiB. GPU 0"),
    "HIP, an older class": RuntimeError("HIP out of memory. Tried to allocate 2.00 GiB"),
    "MPS": RuntimeError(
        "MPS backend out of memory (MPS allocated: 8.00 GB, other allocations: 1.00 GB)"
    ),
    "XPU": RuntimeError("XPU out of memory. Tried to allocate 16.00 GiB (GPU 0)"),
    "the CPU": RuntimeError(
        "[enforce fail at alloc_cpu.cpp:119] err == 0. DefaultCPUAllocator: can't allocate "
        "memory: you tried to allocate 400 bytes. Error code 12 (Cannot allocate memory)"
    ),
    "oneDNN": RuntimeError("could not create a primitive"),
    "Python": MemoryError(),
    "C++": RuntimeError("std::bad_alloc"),
    "a fork": OSError(12, "Cannot allocate memory"),
    "a mapped file": RuntimeError(
        "unable to mmap 400 bytes from file </torch_1>: Cannot allocate memory (12)"
    ),
    "Triton": RuntimeError("Triton Error [CUDA]: out of memory"),
    "Triton on HIP": RuntimeError("Triton Error [HIP]:  Code: 2, Messsage: out of memory"),
    "Triton on HIP, later": RuntimeError("Triton Error [HIP]: Code: 2, Message: out of memory"),
    "cuFFT": RuntimeError("cuFFT error: CUFFT_ALLOC_FAILED"),
    "cuRAND": RuntimeError("curand error: CURAND_STATUS_ALLOCATION_FAILED"),
    "cuDNN 9": RuntimeError("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED"),
    "hipBLAS": RuntimeError(
        "CUDA error: HIPBLAS_STATUS_ALLOC_FAILED when calling `hipblasCreate(handle)`"
    ),
    "hipFFT": RuntimeError("cuFFT error: HIPFFT_ALLOC_FAILED"),
    "the HIP runtime": RuntimeError("HIP error: hipErrorOutOfMemory"),
    "the CUDA runtime, by name": RuntimeError("cudaErrorMemoryAllocation: out of memory"),
    "MIOpen": RuntimeError("miopen error: miopenStatusAllocFailed"),
    "MIOpen's handle": RuntimeError(
        "MIOpen Error: /src/hip/handlehip.cpp:70: Memory not available to allocate buffer: 65536"
    ),
    "a killed data worker": RuntimeError("DataLoader worker (pid 7) is killed by signal: Killed."),
    "a data worker's own": RuntimeError(
        "Caught RuntimeError in DataLoader worker process 0.\nOriginal Traceback (most recent "
        'call last):\n  File "d.py", line 3, in __getitem__\n    x = torch.empty(n)\n'
        "RuntimeError: [enforce fail] DefaultCPUAllocator: can't allocate memory"
    ),
}

UNCLEAR = {
    "a cuBLAS handle": RuntimeError(
        "CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`"
    ),
    "a convolution's workspace": RuntimeError(
        "GET was unable to find an engine to execute this computation"
    ),
    "a convolution's workspace, before": RuntimeError(
        "Unable to find a valid cuDNN algorithm to run convolution"
    ),
    "cuDNN inside": RuntimeError("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR"),
    "NCCL": DistBackendError("ncclUnhandledCudaError: Call to CUDA function failed."),
    "cuDNN, a batch that is too large": RuntimeError(
        "cuDNN error: CUDNN_STATUS_NOT_SUPPORTED. This error may appear if you passed in a "
        "non-contiguous input."
    ),
    "cuFFT inside": RuntimeError("cuFFT error: CUFFT_INTERNAL_ERROR"),
    "MIOpen inside": RuntimeError("miopen error: miopenStatusUnknownError"),
}
"""What libraries say without memory, and for other reasons: the allocator decides."""

BUGS = [
    accelerator_error("CUDA error: an illegal memory access was encountered"),
    accelerator_error("CUDA error: device-side assert triggered"),
    accelerator_error("CUDA error: invalid configuration argument"),
    accelerator_error("CUDA error: no kernel image is available for execution on the device"),
    accelerator_error("CUDA error: misaligned address"),
    accelerator_error("CUDA error: unspecified launch failure"),
    accelerator_error("CUDA error: uncorrectable ECC error encountered"),
    RuntimeError("CUDA error: CUBLAS_STATUS_INVALID_VALUE when calling `cublasSgemm`"),
    RuntimeError("cuDNN error: CUDNN_STATUS_BAD_PARAM"),
    RuntimeError(
        "unable to allocate shared memory(shm) for file </torch_1>: No space left on device"
    ),
    RuntimeError("Triton Error [CUDA]: an illegal memory access was encountered"),
    RuntimeError("Triton Error [HIP]:  Code: 1, Messsage: invalid argument"),
    RuntimeError("cuFFT error: CUFFT_INVALID_SIZE"),
    RuntimeError(
        "DataLoader worker (pid 7) is killed by signal: Bus error. It is possible that "
        "dataloader's workers are out of shared memory. Please try to raise your shared memory "
        "limit."
    ),
    RuntimeError("The size of tensor a (16) must match the size of tensor b (8)"),
    RuntimeError("mat1 and mat2 shapes cannot be multiplied (8x16 and 32x10)"),
    RuntimeError("Expected all tensors to be on the same device, cuda:0 and cpu!"),
    RuntimeError("shape '[16, 784]' is invalid for input of size 6272"),
    RuntimeError("Expected input batch_size (16) to match target batch_size (8)."),
    RuntimeError("Given groups=1, weight of size [8, 3, 3, 3], expected 3 channels, got 1"),
    RuntimeError("stack expects each tensor to be equal size, but got [3] and [4]"),
    RuntimeError("Trying to backward through the graph a second time; saved memory was freed"),
    RuntimeError("view size is not compatible with input tensor's size and memory format"),
    RuntimeError("unsupported memory format option: channels_last for a tensor of size 3"),
    RuntimeError("Tensors must have the same memory layout; strided and sparse are mixed"),
    RuntimeError("pinned memory requires CUDA, which this build of torch lacks"),
    RuntimeError("Cannot re-initialize CUDA in forked subprocess"),
    RuntimeError("No CUDA GPUs are available"),
    RuntimeError("The NVIDIA driver on your system is too old"),
    RuntimeError("Attempting to deserialize object on a CUDA device, but CUDA is unavailable"),
    RuntimeError("replay memory holds 100 of 512 transitions"),
    RuntimeError("memory bank: queue size 65536 is no multiple of the batch size 24"),
    RuntimeError("the batch ran out of memory slots: raise memory_size"),
    RuntimeError("input tensor is too large for 32-bit indexing: numel() exceeds INT_MAX"),
    RuntimeError("out of resource: shared memory, Required: 131072, Hardware limit: 101376"),
    RuntimeError(
        "Caught ValueError in DataLoader worker process 0.\nOriginal Traceback:\n"
        "    cannot allocate memory = True\nValueError: bad memory size"
    ),
    ValueError("out of memory slots: increase memory_size"),
    ValueError("Expected more than 1 value per channel when training, got size [1, 8]"),
    ValueError("CUDA out of memory is what this test looks for"),
    KeyError("out of memory"),
    AssertionError("CUDA out of memory test"),
    AssertionError("batch size 16 exceeds the memory of 8 items"),
    TypeError("memory must be an int"),
    TypeError("cannot pickle '_cuda.Stream' object"),
    AttributeError("module 'torch.cuda' has no attribute 'memory_hog'"),
    IndexError("batch size 16 is out of range"),
    OSError(28, "No space left on device"),
    OSError(24, "Too many open files"),
    FileNotFoundError(2, "No such file or directory", "memory.npy"),
    NotImplementedError("memory-efficient attention needs CUDA"),
    ZeroDivisionError("division by zero: free memory is 0"),
    KeyboardInterrupt(),
    SystemExit("not enough memory: choose a smaller --size"),
]


@pytest.mark.parametrize("where", TRANSCRIBED)
def test_a_refusal(where):
    assert is_out_of_memory(TRANSCRIBED[where])


@pytest.mark.parametrize("where", UNCLEAR)
def test_the_allocator_decides_what_the_words_do_not(where):
    assert not is_out_of_memory(UNCLEAR[where])
    assert is_out_of_memory(UNCLEAR[where], short=True)


@pytest.mark.parametrize("error", BUGS, ids=lambda error: f"{type(error).__name__} {error}"[:60])
def test_a_bug(error):
    assert not is_out_of_memory(error)


def test_there_are_enough_of_both():
    assert len(TRANSCRIBED) + len(UNCLEAR) >= 16
    assert len(BUGS) >= 40


@pytest.mark.parametrize(
    "error",
    [bug for bug in BUGS if "EXECUTION" not in str(bug)],
    ids=lambda error: repr(error)[:40],
)
def test_a_bug_on_a_full_device_stays_one(error):
    assert not is_out_of_memory(error, short=True)


def raised(text):
    """What a script's own code raises."""
    with pytest.raises(BaseException) as caught:  # noqa: PT011  whatever it is
        exec(compile(textwrap.dedent(text), "train.py", "exec"), {"torch": torch})
    return caught.value


class TestWhoSaidIt:
    """The words of an allocator in the script's own mouth prove nothing."""

    def test_the_script(self):
        assert not is_out_of_memory(raised("raise RuntimeError('CUDA out of memory, says I')"))
        assert not is_out_of_memory(raised("raise RuntimeError('std::bad_alloc')"))
        assert not is_out_of_memory(raised("raise OSError('cannot allocate memory for a table')"))

    def test_its_own_class_of_that_name(self):
        text = """
            class OutOfMemoryError(Exception):
                pass
            raise OutOfMemoryError("the replay buffer is full")
        """
        assert not is_out_of_memory(raised(text))

    def test_the_allocator_below_the_script(self):
        assert is_out_of_memory(raised("torch.empty(1 << 50)"))
        assert is_out_of_memory(raised("bytearray(1 << 60)"))

    def test_the_script_after_the_allocator(self):
        text = """
            try:
                torch.empty(1 << 50)
            except RuntimeError as error:
                raise RuntimeError("training failed") from error
        """
        assert is_out_of_memory(raised(text))

    def test_the_type_is_believed_whoever_raised_it(self):
        assert is_out_of_memory(raised("raise torch.OutOfMemoryError('CUDA out of memory.')"))


class TestExits:
    def test_the_exit_code_that_a_shell_makes_of_a_kill(self):
        assert outcome_of_exit(137, killed_for_memory=True)[0] == "out_of_memory"
        assert outcome_of_exit(137, killed_for_memory=False)[0] == "crashed"

    def test_last_words(self):
        words = "epoch 1\nterminate called after throwing an instance of 'std::bad_alloc'\n  what()"
        assert outcome_of_exit(-6, killed_for_memory=False, last_words=words)[0] == "out_of_memory"
        assert outcome_of_exit(-6, killed_for_memory=False, last_words="epoch 1")[0] == "crashed"
        assert outcome_of_exit(-11, killed_for_memory=False, last_words=words)[0] == "crashed"


LIMITED = """
import ctypes, json, os, sys
import torch
from batchadvisor.probes.devices.torch_devices import (
    lift_process_memory_limit, limit_process_memory,
)
from batchadvisor.probes.process.faults import is_out_of_memory

conv = torch.nn.Conv2d(64, 64, 3, padding=1)
conv(torch.randn(1, 64, 8, 8))
image = torch.randn(1, 64, 8, 8)
limit_process_memory(1)  # nothing beyond what is mapped already

def tensor():
    torch.empty(1 << 30)

def python():
    [bytearray(1 << 28) for _ in range(64)]

def onednn():
    conv(image.expand(4096, 64, 8, 8))

def mapped():
    import mmap
    mmap.mmap(-1, 1 << 40, flags=mmap.MAP_PRIVATE)

def numpy():
    import numpy
    numpy.ones(1 << 30)

answers = {}
for attempt in (tensor, python, onednn, mapped, numpy):
    try:
        attempt()
    except BaseException as error:
        lift_process_memory_limit()
        answers[attempt.__name__] = (type(error).__name__, is_out_of_memory(error))
        limit_process_memory(1)
lift_process_memory_limit()
print(json.dumps(answers), flush=True)
ctypes.CDLL("libstdc++.so.6")._Znwm(ctypes.c_size_t(1 << 62))
"""


@pytest.fixture(scope="module")
def done():
    """A process that is refused memory in five ways, and aborts in the sixth."""
    return subprocess.run(
        [sys.executable, "-c", LIMITED], capture_output=True, text=True, check=False
    )


class TestReal:
    """The kernel refuses under a limit on the process's data; nothing is transcribed here."""

    @pytest.mark.parametrize("where", ["tensor", "python", "onednn", "mapped", "numpy"])
    def test_a_refusal(self, done, where):
        answers = json.loads(done.stdout.splitlines()[-1])
        assert answers[where][1], answers[where]

    def test_an_abort(self, done):
        """`operator new` without a handler: the process says its last words and aborts."""
        outcome = outcome_of_exit(done.returncode, killed_for_memory=False, last_words=done.stderr)
        assert outcome[0] == "out_of_memory", done.stderr[-500:]
