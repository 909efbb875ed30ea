"""Ranks that accelerate, Lightning and mpirun start."""

import os
import re
import shutil
import sys

import pytest
from batchadvisor.probes.distributed.rendezvous import free_port

from ..distributed.jobs import LARGEST, QUICK, TRAIN, left_of
from ..end_to_end.driver import SCRIPTS, run, run_preloaded
from ..needs import framework
from .preloads import HUGGING_FACE, LIGHTNING

framework("accelerate")
pytestmark = pytest.mark.frameworks

LAUNCH = (
    *(sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2"),
    *("--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no"),
)
"""On a machine without GPUs this starts two ranks too; the script itself asks for the CPU."""
MPIRUN = ("mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "2")
LARGER = ("run", *QUICK, *LARGEST, "64")
"""Not the script's own size: the ranks start once more, for its confirmation."""


def assert_two_ranks(done, launcher):
    assert done.code == 0, done
    assert left_of(done) == []
    assert done.record.distribution.launcher == launcher
    assert done.record.distribution.parallelism.shapes == ("DistributedDataParallel",)
    for trial in done.record.trials:
        assert trial.ran, trial
        assert [rank.rank for rank in trial.ranks] == [0, 1]
    assert (
        len(re.findall(r"^(?:\x1b\[[\d;]*m)*(?:Use|Keep|Of the) ", done.stdout, re.MULTILINE)) == 1
    )


@pytest.mark.slow
def test_accelerate_launch(tmp_path):
    script = SCRIPTS / "accelerate_ranks.py"
    quick = (*QUICK, "--budget", "90s", "--sizes", "64")
    done = run("run", *quick, script, folder=tmp_path, launcher=LAUNCH)
    assert_two_ranks(done, "torchrun")
    # Its shards divide the data; each rank draws half of it.
    scaling = done.record.distribution.communication
    assert [trial.batch_size for trial in scaling] == [64]


@pytest.mark.parametrize("name", ["notebook", "debug"])
@pytest.mark.slow
def test_accelerates_launchers_inside_the_script(name, tmp_path):
    script = SCRIPTS / "accelerate_launchers.py"
    words = (*LARGER, script, name, free_port())
    done = run_preloaded(*words, folder=tmp_path, preload=HUGGING_FACE)
    assert_two_ranks(done, "the script itself")
    assert done.record.discovery.primary.place.file.endswith("accelerate_ranks.py")


@pytest.mark.parametrize("strategy", [pytest.param("ddp", marks=pytest.mark.slow), "ddp_spawn"])
def test_lightnings_launchers(strategy, tmp_path):
    """`ddp`, its default, starts the second rank as a program, `ddp_spawn` as a process."""
    framework("lightning")
    script = SCRIPTS / "lightning_ranks.py"
    done = run_preloaded(*LARGER, script, strategy, folder=tmp_path, preload=LIGHTNING)
    assert_two_ranks(done, "the script itself")
    assert done.left == []
    # Lightning makes the loader anew, around a sampler that shares the data.
    assert done.record.discovery.primary.sampler == "DistributedSampler"
    assert done.record.discovery.native_batch_size == 20
    if strategy == "ddp":
        assert done.record.discovery.primary.place.file.endswith("lightning_ranks.py")


@pytest.mark.skipif(shutil.which("mpirun") is None, reason="needs Open MPI (Debian: openmpi-bin)")
@pytest.mark.slow
def test_mpirun(tmp_path):
    # mpirun starts programs; what it is handed is this interpreter.
    launcher = (*MPIRUN, sys.executable)
    variables = {"OMPI_MCA_btl": "self,tcp"} if os.geteuid() == 0 else {}
    done = run(*LARGER, TRAIN, folder=tmp_path, launcher=launcher, variables=variables)
    assert_two_ranks(done, "mpirun")


@pytest.mark.parametrize(
    ("kind", "written"),
    [
        ("keyword", "DataLoader(data, batch_size=16)"),
        pytest.param("sampler", "Chunks(len(data), batch_size=16)", marks=pytest.mark.slow),
        pytest.param("stream", "DataLoader(Stream(), batch_size=16)", marks=pytest.mark.slow),
    ],
)
def test_split_batches(kind, written, tmp_path):
    """The script names the size of both ranks together; ours are those of one."""
    script = SCRIPTS / "accelerate_split.py"
    options = ("--json", "--nproc-per-node", "2", *LARGEST, "16", script, kind)
    done = run_preloaded("run", *QUICK, *options, folder=tmp_path, preload=HUGGING_FACE)
    assert done.code == 0, done
    discovery, shared = done.record.discovery, done.record.discovery.shared
    assert (discovery.native_batch_size, discovery.primary.num_samples) == (8, 2000)
    assert (shared.number, shared.name) == (16, "batch_size")
    assert {trial.arrived_batch_size for trial in done.searched} == {16}
    line = script.read_text().splitlines()[shared.source.place.line - 1]
    assert written in line
    assert done.advice.change.endswith("(of all 2 ranks, 16 of each)")
    assert re.search(r"batch_size=16\S* → .*batch_size=32", done.advice.change)


def test_dispatched_batches(tmp_path):
    """One process reads for all: refused at once and by name, with the plan; else ranks wait."""
    script = SCRIPTS / "accelerate_dispatch.py"
    options = ("--nproc-per-node", "2", "--sizes", "64", script)
    words = ("run", *QUICK, *options, "split")
    done = run_preloaded(*words, folder=tmp_path, preload=HUGGING_FACE)
    assert done.code != 0
    assert left_of(done) == []
    assert "dispatch_batches=True" in done.stderr
    plan = (
        "batchadvisor tails --setup accelerate --dispatch-batches --samples 4001 --ranks 2 "
        "--batch-size 16 --split-batches"
    )
    assert plan in done.stderr
    planned = run(*plan.split()[1:], "--json", folder=tmp_path)
    assert planned.answer["layout"]["last"] == [1, 1]
