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


def error_of(said):
    """An exception as it is, or one of the usual class with these words."""
    return RuntimeError(said) if isinstance(said, str) else said


TRANSCRIBED = {
    "the caching allocator": torch.OutOfMemoryError(
        "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 79.25 GiB"
    ),
    "the caching allocator, before torch 1.13": (
        "CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 7.80 GiB total capacity)"
    ),
    "two arguments": RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB", 2),
    "the runtime": accelerator_error(
        "CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported"
    ),
    "the driver": "CUDA driver error: out of memory",
    "cuBLAS": "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
    "cuDNN": "cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
    "NCCL": DistBackendError(
        "NCCL error in: ProcessGroupNCCL.cpp:1970, unhandled cuda error\nncclUnhandledCudaError: "
        "Call to CUDA function failed.\nLast error:\nFailed to CUDA calloc async 608 bytes"
    ),
    "HIP": torch.OutOfMemoryError("HIP out of memory. Tried to allocate 2.00 GiB. GPU 0"),
    "HIP, an older class": "HIP out of memory. Tried to allocate 2.00 GiB",
    "MPS": "MPS backend out of memory (MPS allocated: 8.00 GB, other allocations: 1.00 GB)",
    "XPU": "XPU out of memory. Tried to allocate 16.00 GiB (GPU 0)",
    "the CPU": (
        "[enforce fail at alloc_cpu.cpp:119] err == 0. DefaultCPUAllocator: can't allocate "
        "memory: you tried to allocate 400 bytes. Error code 12 (Cannot allocate memory)"
    ),
    "oneDNN": "could not create a primitive",
    "Python": MemoryError(),
    "C++": "std::bad_alloc",
    "a fork": OSError(12, "Cannot allocate memory"),
    "a mapped file": "unable to mmap 400 bytes from file </torch_1>: Cannot allocate memory (12)",
    "Triton": "Triton Error [CUDA]: out of memory",
    "Triton on HIP": "Triton Error [HIP]:  Code: 2, Messsage: out of memory",
    "Triton on HIP, later": "Triton Error [HIP]: Code: 2, Message: out of memory",
    "cuFFT": "cuFFT error: CUFFT_ALLOC_FAILED",
    "cuRAND": "curand error: CURAND_STATUS_ALLOCATION_FAILED",
    "cuDNN 9": "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
    "hipBLAS": "CUDA error: HIPBLAS_STATUS_ALLOC_FAILED when calling `hipblasCreate(handle)`",
    "hipFFT": "cuFFT error: HIPFFT_ALLOC_FAILED",
    "the HIP runtime": "HIP error: hipErrorOutOfMemory",
    "the CUDA runtime, by name": "cudaErrorMemoryAllocation: out of memory",
    "MIOpen": "miopen error: miopenStatusAllocFailed",
    "MIOpen's handle": (
        "MIOpen Error: /src/hip/handlehip.cpp:70: Memory not available to allocate buffer: 65536"
    ),
    "a killed data worker": "DataLoader worker (pid 7) is killed by signal: Killed.",
    "a data worker's own": (
        "Caught RuntimeError in DataLoader worker process 0.\nOriginal Traceback (most recent "
        'call last):\n  File "d.py", line 3, in __getitem__\n    x = torch.empty(n)\n'
        "RuntimeError: [enforce fail] DefaultCPUAllocator: can't allocate memory"
    ),
}

UNCLEAR = {
    "a cuBLAS handle": (
        "CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`"
    ),
    "a convolution's workspace": "GET was unable to find an engine to execute this computation",
    "a convolution's workspace, before": (
        "Unable to find a valid cuDNN algorithm to run convolution"
    ),
    "cuDNN inside": "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR",
    "NCCL": DistBackendError("ncclUnhandledCudaError: Call to CUDA function failed."),
    "cuDNN, a batch that is too large": (
        "cuDNN error: CUDNN_STATUS_NOT_SUPPORTED. This error may appear if you passed in a "
        "non-contiguous input."
    ),
    "cuFFT inside": "cuFFT error: CUFFT_INTERNAL_ERROR",
    "MIOpen inside": "miopen error: miopenStatusUnknownError",
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
    "CUDA error: CUBLAS_STATUS_INVALID_VALUE when calling `cublasSgemm`",
    "cuDNN error: CUDNN_STATUS_BAD_PARAM",
    "unable to allocate shared memory(shm) for file </torch_1>: No space left on device",
    "Triton Error [CUDA]: an illegal memory access was encountered",
    "Triton Error [HIP]:  Code: 1, Messsage: invalid argument",
    "cuFFT error: CUFFT_INVALID_SIZE",
    (
        "DataLoader worker (pid 7) is killed by signal: Bus error. It is possible that "
        "dataloader's workers are out of shared memory. Please try to raise your shared memory "
        "limit."
    ),
    "The size of tensor a (16) must match the size of tensor b (8)",
    "mat1 and mat2 shapes cannot be multiplied (8x16 and 32x10)",
    "Expected all tensors to be on the same device, cuda:0 and cpu!",
    "shape '[16, 784]' is invalid for input of size 6272",
    "Expected input batch_size (16) to match target batch_size (8).",
    "Given groups=1, weight of size [8, 3, 3, 3], expected 3 channels, got 1",
    "stack expects each tensor to be equal size, but got [3] and [4]",
    "Trying to backward through the graph a second time; saved memory was freed",
    "view size is not compatible with input tensor's size and memory format",
    "unsupported memory format option: channels_last for a tensor of size 3",
    "Tensors must have the same memory layout; strided and sparse are mixed",
    "pinned memory requires CUDA, which this build of torch lacks",
    "Cannot re-initialize CUDA in forked subprocess",
    "No CUDA GPUs are available",
    "The NVIDIA driver on your system is too old",
    "Attempting to deserialize object on a CUDA device, but CUDA is unavailable",
    "replay memory holds 100 of 512 transitions",
    "memory bank: queue size 65536 is no multiple of the batch size 24",
    "the batch ran out of memory slots: raise memory_size",
    "input tensor is too large for 32-bit indexing: numel() exceeds INT_MAX",
    "out of resource: shared memory, Required: 131072, Hardware limit: 101376",
    (
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
    assert is_out_of_memory(error_of(TRANSCRIBED[where]))


@pytest.mark.parametrize("where", UNCLEAR)
def test_the_allocator_decides_what_the_words_do_not(where):
    assert not is_out_of_memory(error_of(UNCLEAR[where]))
    assert is_out_of_memory(error_of(UNCLEAR[where]), short=True)


@pytest.mark.parametrize("said", BUGS, ids=lambda said: f"{type(said).__name__} {said}"[:60])
def test_a_bug_stays_one_on_a_full_device_too(said):
    assert not is_out_of_memory(error_of(said))
    assert not is_out_of_memory(error_of(said), short=True)


def raised(text):
    """What a script's own code raises."""
    with pytest.raises(BaseException) as caught:  # noqa: PT011  whatever it is
        exec(compile(textwrap.dedent(text), "train.py", "exec"), {"torch": torch})
    return caught.value


class TestWhoSaidIt:
    """The words of an allocator in the script's own mouth prove nothing."""

    @pytest.mark.parametrize(
        "text",
        [
            "raise RuntimeError('CUDA out of memory, says I')",
            "raise RuntimeError('std::bad_alloc')",
            "raise OSError('cannot allocate memory for a table')",
            """
            class OutOfMemoryError(Exception):
                pass
            raise OutOfMemoryError("the replay buffer is full")
            """,
        ],
    )
    def test_the_script_or_its_own_class_of_that_name(self, text):
        assert not is_out_of_memory(raised(text))

    @pytest.mark.parametrize(
        "text",
        [
            "torch.empty(1 << 50)",
            "bytearray(1 << 60)",
            """
            try:
                torch.empty(1 << 50)
            except RuntimeError as error:
                raise RuntimeError("training failed") from error
            """,
            # The type is believed, whoever raised it.
            "raise torch.OutOfMemoryError('CUDA out of memory.')",
        ],
    )
    def test_the_allocator_below_or_before_the_script(self, text):
        assert is_out_of_memory(raised(text))


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
