"""The callback in loops that Accelerate prepared, in one process and launched with two."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from batchadvisor.session.recording.store import read_record

from ..end_to_end.preloaded import Forked
from ..needs import framework
from ..ports import free_ports
from .preloads import HUGGING_FACE

framework("accelerate")
pytestmark = pytest.mark.frameworks

SCRIPT = Path(__file__).with_name("accelerate_loop.py")


LAUNCH = (
    *(sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2"),
    *("--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no"),
)


def run(folder, processes, *hows):
    """Errors and exit code of the script: one process is a fork, two are launched."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HOME": str(folder)}
    words = (str(folder), *hows)
    if processes == 1:
        fork = Forked(words, script=SCRIPT, cwd=folder, env=environment, preload=HUGGING_FACE)
        return fork.communicate(timeout=250)[1], fork.returncode
    # What starts two processes is named after GPUs.
    done = subprocess.run(
        [*LAUNCH, "--main_process_port", str(free_ports()), str(SCRIPT), *words],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env=environment,
        timeout=250,
    )
    return done.stderr, done.returncode


@pytest.fixture(scope="module", params=[1, 2])
def job(request, tmp_path_factory):
    """Number of processes, and the folder of the same loop with and without the callback."""
    folder = tmp_path_factory.mktemp(f"accelerate{request.param}")
    said, code = run(folder, request.param, "plain", "watch")
    assert code == 0, said
    return request.param, folder


def of_rank(folder, rank):
    return read_record(folder / "log" / ("" if rank == 0 else f"rank-{rank:04d}"))


def test_the_training_is_the_same_to_the_bit(job):
    processes, folder = job
    for rank in range(processes):
        plain, watch = (
            json.loads((folder / f"{how}-{rank}.json").read_text()) for how in ("plain", "watch")
        )
        assert plain == watch


def test_it_counts_what_the_loop_did(job):
    processes, folder = job
    for rank in range(processes):
        did = json.loads((folder / f"watch-{rank}.json").read_text())
        record = of_rank(folder, rank)
        observed = record.observed
        assert record.state == "finished"
        assert (observed.framework, observed.rank) == ("accelerate", rank)
        assert observed.world_size == processes
        assert observed.num_steps == did["steps"]
        assert observed.num_micro_batches == len(did["sizes"])
        assert observed.num_samples == sum(did["sizes"])
        assert observed.num_epochs == 3


def test_what_it_found_out(job):
    processes, folder = job
    record = of_rank(folder, 0)
    discovery = record.discovery
    assert (discovery.native_batch_size, discovery.micro_batches) == (8, 2)
    # Two ranks: 7 batches of 8 each, the last ones filled up from the start.
    assert discovery.primary.num_samples == (101 if processes == 1 else 56)
    assert discovery.optimizers[0].name == "AdamW"
    assert discovery.norm_layers.batch_norm == 1
    trial = record.trials[0]
    assert trial.profile.operators_pct > 0
    assert 0 < trial.input_wait_s.median < trial.step_s.median


def test_an_exception_passes_unchanged(tmp_path):
    said, code = run(tmp_path, 1, "raise")
    assert code != 0
    assert "ValueError: mine" in said
    record = read_record(tmp_path / "log")
    assert record.state == "failed"
    assert record.faults[0].detail == "ValueError: mine"
    assert record.observed.num_samples == 2 * 101 + 8


def test_a_resumed_epoch_is_seen(tmp_path):
    """`skip_first_batches` gives another loader for what is left of it."""
    said, code = run(tmp_path, 1, "resume")
    assert code == 0, said
    did = json.loads((tmp_path / "resume-0.json").read_text())
    observed = read_record(tmp_path / "log").observed
    assert observed.num_steps == did["steps"]
    assert observed.num_samples == sum(did["sizes"])


class NoLength(torch.utils.data.Dataset):
    """A batch sampler of the user's own draws from it."""

    def __getitem__(self, place):
        return torch.ones(3)


class OfDeepSpeed:
    """Around an optimizer of torch, and none itself: it takes no hooks."""

    def __init__(self, optimizer):
        self.optimizer = optimizer
        self.param_groups = optimizer.param_groups


def test_what_is_prepared_may_lack_what_is_usual(tmp_path):
    from accelerate import Accelerator
    from accelerate.utils.deepspeed import DeepSpeedOptimizerWrapper
    from batchadvisor.callback import AccelerateCallback

    accelerator = Accelerator(cpu=True)
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = torch.utils.data.DataLoader(NoLength(), batch_sampler=[[0, 1], [2, 3], [4, 5]])
    native = accelerator.prepare

    def prepare(*things):
        model, loader, optimizer = native(*things)
        return model, loader, DeepSpeedOptimizerWrapper(OfDeepSpeed(optimizer.optimizer))

    accelerator.prepare = prepare
    with AccelerateCallback(accelerator, tmp_path, profile=False, quiet=True) as prof:
        model, loader, _ = accelerator.prepare(model, loader, optimizer)
        for batch in loader:
            model(batch).sum().backward()
            optimizer.step()
    observed = prof.record.observed
    assert (observed.num_steps, observed.num_samples) == (3, 6)
    assert prof.record.discovery.optimizers[0].name == "SGD"
