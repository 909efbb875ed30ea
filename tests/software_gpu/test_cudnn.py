"""Convolutions and recurrent layers through torch's own calls of cuDNN."""

import json

import pytest

from .bare_loop import bare, nearest, shares

pytestmark = pytest.mark.gpu_build

CARD = """
sms = 100
kernel_us = 0
bandwidth_gb_s = 1e6
fp64_tflops = 5
fp32_tflops = 10
tf32_tflops = 80
half_tflops = 160
half_efficiency_gflop = 0
"""
NETWORKS = """
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, width, to, stride):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(width, to, 3, stride, 1, bias=False), nn.BatchNorm2d(to), nn.ReLU(),
            nn.Conv2d(to, to, 3, 1, 1, bias=False), nn.BatchNorm2d(to),
        )
        self.short = nn.Conv2d(width, to, 1, stride, bias=False) if stride > 1 else nn.Identity()

    def forward(self, x):
        return torch.relu(self.body(x) + self.short(x))


def resnet18():
    blocks, width = [], 64
    for to in (64, 128, 256, 512):
        blocks += [Block(width, to, 1 if to == 64 else 2), Block(to, to, 1)]
        width = to
    first = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
    last = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10)]
    return nn.Sequential(*first, nn.MaxPool2d(3, 2, 1), *blocks, *last)


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.ModuleList(nn.Conv2d(a, b, 3, padding=1) for a, b in [(3, 16), (16, 32)])
        self.deep = nn.Conv2d(32, 64, 3, padding=2, dilation=2)
        self.up = nn.ModuleList(nn.ConvTranspose2d(a, b, 2, 2) for a, b in [(64, 32), (32, 16)])
        self.back = nn.ModuleList(nn.Conv2d(a, b, 3, padding=1) for a, b in [(64, 32), (32, 16)])
        self.head = nn.Conv2d(16, 1, 1)

    def forward(self, x):
        kept = []
        for down in self.down:
            x = torch.relu(down(x))
            kept.append(x)
            x = nn.functional.max_pool2d(x, 2)
        x = torch.relu(self.deep(x))
        for up, back in zip(self.up, self.back):
            x = torch.relu(back(torch.cat([kept.pop(), up(x)], 1)))
        return self.head(x).flatten(1)


class Recurrent(nn.Module):
    def __init__(self, kind, packed=False, **options):
        super().__init__()
        self.layer = kind(16, 64, 2, dropout=0.1, **options)
        self.head = nn.LazyLinear(10)
        self.packed = packed

    def forward(self, x):
        if self.packed:
            lengths = torch.linspace(x.shape[0], 1, x.shape[1]).long()
            x = nn.utils.rnn.pack_padded_sequence(x, lengths)
        out = self.layer(x)[0]
        return self.head(out.data if self.packed else out)


MODELS = {
    "resnet18": (resnet18, (4, 3, 64, 64)),
    "unet": (UNet, (4, 3, 32, 32)),
    "conv3d": (lambda: nn.Sequential(nn.Conv3d(2, 4, 3, groups=2), nn.Flatten()), (4, 2, 5, 5, 5)),
    "lstm": (lambda: Recurrent(nn.LSTM, batch_first=True), (8, 20, 16)),
    "lstm, packed": (lambda: Recurrent(nn.LSTM, packed=True), (20, 8, 16)),
    "lstm, projected": (lambda: Recurrent(nn.LSTM, proj_size=32, bias=False), (20, 8, 16)),
    "gru": (lambda: Recurrent(nn.GRU, bidirectional=True), (20, 8, 16)),
    "plain": (lambda: Recurrent(nn.RNN), (20, 8, 16)),
}
"""
TRAIN = (
    NETWORKS
    + """
for benchmark in (False, True):
    torch.backends.cudnn.benchmark = benchmark
    for name, (build, shape) in MODELS.items():
        for dtype in (None, torch.bfloat16, torch.float16):
            model, x = build().cuda(), torch.randn(shape).cuda()
            if len(shape) == 4 and dtype is not None:
                model = model.to(memory_format=torch.channels_last)
            model(x)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
            for _ in range(3):
                optimizer.zero_grad()
                with torch.autocast("cuda", dtype, enabled=dtype is not None):
                    loss = model(x).square().mean()
                loss.backward()
                optimizer.step()
            assert all(p.grad is not None and p.grad.shape == p.shape for p in model.parameters())
            torch.cuda.synchronize()
            print(name)
"""
)


def test_networks_train(machine):
    done = machine().script(TRAIN).splitlines()
    assert len(done) == 2 * 3 * 8


COSTS = """
import json, sys
import torch
from torch import nn
said = {}
torch.backends.cudnn.benchmark = False


def cost(name, work):
    "Milliseconds of the card, and bytes that are taken while it runs."
    work()
    torch.cuda.synchronize()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_stats()["requested_bytes.all.current"]
    torch.cuda._sleep(10_000_000)  # all is queued before the first begins
    start.record()
    kept = work()
    end.record()
    end.synchronize()
    took = torch.cuda.memory_stats()["requested_bytes.all.peak"] - before
    said[name] = [start.elapsed_time(end), took]


x = torch.empty(16, 64, 56, 56, device="cuda")
w = torch.empty(128, 64, 3, 3, device="cuda")
half, last = x.half(), dict(memory_format=torch.channels_last)
with torch.no_grad():
    cost("tf32", lambda: nn.functional.conv2d(x, w, padding=1))
    cost("half", lambda: nn.functional.conv2d(half, w.half(), padding=1))
    half, kernels = half.contiguous(**last), w.half().contiguous(**last)
    cost("channels last", lambda: nn.functional.conv2d(half, kernels, padding=1))
    cost("double", lambda: nn.functional.conv2d(x.double(), w.double(), stride=2))
    torch.backends.cudnn.allow_tf32 = False
    cost("fp32", lambda: nn.functional.conv2d(x, w, padding=1))
    torch.backends.cudnn.benchmark = True
    cost("fp32, benchmark", lambda: nn.functional.conv2d(x[:8], w, padding=1))
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.allow_tf32 = True
y = torch.empty(16, 128, 56, 56, device="cuda")
for name, mask in (("data", [True, False, False]), ("filter", [False, True, False])):
    cost(name, lambda: torch.ops.aten.convolution_backward(
        y, x, w, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1, mask))
for kind in (nn.LSTM, nn.GRU, nn.RNN):
    layer = kind(32, 256, 2).cuda()
    tokens = torch.empty(50, 16, 32, device="cuda")
    cost(kind.__name__, lambda: layer(tokens)[0])
print(json.dumps(said))
"""


def test_times_and_workspaces_are_the_stated_ones(machine):
    said = json.loads(machine(CARD).script(COSTS))
    flops = 2 * 16 * 128 * 56 * 56 * 64 * 9
    x, w, y = 16 * 64 * 56 * 56, 128 * 64 * 9, 16 * 128 * 56 * 56
    doubled = 8 * (x + w + 16 * 128 * 27 * 27)
    expected = {
        "tf32": (flops / 80e9, 4 * y),
        "half": (flops / 160e9, 2 * w + 2 * y + 2 * (x + w + y)),
        "channels last": (flops / 160e9, 2 * y),
        "double": (flops * (27 / 56) ** 2 / 5e9, doubled),
        "fp32": (flops / 10e9, 4 * y),
        "fp32, benchmark": (flops / 2 / 2.25 / 10e9, 2 * y + 4 * 2 * (x + y)),
        "data": (flops / 80e9, 4 * x),
        "filter": (flops / 80e9, 4 * w + 4 * w),
    }
    for name, (ms, taken) in expected.items():
        assert said[name][0] == pytest.approx(ms, rel=0.02), name
        assert said[name][1] == pytest.approx(taken, rel=0.002), name
    units, tokens, state = 256, 50 * 16, 2 * 16 * 256
    for name, gates, kept, states in (("LSTM", 4, 6, 2), ("GRU", 3, 5, 1), ("RNN", 1, 2, 1)):
        reserve, workspace = 2 * tokens * units * kept, tokens * units * gates
        out = tokens * units + states * state + states * state
        assert said[name][1] == pytest.approx(4 * (reserve + workspace + out), rel=0.03), name
        flops = 2 * tokens * gates * units * (32 + units + units + units)
        assert said[name][0] == pytest.approx(flops / 80e9, rel=0.05, abs=0.002), name


SCRIPT = (
    NETWORKS
    + """
from torch.utils.data import DataLoader, TensorDataset

torch.backends.cudnn.allow_tf32 = False
model = resnet18().cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
rows = torch.zeros(1, 3, 64, 64).expand(1_000_000, -1, -1, -1)
data = TensorDataset(rows, torch.zeros(1, dtype=torch.long).expand(1_000_000))
for x, y in DataLoader(data, batch_size=16, pin_memory=True):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x.cuda(non_blocking=True)), y.cuda())
    loss.backward()
    optimizer.step()
"""
)
LARGER = "kernel_us = 100\nmemory_mib = 2048\nbandwidth_gb_s = 500\nfp32_tflops = 4\n"


@pytest.mark.alone  # its step is compared with a bare loop of another moment
def test_a_run_of_a_convolutional_network(machine, tmp_path):
    gpu = machine(LARGER)
    (tmp_path / "train.py").write_text(SCRIPT)
    before = bare(gpu, 16)
    record = gpu.advise("--sizes", "16", "--budget", "40s", "train.py")
    moments = before, bare(gpu, 16)
    timed = [trial for trial in record.trials if trial.step_s is not None]
    assert any(trial.profile is not None for trial in timed)
    for trial in timed:
        truth = nearest(moments, trial.step_s.median)
        assert trial.step_s.median == pytest.approx(truth["step_s"], rel=0.03)
        if trial.profile is not None and trial.profile.busy_pct is not None:
            for share, done in shares(moments, trial):
                assert share == pytest.approx(done, abs=2)
