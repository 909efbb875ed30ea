"""The callback in two processes under torchrun."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from batchadvisor.advisor.advise import advise
from batchadvisor.callback.loop_info import launcher, rank_and_world
from batchadvisor.probes.distributed.ranks import SELF_STARTED
from batchadvisor.session.recording.store import read_record

from ..end_to_end.preloaded import LAUNCHER, Forked

HOW = ("plain", "watch")
SCRIPT = Path(__file__).with_name("ddp_loop.py")
TWO = ("--nproc-per-node", "2", "--master-port", "0", "--rdzv-backend", "c10d")
WORDS = (*TWO, "--rdzv-endpoint", "localhost:0")


def torchrun(folder, *hows, script=SCRIPT, preloaded=False):
    """Exit code and errors of a job; preloaded, it and its ranks are forks."""
    words = [*WORDS, str(script), str(folder), *hows]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    if preloaded:
        job = Forked(words, script=LAUNCHER, cwd=folder, env=environment)
        _, errors = job.communicate(200)
        return job.returncode, errors
    done = subprocess.run(
        [sys.executable, "-m", LAUNCHER, *words],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        cwd=folder,
        timeout=200,
    )
    return done.returncode, done.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ddp")
    code, errors = torchrun(folder, *HOW, preloaded=True)
    assert code == 0, errors
    (folder / "watch.err").write_text(errors)
    return folder


@pytest.mark.slow
class TestTwoRanks:
    @pytest.mark.parametrize("rank", [0, 1])
    def test_each_rank_trains_the_same_to_the_bit_and_has_its_record(self, folder, rank):
        plain, watch = (json.loads((folder / f"{h}-{rank}.json").read_text()) for h in HOW)
        assert plain == watch
        record_folder = folder / "log" / ("" if rank == 0 else f"rank-{rank:04d}")
        record = read_record(record_folder)
        assert record.state == "finished"
        observed = record.observed
        assert (observed.rank, observed.world_size) == (rank, 2)
        # 203 samples over two ranks: 102 each, so 10 batches of 10 and one of 2 an epoch.
        assert observed.num_steps == 44
        assert observed.num_samples == 4 * 102
        assert record.discovery.primary.num_samples == 102
        assert record.trials[0].tail.num_samples == 2
        # The ranks share the memory of the host, and their traces lie together.
        assert record.device.capacity_source.startswith("a rank's share, 1 of 2, of: ")
        assert record.device.capacity_bytes <= record.device.total_bytes // 2
        profile = record.trials[0].profile
        path = (record_folder / profile.trace).resolve()
        assert path.parent == (folder / "log/traces/batch_size=0010").resolve()
        assert path.name.startswith(f"w{rank}t0.")
        assert profile.operators_pct > 0

    def test_the_first_rank_speaks_of_the_end_of_the_epoch_early_and_how_to_mend_it(self, folder):
        """One process's DataLoader(..., shuffle=True) would take the ranks' sampler away."""
        text = (folder / "watch.err").read_text()
        assert text.count("Batch size 10 as it ran") == 1
        assert "on rank 0 of 2" in text
        meanwhile, closing = text.split("Batch size 10 as it ran")
        assert "the end of each epoch: " in meanwhile
        found = {one.rule: one for one in advise(read_record(folder / "log")).findings}
        for code in ("\n".join(found["tails.loader.short"].code), closing):
            assert "DistributedSampler(" in code
            assert "shuffle=True" not in code

    def test_noise_scale_from_ranks(self, folder):
        noise = read_record(folder / "log").observed.noise_scale
        assert noise.source == "ranks"
        assert (noise.small_batch, noise.large_batch) == (10, 20)
        assert noise.num_measured >= 8
        assert noise.low > 0

    def test_the_advice_counts_both_and_calls_waiting_for_the_other_not_python(self, folder):
        advice = advise(read_record(folder / "log"))
        assert advice.verdict.limit != "host"
        assert advice.training.effective_before == 20


@pytest.mark.slow
def test_an_exception_on_one_rank_passes(tmp_path):
    """Started as a user does it, since it is the end of a process that is looked at."""
    code, errors = torchrun(tmp_path, "raise")
    assert code != 0
    assert "ValueError: on one rank" in errors
    record = read_record(tmp_path / "log" / "rank-0001")
    assert record.state == "failed"
    assert record.faults[0].detail == "ValueError: on one rank"
    assert record.observed.num_steps == 23
    assert read_record(tmp_path / "log").observed.num_steps >= 1  # the other one was ended


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, (0, 1)),
        ({"RANK": "3", "WORLD_SIZE": "4"}, (3, 4)),
        ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}, (1, 2)),
        ({"PMI_RANK": "1", "PMI_SIZE": "8"}, (1, 8)),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "1"}, (0, 1)),
        ({"SLURM_PROCID": "2", "SLURM_NTASKS": "3", "SLURM_STEP_ID": "0"}, (2, 3)),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "3"}, (0, 1)),  # a batch script, not a step
        ({"RANK": "x", "WORLD_SIZE": "2"}, (0, 1)),
        ({"RANK": "0", "WORLD_SIZE": "1", "PMI_RANK": "1", "PMI_SIZE": "2"}, (1, 2)),
    ],
)
def test_ranks_by_the_environment(environment, expected):
    assert rank_and_world(environment) == expected


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"SLURM_PROCID": "0"}, SELF_STARTED),  # a batch script, whose ranks are its own
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "1"}, SELF_STARTED),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "3"}, SELF_STARTED),
        ({"SLURM_PROCID": "2", "SLURM_NTASKS": "3", "SLURM_STEP_ID": "0"}, "srun"),
        ({"SLURM_PROCID": "0", "TORCHELASTIC_RUN_ID": "1"}, "torchrun"),
    ],
)
def test_who_started_the_ranks(environment, expected, monkeypatch):
    for name in ("TORCHELASTIC_RUN_ID", "OMPI_COMM_WORLD_RANK", "PMI_RANK"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert launcher() == expected
