"""Whole runs on planted truths: what is said of a script is what it does by itself."""

from statistics import fmean

import pytest
from batchadvisor.advisor.advise import advise

from .bare_loop import bare, nearest, shares
from .planted import ACCUMULATED, CHECKPOINTED, COMPILED, REPLAYED, SCALED, Planted

pytestmark = [pytest.mark.gpu_build, pytest.mark.alone]


def saturated(**more):
    """A script that fills the card from a few samples on."""
    return Planted(
        "saturated", "does not help", sizes=(2, 8, 32), native=8, blocks=1600, kernels=60,
        wave_us=25.0, **more,
    )  # fmt: skip


PLANTED = {
    "saturated from few samples on": saturated(),
    "reads a number every tenth step": saturated(last="number % 10 == 9 and loss.item()"),
    "CUDA graphs": saturated(train=REPLAYED),
    "compiled": saturated(train=COMPILED),
    "half precision with a scaler": Planted(  # which reads a number in every step
        "saturated", "does not help", sizes=(16, 32, 64), native=16, blocks=1600, kernels=60,
        wave_us=60.0, launch_us=300.0, budget="30s", train=SCALED,
    ),
    "four batches for each step": saturated(train=ACCUMULATED, micro_batches=4),
    "activations made twice": saturated(train=CHECKPOINTED),
    "small kernels": Planted(
        "small kernels", "helps", sizes=(8, 16, 32), native=16, blocks=1, kernels=100
    ),
    "workers that sleep": Planted(
        "input", "does not help", sizes=(8, 16), native=16, fetch_ms=16.0,
        loader=", num_workers=2",
    ),
    "launch-bound up to a knee": Planted(
        "saturated", "does not help", sizes=(32, 512, 1024), blocks=25, wave_us=300.0,
        launch_us=1000.0, budget="30s",  # whole waves from 64 samples on: none is half empty at 512
    ),
    "a loader that sleeps": Planted(
        "input", "does not help", sizes=(8, 16, 32), native=16, fetch_ms=4.0
    ),
    "copies from pageable memory": Planted(
        "copies", "does not help", sizes=(16, 32, 64), pinned=False, row=1 << 13, blocks=10,
        pageable_gb_s=0.02,
    ),
    "reads a number every step": Planted(
        "synchronisation", "helps", sizes=(16, 32), kernels=0, launch_us=1500.0, blocks=1500,
        wave_us=200.0,
        last="[part.add_(1) for _ in range(4)]; loss.item()",
    ),
}  # fmt: skip
"""Hosts lose milliseconds to other processes: what they do takes far more."""


@pytest.mark.parametrize("name", PLANTED)
def test_a_run_says_what_the_script_does(machine, tmp_path, name):
    planted = PLANTED[name]
    gpu = machine(planted.card())
    (tmp_path / "train.py").write_text(planted.script())
    sizes = ",".join(map(str, planted.sizes))
    before = {size: bare(gpu, size) for size in planted.sizes}
    record = gpu.advise("--sizes", sizes, "--budget", planted.budget, "train.py")
    assert record.device.name == "software GPU planted"
    advice = advise(record)
    timed = [trial for trial in record.trials if trial.step_s is not None]
    after = {size: bare(gpu, size) for size in {trial.batch_size for trial in timed}}
    moments = {size: (before.get(size, last), last) for size, last in after.items()}
    checks = []
    for trial in timed:
        size = trial.batch_size
        truth = nearest(moments[size], trial.step_s.median)
        checks.append((size, "step", trial.step_s.median / truth["step_s"], 1, 0.03))
        samples = size * planted.micro_batches
        rate = trial.samples_per_s.median * truth["step_s"] / samples
        checks.append((size, "samples", rate, 1, 0.03))
        if trial.profile is not None and trial.profile.busy_pct is not None:
            busy, filled = shares(moments[size], trial)
            checks.append((size, "busy", *busy, 2))
            checks.append((size, "SM", *filled, 2))
        if trial.samples_per_joule is not None:
            joules = trial.samples_per_joule * truth["joules"] / samples
            checks.append((size, "energy", joules, 1, 0.05))
    wrong = [check for check in checks if abs(check[2] - check[3]) > check[4]]
    assert not wrong, (wrong, checks)
    assert {what for _, what, *_ in checks} >= {"step", "samples", "busy", "SM"}
    found = advice.verdict.limit, advice.verdict.larger_batch
    assert found == planted.found, (advice.recommended.batch_size, advice.verdict, checks)
    rates = {
        size: size / fmean(moment["step_s"] for moment in both) for size, both in moments.items()
    }
    assert rates[advice.recommended.batch_size] > 0.94 * max(rates.values())


REPLAYS = """
import torch
from torch.utils.data import DataLoader, TensorDataset
loader = DataLoader(TensorDataset(torch.zeros(100_000, 64)), batch_size=8, pin_memory=True)
model = torch.nn.Linear(64, 1).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
canvas = torch.zeros(8 * 1600 * 1024, device="cuda")
held, graph = torch.zeros(8, 64, device="cuda"), torch.cuda.CUDAGraph()


def train():
    optimizer.zero_grad()
    for _ in range(60):
        canvas.add_(1)
    model(held).mean().backward()
    optimizer.step()


side = torch.cuda.Stream()
with torch.cuda.stream(side):
    for _ in range(3):
        train()
torch.cuda.synchronize()
with torch.cuda.graph(graph):
    train()
for (rows,) in loader:
    held.copy_(rows)
    graph.replay()
"""


def test_steps_of_the_optimizer_inside_a_graph_are_seen(machine, tmp_path):
    """Each replay makes one, although the script calls the optimizer no more."""
    gpu = machine(saturated().card())
    (tmp_path / "train.py").write_text(REPLAYS)
    record = gpu.advise("--sizes", "8", "--budget", "30s", "train.py")
    trial = record.trials[0]
    assert trial.outcome == "ok"
    assert trial.step_s.median == pytest.approx(60 * 8 * 25e-6, rel=0.05)
