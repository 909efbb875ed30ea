"""Refusals of memory that are not the size's: their cause is planted, and named."""

import subprocess
import sys

import pytest
from batchadvisor.advisor.advise import advise

from .planted import card

pytestmark = pytest.mark.gpu_build
SCRIPT = """
import torch
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    row = torch.zeros(1 << 18)  # a MiB

    def __len__(self):
        return 50_000

    def __getitems__(self, numbers):
        return self.row.expand(len(numbers), -1)


loader = DataLoader(Rows(), batch_size=8, collate_fn=torch.Tensor.contiguous{loader})
model = torch.nn.Linear(16, 16).cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for rows in loader:
    size = len(rows)
    rows = rows.cuda()
    {work}
    optimizer.zero_grad()
    model(rows[:, :16]).mean().backward()
    torch.cuda._sleep(2_000_000 + 10_000 * size)
    optimizer.step()
"""


def ended(record, outcomes):
    """Sizes that were asked for; the search may try others beside them."""
    found = {trial.batch_size: trial.outcome for trial in record.trials}
    assert {size: found.get(size) for size in outcomes} == outcomes, found


def told(record):
    """The rules of what is said of refusals, with their words."""
    return {found.rule: found.message for found in advise(record).findings}


def run(gpu, folder, work="pass", loader="", *options, **more):
    """The record of a search for the largest size."""
    (folder / "train.py").write_text(SCRIPT.format(work=work, loader=loader))
    wanted = ("--goal", "memory", "--budget", "90s", "--no-profile", *options)
    return gpu.advise(*wanted, "train.py", **more)


def test_memory_of_the_host_that_cannot_be_pinned(machine, tmp_path):
    """One batch of 512 rows is more than the host gives; the card has room for thousands."""
    gpu = machine(card(memory_mib=16384, pinned_mib=512))
    loader = ", pin_memory=True, num_workers=1, prefetch_factor=1"
    record = run(gpu, tmp_path, "pass", loader, "--sizes", "8,32,600")
    ended(record, {8: "ok", 32: "ok", 600: "out_of_memory"})
    assert "page-locked" in told(record)["memory.not_the_size"]


def test_a_request_that_no_card_could_meet(machine, tmp_path):
    work = "size < 64 or torch.empty(1 << 50, dtype=torch.uint8, device='cuda')"
    record = run(machine(card()), tmp_path, work, "", "--sizes", "8,32,64")
    ended(record, {8: "ok", 32: "ok", 64: "out_of_memory"})
    assert "were asked for at once" in told(record)["memory.not_the_size"]


NEIGHBOUR = """
import pathlib, time, torch
while not pathlib.Path("wanted").exists():
    time.sleep(0.01)
x = torch.zeros(3 << 30, dtype=torch.uint8, device="cuda")
pathlib.Path("taken").touch()
time.sleep(600)
"""
TAKES = """held = [rows.clone(), rows.clone()]
    del held
    import pathlib, time
    if size == 64:
        pathlib.Path("wanted").touch()
        while not pathlib.Path("taken").exists():
            time.sleep(0.01)"""


def test_another_process_that_takes_most_of_the_card_in_the_middle(machine, tmp_path):
    """600 rows and two copies would fit without it."""
    gpu = machine(card())
    (tmp_path / "neighbour.py").write_text(NEIGHBOUR)
    with subprocess.Popen(
        [sys.executable, "neighbour.py"], cwd=tmp_path, env=gpu.environment
    ) as neighbour:
        try:
            record = run(gpu, tmp_path, TAKES, "", "--sizes", "8,64,600")
        finally:
            neighbour.kill()
    ended(record, {8: "ok", 64: "ok", 600: "out_of_memory"})
    advice = advise(record)
    assert advice.recommended.batch_size == 64
    said = " ".join(finding.message for finding in advice.findings)
    assert "3.00 GiB" in said, said
    assert "python" in said, said
