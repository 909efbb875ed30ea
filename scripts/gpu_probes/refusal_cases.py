"""Ways to have memory refused, each to be tried in a process of its own."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

MIB = 2**20
CACHED_BLOCKS = (128 * MIB, 128 * MIB, *[MIB // 2] * 8)
"""What torch's allocator keeps for itself while the driver has nothing left."""


class Heard(Exception):  # noqa: N818  it carries another process's words
    """What a process of its own said; its class does not travel."""


@dataclass(frozen=True)
class Case:
    """One provocation.

    Attributes:
        provoke: raises, as a training would see it; gets the device's type.
        refusal: whether memory is what is refused; `None` where nobody knows beforehand.
        fills: it needs the whole device.
        on_cpu: it means something without a GPU.
        environment: of its process.
    """

    provoke: Callable[[str], Any]
    refusal: bool | None = True
    fills: bool = False
    on_cpu: bool = False
    environment: dict[str, str] = field(default_factory=dict)


def full() -> list[Any]:
    """Takes the device's memory down to the last blocks that torch's allocator can get."""
    import torch

    held = []
    size = 16 * 2**30
    while size >= 512:
        try:
            held.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
        except torch.OutOfMemoryError:
            size //= 2
    return held


def _after(prepare: Callable[[], Any], use: Callable[[Any], Any]) -> Callable[[str], Any]:
    """Uses a library for the first time when the driver has no memory left.

    torch's allocator has some in its cache, so that it is the library that is refused.
    """

    def provoke(_: str) -> Any:
        import torch

        made = prepare()
        cached = [torch.empty(num, dtype=torch.uint8, device="cuda") for num in CACHED_BLOCKS]
        torch.cuda.synchronize()
        held = full()
        cached.clear()
        done = use(made)
        torch.cuda.synchronize()
        return type(done), len(held)

    return provoke


def _random(*shape: int) -> Callable[[], Any]:
    def prepare() -> Any:
        import torch

        return torch.randn(*shape, device="cuda")

    return prepare


# torch's own allocator -------------------------------------------------------------------------


def allocator(device: str) -> Any:
    import torch

    if device == "cpu":
        return torch.empty(2**60, dtype=torch.uint8)
    total = torch.cuda.get_device_properties(0).total_memory
    return torch.empty(2 * total, dtype=torch.uint8, device="cuda")


def limited(_: str) -> Any:
    import torch

    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(256 * MIB / total)
    return torch.empty(512 * MIB, dtype=torch.uint8, device="cuda")


def pinned(_: str) -> Any:
    import torch

    return torch.empty(2**44, dtype=torch.uint8, pin_memory=True)


def filled(_: str) -> Any:
    import torch

    held = full()
    return torch.empty(64 * MIB, dtype=torch.uint8, device="cuda"), held


def graph(_: str) -> Any:
    import torch

    x = torch.zeros(1, device="cuda")
    held = full()
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        y = torch.empty(256 * MIB, dtype=torch.uint8, device="cuda")
    return x, y, held


def new_process(_: str) -> Any:
    """A neighbour has all of it; what does a process that only starts hear?"""
    import subprocess
    import sys

    held = full()
    code = "import torch; torch.zeros(1, device='cuda')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return len(held)
    lines = [line for line in done.stderr.splitlines() if "Error" in line]
    raise Heard(lines[-1].partition(": ")[2] if lines else done.stderr[-500:])


# libraries -------------------------------------------------------------------------------------


def _function(name: str) -> Callable[[Any], Any]:
    def use(x: Any) -> Any:
        import torch

        function: Any = torch
        for part in name.split("."):
            function = getattr(function, part)
        return function(x)

    return use


def _convolve(x: Any) -> Any:
    import torch

    images, weights = x
    return torch.nn.functional.conv2d(images, weights, padding=1)


def _images() -> Any:
    import torch

    return torch.randn(8, 16, 32, 32, device="cuda"), torch.randn(16, 16, 3, 3, device="cuda")


def _sparse() -> Any:
    import torch

    return torch.eye(64).to_sparse_csr().cuda(), torch.randn(64, 64, device="cuda")


def _collective(x: Any) -> Any:
    import torch.distributed as dist

    with tempfile.NamedTemporaryFile() as file:
        dist.init_process_group("nccl", init_method=f"file://{file.name}x", rank=0, world_size=1)
        try:
            dist.all_reduce(x)
            x.cpu()
        finally:
            dist.destroy_process_group()
    return x


def triton_kernel(_: str) -> Any:
    """Loading a kernel's module takes memory of the driver's."""
    import torch
    from refusal_triton import double

    x = torch.zeros(1024, device="cuda")
    torch.cuda.synchronize()
    held = full()
    double[(1,)](x, BLOCK=1024)
    torch.cuda.synchronize()
    return len(held)


def _compiled(x: Any) -> Any:
    import torch

    return torch.compile(lambda value: (value.sin() + 1).cos())(x)


# batches that are too large --------------------------------------------------------------------


def large_attention(_: str) -> Any:
    import torch

    q = torch.randn(70_000, 1, 8, 64, device="cuda", dtype=torch.float16)
    done = torch.nn.functional.scaled_dot_product_attention(q, q, q)
    torch.cuda.synchronize()
    return type(done)


def large_batch_norm(_: str) -> Any:
    import torch

    x = torch.randn(1_000_000, 8, 1, 1, device="cuda", requires_grad=True)
    norm = torch.nn.BatchNorm2d(8).cuda()
    norm(x).mean().backward()
    torch.cuda.synchronize()
    return "ran"


def large_convolution(_: str) -> Any:
    import torch

    x = torch.empty(300_000, 4, 32, 32, device="cuda", dtype=torch.float16)
    layer = torch.nn.Conv2d(4, 8, 3, padding=1).cuda().half()
    layer(x).mean().backward()
    torch.cuda.synchronize()
    return "ran"


def large_upsampling(_: str) -> Any:
    import torch

    x = torch.empty(9000, 16, 64, 64, device="cuda", dtype=torch.float16)
    done = torch.nn.functional.interpolate(x, scale_factor=2, mode="nearest")
    torch.cuda.synchronize()
    return type(done)


def large_recurrence(_: str) -> Any:
    import torch

    layer = torch.nn.LSTM(64, 64, batch_first=True).cuda()
    done, _state = layer(torch.empty(200_000, 16, 64, device="cuda"))
    done.mean().backward()
    torch.cuda.synchronize()
    return "ran"


# what is no refusal ----------------------------------------------------------------------------


def shapes(device: str) -> Any:
    import torch

    return torch.ones(3, 4, device=device) @ torch.ones(3, 4, device=device)


def wrong_label(_: str) -> Any:
    import torch

    labels = torch.full((4,), 99, device="cuda")
    loss = torch.nn.functional.cross_entropy(torch.randn(4, 10, device="cuda"), labels)
    return loss.item()


def little_shared_memory(_: str) -> Any:
    """A worker of a loader hands over more than /dev/shm holds."""
    import torch
    from torch.utils.data import DataLoader

    stats = os.statvfs("/dev/shm")
    free = stats.f_bavail * stats.f_frsize
    if free > 2 * 2**30:
        return f"left out: /dev/shm has {free / 2**30:.0f} GiB free"
    rows = int(1.5 * free / MIB)
    data: Any = [torch.empty(MIB, dtype=torch.uint8)] * rows
    return [len(batch) for batch in DataLoader(data, batch_size=rows, num_workers=1)]


_EXPANDABLE = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
CASES: dict[str, Case] = {
    "allocator": Case(allocator, on_cpu=True),
    "allocator under a limit": Case(limited),
    "allocator with expandable segments": Case(allocator, environment=_EXPANDABLE),
    "pinned host memory": Case(pinned),
    "large attention": Case(large_attention, None),
    "large batch norm": Case(large_batch_norm, None),
    "large convolution": Case(large_convolution, None),
    "large upsampling": Case(large_upsampling, None),
    "large recurrence": Case(large_recurrence, None),
    "wrong shapes": Case(shapes, refusal=False, on_cpu=True),
    "wrong label": Case(wrong_label, refusal=False),
    "little shared memory": Case(little_shared_memory, None, on_cpu=True),
    "full device": Case(filled, fills=True),
    "full device, expandable segments": Case(filled, fills=True, environment=_EXPANDABLE),
    "full device, cublas": Case(_after(_random(64, 64), lambda x: x @ x), fills=True),
    "full device, cudnn": Case(_after(_images, _convolve), fills=True),
    "full device, cufft": Case(_after(_random(512, 512), _function("fft.fft2")), fills=True),
    "full device, cusolver": Case(_after(_random(64, 64), _function("linalg.inv")), fills=True),
    "full device, cusparse": Case(_after(_sparse, lambda pair: pair[0] @ pair[1]), fills=True),
    "full device, nccl": Case(_after(_random(1024), _collective), fills=True),
    "full device, triton": Case(triton_kernel, fills=True),
    "full device, torch.compile": Case(_after(_random(1024), _compiled), fills=True),
    "full device, graph capture": Case(graph, fills=True),
    "full device, another process": Case(new_process, fills=True),
}
