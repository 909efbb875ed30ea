"""The vocabulary of Kineto's Chrome traces, torch 1.8 to today, CUDA, ROCm and CPU.

Category names changed with torch 1.12 (`Operator`, `Runtime`, `Kernel`, `Memcpy`, `Memset` became
`cpu_op`, `cuda_runtime`/`cuda_driver`, `kernel`, `gpu_memcpy`, `gpu_memset`); ROCm uses the newer
ones. All rules that look at a name stand here and nowhere else.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Final

EVENT_KEYS: Final = "ph|cat|name|pid|tid|ts|dur|args|id|bp|s|tts|tdur|cname|sf|stack|scope|id2"
"""Keys of an event, as alternatives of a pattern."""

KERNEL: Final = 0
MEMCPY: Final = 1
MEMSET: Final = 2

GPU_KINDS: Final = {
    "kernel": KERNEL,
    "Kernel": KERNEL,
    "gpu_memcpy": MEMCPY,
    "Memcpy": MEMCPY,
    "gpu_memset": MEMSET,
    "Memset": MEMSET,
}
"""Category of an activity on the device -> its kind."""

LAUNCH_CATEGORIES: Final = frozenset(
    {"cuda_runtime", "cuda_driver", "xpu_runtime", "xpu_driver", "Runtime", "Driver"}
)
"""Calls of the runtime or driver API on the host; `hip*` names stand in `cuda_runtime`, those of
Intel's GPUs in `xpu_runtime`."""

_READ_DEVICES = re.compile(r"(?:cpu|cuda|xpu|gpu)_")
_DEVICE_ARGS = re.compile(
    rb'"[^":]*(?:stream|queue|task type|engine|device)[^":]*"\s*:', re.IGNORECASE
)
_DEVICE_CATEGORY = re.compile(r"[a-z0-9]+_(?:ccp_)?(?:runtime|driver|op|events|insight|memcpy)$")

OPERATOR_CATEGORIES: Final = frozenset({"cpu_op", "Operator"})
ANNOTATION_CATEGORIES: Final = frozenset({"user_annotation"})
PYTHON_CATEGORY: Final = "python_function"
"""Frames of Python, recorded `with_stack=True`."""
BACKWARD_LINKS: Final = frozenset({"fwdbwd", "forward_backward"})
"""Flows from a forward operator (`ph: "s"`) to its part of the backward pass (`"f"`)."""

MEMORY_EVENT: Final = "[memory]"
"""Name of the instant events of allocations, recorded `profile_memory=True`. Their category is
`cpu_instant_event`; torch 1.8 and 1.9 give none."""
CPU_TYPE: Final = 0
GPU_TYPE: Final = 1
"""Numbers of torch's device types; CUDA's stands for ROCm as well."""

DROPPED_CATEGORIES: Final = frozenset(
    {
        "gpu_user_annotation", "cuda_sync", "cuda_profiler_range", "overhead",
        "Trace", "cpu_instant_event", "user_defined", "hardware_counters", "collective_comm",
        "fwdbwd", "forward_backward", "ac2g", "async_cpu_to_gpu", "async", "launch", "async_gpu",
    }
)  # fmt: skip
"""Kineto's other categories, which no metric needs."""

STEP_PREFIX: Final = "ProfilerStep#"
"""Name of a profiler step on the host. `gpu_user_annotation` repeats it on the device; those
copies are no steps and are skipped by their category."""

COPY_DIRECTIONS: Final = ("HtoD", "DtoH", "DtoD", "PtoP", "HtoH")

_INPUT = re.compile(r"enumerate\((?:DataLoader|DataPipe)\)#")
_OLD_ANNOTATION = re.compile(r"ProfilerStep#|enumerate\(")
_COMMUNICATION = re.compile(
    r"nccl|rccl|msccl|nvshmem|symm_mem|multimem_all_(?:reduce|gather)|cross_device_reduce|quickreduce"
    r"|all_?reduce.*(?:one|two)_?shot|(?:one|two)_?shot_?all_?reduce",  # torch's symmetric memory
    re.IGNORECASE,
)
_TRAINS = re.compile(
    r"[Bb]ackward|autograd::engine|\bOptimizer[.#]|(?:^|_)bwd(?:_|\b)|Bwd|[dw]grad|multi_tensor_apply"
)
_WORK = re.compile(r"Launch|Memcpy|MemCpy|Memset|MemSet|Enqueue|Append|Alloc|Free|EventRecord")
_SYNCHRONIZE = re.compile(r"Synchronize$")
_WAITS = re.compile(r"(?:Device|Ctx)Synchronize$")
_NO_DEVICE_WORK = re.compile(r"HostFunc")
_GRAPH = re.compile(r"GraphLaunch")
_LONG_COPY = re.compile(r"Copy(Host|Device|Peer)To(Host|Device|Peer)")

_TENSOR_CORES = re.compile(
    r"[hsi](?:884|1688|8816|16816|161616)"  # shapes of matrix instructions in cuBLAS and CUTLASS
    r"|hmma|imma|wgmma|gmma|tensor(?:16|8)x8x\d|tensorop|MmaTensorOp|nvjet|warpgroupsize"
    r"|xmma_gemm_(?:bf16|f16|e4m3|e5m2|f8|i8|tf32)|xmma_[a-z_]*tf32"
    r"|flash_(?:fwd|bwd)|FlashAttn(?:Fwd|Bwd)Sm|fmha"
)
_NO_TENSOR_CORES = re.compile(
    r"simt|ReduceSplitK|preprocess|postprocess|prepare_varlen"  # helpers beside the products
    r"|sgemm|scudnn|gemmSN|gemmk1|gemv|convolve_sgemm",  # products in single precision
    re.IGNORECASE,
)
_UNKNOWN_TENSOR_CORES = re.compile(
    r"^(?:triton|fused|Cijk_)|_kernel_?\d*$|cutlass|xmma|gemm|conv(?:olve)?[_0-9]", re.IGNORECASE
)
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_PLACE = re.compile(r"(?P<file>[^()]+)\((?P<line>\d+)\): (?P<function>.+)")
_MODULE = "nn.Module: "
_OF_NO_INTEREST = re.compile(
    r"torch/nn/modules/module\.py\(\d+\): (?:_wrapped)?_call_impl$"
    r"|(?:^|/)batchadvisor/(?:probes|callback|records|session)/[\w/]+\.py\(\d+\): "
)
_INSTANCE = re.compile(r"_\d+$")
_INSTALLED = re.compile(r".*/(?:site-packages|dist-packages|python\d[\d.]*)/")
_NOT_THE_MODEL = frozenset({"torch", "batchadvisor", *sys.stdlib_module_names})
_NATIVE = re.compile(r"at::native|nccl")
_OWN_FOLDER = f"{Path(__file__).parents[2]}/"


def is_step(name: str) -> bool:
    """Whether the host annotation is a step of `torch.profiler`'s schedule."""
    return name.startswith(STEP_PREFIX)


def is_input_wait(name: str) -> bool:
    """Whether the range is the script waiting for its DataLoader's next batch."""
    return _INPUT.match(name) is not None


def is_annotation(name: str) -> bool:
    """Whether an event of the old category `Operator` is an annotation and no operator."""
    return _OLD_ANNOTATION.match(name) is not None


def is_communication(name: str) -> bool:
    """Whether a kernel belongs to a collective.

    Of NCCL, RCCL or MSCCL, of NVSHMEM or torch's symmetric memory, or one of the all-reduces of
    vLLM, SGLang and TensorRT-LLM.
    """
    return _COMMUNICATION.search(name) is not None


def is_synchronize(name: str) -> bool:
    """Whether an API call only waits for the device (`cudaStreamSynchronize`, ...)."""
    return _SYNCHRONIZE.search(name) is not None


def waits_for_device(name: str) -> bool:
    """Whether an API call comes back only when all that was launched before has ended."""
    return _WAITS.search(name) is not None


def is_launch(name: str) -> bool:
    """Whether an API call launches kernels or graphs of them."""
    return "Launch" in name


def launches_work(name: str) -> bool:
    """Whether the profiler has a record of what the call launches: kernels, no functions."""
    return is_launch(name) and _NO_DEVICE_WORK.search(name) is None


def is_graph(name: str) -> bool:
    """Whether an API call launches a graph."""
    return _GRAPH.search(name) is not None


def is_work(name: str) -> bool:
    """Whether an API call gives the device something to do, or makes room for it."""
    return _WORK.search(name) is not None


def is_training(name: str) -> bool:
    """Whether an event belongs to a backward pass or to an optimizer's step."""
    return _TRAINS.search(name) is not None


def is_unread_device(category: str) -> bool:
    """Whether the category is that of an accelerator whose events are not read here.

    Kineto's plugins name theirs `hpu_op`, `mtia_ccp_events`, `mlu_runtime`, `privateuse1_driver`.
    """
    return _DEVICE_CATEGORY.match(category) is not None and not _READ_DEVICES.match(category)


def has_device_args(args: bytes) -> bool:
    """Whether an event's arguments say that it ran on a device: on a stream or queue of one."""
    return _DEVICE_ARGS.search(args) is not None


def uses_tensor_cores(name: str) -> bool | None:
    """Whether a kernel's name proves the use of tensor cores.

    `None`: the name cannot tell (Triton, ROCm's Tensile, unnamed generated kernels).
    """
    if _NO_TENSOR_CORES.search(name):
        return False
    if _TENSOR_CORES.search(name):
        return True
    return None if _UNKNOWN_TENSOR_CORES.search(name) and not _NATIVE.search(name) else False


def frame_name(name: str) -> str:
    """The name of a Python frame without the address of its object, which no other one shares.

    Our own files are called `batchadvisor/...`, whatever the folder is called that they lie in.
    """
    own = name.startswith(_OWN_FOLDER)
    name = f"batchadvisor/{name[len(_OWN_FOLDER) :]}" if own else name
    return _ADDRESS.sub("", name) if " at 0x" in name else name


def place_of(frame: str) -> tuple[str, int, str] | None:
    """File, line and function of a Python frame; `None` of builtins and modules.

    The line is where the function begins: the profiler's tracer sees a frame when it is entered.
    Of frames that were open when it started, it is the line that ran.
    """
    found = _PLACE.fullmatch(frame)
    return None if found is None else (found["file"], int(found["line"]), found["function"])


def is_of_the_model(frame: str) -> bool:
    """Whether a Python frame is neither torch's, nor ours, nor of Python's own library.

    Libraries of models count: the line in transformers says more than the call of it in the script.
    """
    place = place_of(frame)
    if place is None or place[0].startswith("<frozen"):
        return False
    file = _INSTALLED.sub("", place[0].replace("\\", "/"))
    return file.partition("/")[0].removesuffix(".py") not in _NOT_THE_MODEL


def is_of_no_interest(frame: str) -> bool:
    """Whether a Python frame is one of ours, or of torch's between a module and its `forward`."""
    return _OF_NO_INTEREST.search(frame) is not None


def module_of(frame: str) -> str:
    """`Linear` where a Python frame calls a module, `nn.Module: Linear_3`; empty if not."""
    return _INSTANCE.sub("", frame[len(_MODULE) :]) if frame.startswith(_MODULE) else ""


def copy_direction(name: str) -> str:
    """`HtoD`, `DtoH`, `DtoD`, `PtoP` or `HtoH`; `other` when the name does not say."""
    for direction in COPY_DIRECTIONS:
        if direction in name:
            return direction
    match = _LONG_COPY.search(name)
    return f"{match.group(1)[0]}to{match.group(2)[0]}" if match else "other"
