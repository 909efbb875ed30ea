"""Memory that was refused, in other people's words: assertions, other devices, wrapped exceptions,
processes that ended without an exception. The texts are those of public reports, shortened.
"""
# ruff: noqa: E501  the texts as they were printed

import builtins
import signal
import sys

import pytest
import torch
from batchadvisor.probes.process.endings import over
from batchadvisor.probes.process.faults import is_out_of_memory, outcome_of_exit
from batchadvisor.probes.process.messages import Ended, Raised
from batchadvisor.probes.process.refusals import exceptions_in, headline, last_refusal

ADVICE = (
    "CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace "
    "below might be incorrect.\nFor debugging consider passing CUDA_LAUNCH_BLOCKING=1\nCompile with "
    "`TORCH_USE_CUDA_DSA` to enable device-side assertions.\n"
)
FRAME = (
    'Traceback (most recent call last):\n  File "/usr/lib/python3/dist-packages/torch/x.py", '
    "line 41, in do_one_step\n    data = pin(data, device)\n           ^^^^^^^^^^^^^^^^^\n"
)
PINNING = (
    f"Caught RuntimeError in pin memory thread for device 0.\nOriginal {FRAME}"
    f"RuntimeError: CUDA error: out of memory\n{ADVICE}"
)
NVML = (
    'NVML_SUCCESS == r INTERNAL ASSERT FAILED at "/opt/pytorch/c10/cuda/CUDACachingAllocator.cpp"'
    ":1131, please report a bug to PyTorch. "
)
SYCL = "level_zero backend failed with error: 39 (UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY)"
NCCL = (
    "NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.hpp:275, unhandled cuda error (run "
    "with NCCL_DEBUG=INFO for details), NCCL version 2.18.1\nncclUnhandledCudaError: Call to CUDA "
    "function failed.\nLast error:\nCuda failure 2 'out of memory'"
)
REFUSALS = {
    "an assertion": NVML,
    "an assertion of nvmlInit": "NVML_SUCCESS == DriverAPI::get()->nvmlInit_v2_() INTERNAL ASSERT "
    'FAILED at "../c10/cuda/CUDACachingAllocator.cpp":963, please report a bug to PyTorch.',
    "an assertion of ROCm": "RSMI_STATUS_SUCCESS == r INTERNAL ASSERT FAILED at "
    '"/pytorch/c10/hip/HIPCachingAllocator.cpp":900',
    "SYCL": SYCL,
    "SYCL, the host": "level_zero backend failed with error: 38 (UR_RESULT_ERROR_OUT_OF_HOST_MEMORY)",
    "SYCL, cut": "level_zero backend failed with error: 39 (UR_RES",
    "SYCL before": "Native API failed. Native API returns: -4 (PI_ERROR_MEM_OBJECT_ALLOCATION_FAILURE)",
    "bitsandbytes": "Error out of memory at line 380 in file /mmfs1/csrc/pythonInterface.c",
    "NCCL": NCCL,
    "NCCL, before": "unhandled cuda error\nLast error:\nCuda failure 'out of memory'",
    "the runtime, before": "cuda runtime error (2) : out of memory at /pytorch/THCStorage.cu:58",
    "the pinning thread": PINNING,
    "the pinning thread without a device": PINNING.replace(" for device 0", ""),
    "a replica": PINNING.replace("pin memory thread for device 0", "replica 1 on device 1"),
    "a spawned rank": f"\n\n-- Process 1 terminated with the following error:\n{FRAME}torch."
    "OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n",
    "three deep": f"Caught RuntimeError in DataLoader worker process 0.\nOriginal {FRAME}MemoryError"
    f"\n\nDuring handling of the above exception, another exception occurred:\n\n{FRAME}KeyError: 1"
    "\n\nThe above exception was the direct cause of the following exception:\n\n"
    f"{FRAME}RuntimeError: the sample could not be read\n",
    "colours": "\x1b[31m\x1b[1mCUDA\x1b[0m \x1b[31merror: out of memory\x1b[0m",
    "another language": "unable to mmap 400 bytes from file </torch_1>: Nicht genügend "
    "Hauptspeicher verfügbar (12)",
    "another language, the CPU": "[enforce fail at alloc_cpu.cpp:119] err == 0. DefaultCPUAllocator:"
    " you tried to allocate 400 bytes. Error code 12 (Ne peut allouer de la mémoire)",
}  # fmt: skip
NO_REFUSALS = {
    "a lost device": "level_zero backend failed with error: 20 (UR_RESULT_ERROR_DEVICE_LOST)",
    "resources": "level_zero backend failed with error: 40 (UR_RESULT_ERROR_OUT_OF_RESOURCES)",
    "another assertion": 'handle.has_value() INTERNAL ASSERT FAILED at "CUDACachingAllocator.cpp":1',
    "another NCCL failure": NCCL.replace("2 'out of memory'", "700 'an illegal memory access'"),
    "cut before the words": PINNING[: PINNING.index("RuntimeError: CUDA")],
    "the words are the script's": PINNING.replace("data = pin(data, device)", "raise RuntimeError(x)")
    .replace("/usr/lib/python3/dist-packages/torch/x.py", "/home/me/data.py"),
    "only in the code": PINNING.replace("RuntimeError: CUDA error: out of memory", "ValueError: no")
    .replace("data = pin(data, device)", "log('CUDA out of memory')"),
}  # fmt: skip


@pytest.mark.parametrize("where", [*REFUSALS, *NO_REFUSALS])
def test_which_words_refuse_memory(where):
    error = RuntimeError((REFUSALS | NO_REFUSALS)[where])
    assert is_out_of_memory(error) == (where in REFUSALS)


def test_resources_count_where_memory_is_short():
    assert is_out_of_memory(RuntimeError(NO_REFUSALS["resources"]), short=True)
    assert not is_out_of_memory(RuntimeError(NO_REFUSALS["a lost device"]), short=True)
    assert is_out_of_memory(RuntimeError(NVML[:40]), short=True)
    assert not is_out_of_memory(RuntimeError(NVML[:40]))


def test_an_exception_of_another_class_that_wraps_one():
    class RayTaskError(Exception):
        pass

    assert is_out_of_memory(RayTaskError(f"ray::train() (pid=7)\n{FRAME}{'RuntimeError: ' + NVML}"))
    assert not is_out_of_memory(RayTaskError(f"ray::train() (pid=7)\n{FRAME}ValueError: {NVML}"))


def test_the_error_number_in_any_language():
    assert is_out_of_memory(OSError(12, "Speicher kann nicht angefordert werden"))


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 has no groups")
def test_a_group_of_exceptions():
    inner = [ValueError("no"), torch.OutOfMemoryError("CUDA out of memory.")]
    assert is_out_of_memory(builtins.ExceptionGroup("two tasks", inner))


def test_what_is_said_of_it():
    def said(text):
        raised = Raised(kind="RuntimeError", text=text, traceback="", out_of_memory=True)
        return over(raised).detail

    assert said(PINNING).endswith(
        "CUDA error: out of memory (in the pin memory thread for device 0)"
    )
    assert said(NCCL) == "RuntimeError: Cuda failure 2 'out of memory'"
    assert headline(NO_REFUSALS["cut before the words"]).startswith("Caught RuntimeError in pin")
    assert [one.kind for one in exceptions_in(REFUSALS["three deep"])] == [
        "MemoryError", "KeyError", "RuntimeError",
    ]  # fmt: skip


TERMINATE = "terminate called after throwing an instance of '{}'\n  what():  {}\n"
STACK = (
    'Fatal Python error: Aborted\n\nThread 0x00007f0 (most recent call first):\n  File "a.py", line '
    "1 in f\n\nExtension modules: numpy._core (total: 1)\nAborted (core dumped)\n"
)
ABORTS = {
    "SYCL": TERMINATE.format("sycl::_V1::exception", SYCL),
    "torch": TERMINATE.format("c10::Error", "CUDA error: out of memory\n" + ADVICE),
    "C++": TERMINATE.format("std::bad_alloc", "std::bad_alloc"),
    "above a stack": TERMINATE.format("sycl::_V1::exception", SYCL) + STACK,
    "a watchdog": f"[rank1]:[E1 ProcessGroupNCCL.cpp:1] {NCCL}\n{STACK}",
}
EXITS = {
    "bitsandbytes": "step 1\n" + REFUSALS["bitsandbytes"] + "\n",
    "a traceback": f"{FRAME}torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB.\n",
    "one that came from it": f"{FRAME}MemoryError\n\nDuring handling of the above exception, "
    f"another exception occurred:\n\n{FRAME}RuntimeError: training failed\n",
    "colours": "\x1b[31mCUDA error: out of memory\x1b[0m\r  3%|###    | 3/100 [00:01<00:20]",
    "two ranks": f"[rank0]: {FRAME}[rank1]: {FRAME}[rank1]: RuntimeError: CUDA error: out of memory\n"
    "[rank0]: RuntimeError: Connection closed by peer\n",
}


def exited(status, words):
    return outcome_of_exit(status, killed_for_memory=False, last_words=words)


def ended(exit_code, words):
    return over(Ended(exit_code=exit_code, num_steps=3, num_fetches=3, num_loaders=1), words)


@pytest.mark.parametrize("where", ABORTS)
def test_an_abort(where):
    outcome, detail = exited(-signal.SIGABRT, ABORTS[where])
    assert outcome == "out_of_memory"
    assert "SIGABRT" in detail


@pytest.mark.parametrize("where", EXITS)
def test_an_exit_without_an_exception(where):
    assert exited(1, EXITS[where])[0] == "out_of_memory"
    assert ended(1, EXITS[where]).outcome == "out_of_memory"


def test_ends_that_are_about_something_else():
    lost = TERMINATE.format("sycl::_V1::exception", NO_REFUSALS["a lost device"])
    outcome, detail = exited(-signal.SIGABRT, lost)
    assert outcome == "crashed"
    assert "DEVICE_LOST" in detail
    assert not last_refusal("CUDA out of memory, skipping the batch\n" + FRAME + "ValueError: no\n")
    assert not last_refusal("the batch ran out of memory slots: raise memory_size\n")
    assert not last_refusal("CUDA error: out of memory\n" + "step\n" * 20)
    assert not last_refusal(PINNING[:-280])
    assert ended(0, EXITS["bitsandbytes"]).outcome == "script_ended"


def test_a_script_that_trains_on_where_nothing_can_be_measured():
    gone = over(Ended(exit_code=0, num_steps=3, num_fetches=3, num_loaders=2, left="b.py:5"))
    assert gone.outcome == "script_ended"  # it is started again, as one that ended
    assert "b.py:5" in gone.detail
