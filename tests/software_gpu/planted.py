"""Scripts with planted truths, and the card that they run on.

Each step's work is a number of equal kernels over a part of a canvas that grows with the batch: a
wave of blocks takes `wave_us`, whatever else a kernel does. What the host does is a launch each
`launch_us` or a sleep, so that it is planted too.
"""

from dataclasses import dataclass

SMS, RESIDENT, ELEMENTS = 100, 16, 1024
"""Blocks of torch's element-wise kernels that an SM holds, and what one of them covers."""
THREAD_BYTES = 48


def card(wave_us=100.0, launch_us=0.0, name="planted", **more):
    """A card on which a wave of element-wise blocks takes so long, and nothing else takes time."""
    wave_bytes = RESIDENT * 128 * THREAD_BYTES
    lines = {
        "name": name,
        "memory_mib": 4096,
        "sms": SMS,
        "sm_mhz": 1000,
        "kernel_us": 0,
        "copy_us": 0,
        "pinned_gb_s": 1000,
        "bandwidth_gb_s": SMS * wave_bytes / (wave_us * 1e-6) / 1e9,
        "fp32_tflops": 1e6,
        "half_tflops": 1e6,
        "half_efficiency_gflop": 0,
        "launch_us": launch_us,
        "queue": 128,
        **more,
    }
    return "[card]\n" + "".join(f"{key} = {value}\n" for key, value in lines.items())


TRAIN = """optimizer.zero_grad()
    work()
    loss = model(rows).mean()
    loss.backward()
    optimizer.step()"""
ACCUMULATED = """work()
    loss = model(rows).mean() / 4
    loss.backward()
    if number % 4 == 3:
        optimizer.step()
        optimizer.zero_grad()"""
SCALED = """optimizer.zero_grad()
    work()
    with torch.autocast("cuda", torch.float16):
        loss = model(rows).mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()"""
CHECKPOINTED = """optimizer.zero_grad()
    loss = checkpoint(lambda x: (work(), model(x).mean())[1], rows, use_reentrant=False)
    loss.backward()
    optimizer.step()"""
COMPILED = """held = torch.compile(model) if held is None else held
    optimizer.zero_grad()
    work()
    loss = held(rows).mean()
    loss.backward()
    optimizer.step()"""
REPLAYED = """if held is None or len(held) != len(rows):
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            train(rows)
        torch.cuda.current_stream().wait_stream(side)
        held, graph = rows.clone(), torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            train(held)
    held.copy_(rows)
    graph.replay()
    optimizer.step()"""

SCRIPT = """
import time
import torch
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    row = torch.zeros({row})

    def __len__(self):
        return 1_000_000

    def __getitems__(self, numbers):
        time.sleep({fetch_ms} * len(numbers) / 1e3)
        return self.row.expand(len(numbers), -1)


loader = DataLoader(Rows(), batch_size={native}, collate_fn=torch.Tensor.contiguous{loader})
model = torch.nn.Linear({row}, 1).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda")
canvas = torch.zeros({canvas}, device="cuda")
held = None


def work():
    for _ in range({kernels}):
        part.add_(1)


def train(rows):
    optimizer.zero_grad(set_to_none=False)
    work()
    model(rows).mean().backward()


for number, rows in enumerate(loader):
    time.sleep({host_ms} / 1e3)
    rows = rows.cuda(non_blocking={asynchronous})
    part = canvas[: len(rows) * {blocks} * 1024]
    {train}
    {last}
"""


@dataclass(frozen=True)
class Planted:
    """A script, its card, and what must be found out about them.

    Attributes:
        blocks: of each kernel for each sample.
        train: what a step does; a loss is there for `last`.
        micro_batches: batches of the loader for each step of the optimizer.
    """

    limit: str
    larger_batch: str
    sizes: tuple[int, ...] = (8, 32, 128)
    native: int = 32
    blocks: int = 100
    kernels: int = 20
    host_ms: float = 0.0
    fetch_ms: float = 0.0
    row: int = 64
    pinned: bool = True
    train: str = TRAIN
    micro_batches: int = 1
    last: str = "pass"
    loader: str = ""
    wave_us: float = 100.0
    launch_us: float = 0.0
    pageable_gb_s: float = 1.0
    budget: str = "20s"

    @property
    def found(self):
        """What limits the step, and whether a larger batch helps."""
        return self.limit, self.larger_batch

    def card(self):
        """Of the machine."""
        return card(self.wave_us, self.launch_us, pageable_gb_s=self.pageable_gb_s)

    def script(self):
        """As a user wrote it."""
        return SCRIPT.format(
            row=self.row,
            fetch_ms=self.fetch_ms,
            native=self.native,
            loader=(", pin_memory=True" if self.pinned else "") + self.loader,
            canvas=max(*self.sizes, 2 * self.native) * self.blocks * ELEMENTS,
            host_ms=self.host_ms,
            asynchronous=self.pinned,
            blocks=self.blocks,
            kernels=self.kernels,
            train=self.train,
            last=self.last,
        )
