"""`find_batch_size` on every rank of a job that torchrun started."""

import json
import subprocess

import pytest

from .jobs import torchrun

pytestmark = pytest.mark.slow

JOB = """
import json, os, random, sys
import batchadvisor, torch, torch.distributed as dist
from batchadvisor.errors import BatchAdvisorError
from torch.nn.parallel import DistributedDataParallel

what, searches = sys.argv[1], sys.argv[2] == "search"
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = torch.nn.Sequential(
    torch.nn.Linear(32, 32), torch.nn.BatchNorm1d(32), torch.nn.Linear(32, 1)
)
if what != "by hand":
    model = DistributedDataParallel(model)
optimizer = torch.optim.Adam(model.parameters())
torch.manual_seed(rank)


def train_step(batch):
    optimizer.zero_grad()
    model(batch).square().mean().backward()
    if what == "refused" and rank == 1 and len(batch) > 20:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate")
    if what == "by hand":
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
    optimizer.step()


def make_batch(size):
    return torch.randn(size, 8 if what == "bad" and rank == 1 else 32)


for _ in range(3):
    train_step(torch.randn(8, 32))
told = {}
if searches:
    own = 8 + rank if what == "unlike" else 8
    goal = "knee" if what == "timed" else "memory"
    step = (lambda: None) if what == "bad" and rank == 1 else train_step
    try:
        found = batchadvisor.find_batch_size(
            step, make_batch, own=own, goal=goal, budget=12, max_batch=64, profile=False, quiet=True
        )
        told = {
            "size": found.batch_size,
            "ratio": found.ratio,
            "outcomes": [trial.outcome for trial in found.record.trials],
            "details": [trial.detail for trial in found.record.trials],
            "ranks": found.record.distribution.world_size,
            "folder": found.record.folder,
            "not_restored": found.not_restored,
            "text": repr(found),
        }
    except BatchAdvisorError as error:
        told = {"error": f"{type(error).__name__}: {error}"}
for _ in range(3):
    train_step(torch.randn(8, 32))
weights = [each.tolist() for each in model.state_dict().values()]
with open(f"{rank}.json", "w") as file:
    json.dump({"told": told, "weights": weights, "random": torch.rand(1).item()}, file)
dist.destroy_process_group()
"""


def run_job(folder, what, *, search=True):
    """The job on two ranks; returns what each wrote."""
    (folder / "job.py").write_text(JOB)
    command = [*torchrun(2), "job.py", what, "search" if search else "train"]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stderr
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in (0, 1)]


@pytest.mark.parametrize("what", ["timed", "by hand", "refused"])
def test_all_ranks_get_one_answer_and_train_on(tmp_path, what):
    plain = run_job(tmp_path, "by hand" if what == "by hand" else "timed", search=False)
    ranks = run_job(tmp_path, what)
    first, second = (rank["told"] for rank in ranks)
    assert first == second
    assert first["ranks"] == 2
    assert first["not_restored"] == []
    assert "2 on one host (torchrun)" in first["text"]
    for rank, alone in zip(ranks, plain, strict=True):
        assert rank["weights"] == alone["weights"]
        assert rank["random"] == alone["random"]
    if what == "refused":
        assert 16 <= first["size"] <= 20
        refused = first["details"][first["outcomes"].index("out_of_memory")]
        assert refused.startswith("rank 1: OutOfMemoryError")
    if what == "by hand":
        assert first["size"] == 64
    runs = list((tmp_path / "batchadvisor-runs").iterdir())
    assert [str(run.relative_to(tmp_path)) for run in runs] == [first["folder"]]


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("bad", "train_step takes (), and is called with a batch"),
        ("unlike", "the ranks ask different questions (their own sizes: 8, 9)"),
    ],
)
def test_what_is_wrong_on_one_rank_ends_the_call_on_all(tmp_path, what, said):
    errors = [rank["told"]["error"] for rank in run_job(tmp_path, what)]
    assert all(said in error for error in errors)
    assert all(error.startswith("UsageError: ") for error in errors)
    assert not (tmp_path / "batchadvisor-runs").exists()
