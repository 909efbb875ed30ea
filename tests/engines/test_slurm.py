"""`run --engine slurm` on a real cluster of Slurm, on this host, with GPUs that are none."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from batchadvisor.records import DevicesRecord
from batchadvisor.session.recording.store import DEVICES, read_record

from tests import pages
from tests.end_to_end.driver import SCRIPTS, run, start
from tests.needs import programs

from .slurm_cluster import NEEDED, cluster
from .test_probes import RECORD

programs(*NEEDED, package="slurm-wlm munge")
pytestmark = pytest.mark.slow

BIN = Path(sys.executable).parent
SHORT = ("--budget", "20s", "--goal", "memory", "--sizes", "8,16", "--no-profile")
WORDS = ("run", "--engine", "slurm", "--device", "cpu")


@pytest.fixture(scope="module")
def slurm():
    with cluster() as running:
        yield running


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "model.py").write_text((SCRIPTS / "plain.py").read_text())
    return tmp_path


def devices(folder):
    record = msgspec.json.decode((folder / DEVICES).read_bytes(), type=DevicesRecord)
    return {run.device: run for run in record.devices}


def test_the_page_names_the_commands():
    named, every = pages.on_a_cluster("slurm")
    assert "--gres" in named
    assert every == "batchadvisor run --engine slurm --time-limit 2h model.py"


def test_a_job_for_each_type_that_is_named(slurm, folder):
    """The command of the page, and a type that no node has."""
    _, verb, *words = shlex.split(pages.on_a_cluster("slurm")[0])
    added = ("--gres", "gpu:h100:1", "--device", "cpu", "-o", "out", *SHORT)
    done = run(verb, *added, *words, folder=folder, variables=slurm.variables)
    assert done.code == 0, done
    runs = devices(folder / "out")
    assert list(runs) == ["h100", "a100", "v100"]
    for name in ("a100", "v100"):
        assert (runs[name].exit_code, runs[name].error) == (0, "")
        record = read_record(folder / "out" / name)
        assert [
            trial.batch_size for trial in record.trials if trial.ran and trial.purpose == "search"
        ] == [8, 16]
        assert record.script.path == "model.py"
        assert record.command[:2] == ("batchadvisor", "run")
        assert not {"--engine", "--gres", "--slurm-options"} & {*record.command}
        assert f"{name}: running, job" in done.stderr
        assert f"{name}: batch 16" in done.stderr
    assert "sbatch refused gpu:h100:1" in runs["h100"].error
    assert "error h100: sbatch refused gpu:h100:1" in " ".join(done.stdout.split())
    assert not (folder / "out/h100").exists()
    assert [path.name for path in (folder / "out").glob(".*")] == []
    counts = ("--count", "a100=2", "--count", "v100=1", "--global-batch", "24")
    planned = run("plan", "out", *counts, "-o", "plan.md", folder=folder)
    assert planned.code == 0, planned
    text = (folder / "plan.md").read_text()
    assert "24 samples a step over " in text
    assert "class SplitSampler(Sampler):" in text
    assert re.search(r"^SIZES = \[\d+\]", text, re.MULTILINE)
    assert slurm.jobs() == []
    assert done.left == []


def test_what_never_gets_a_node_is_cancelled(slurm, folder):
    words = ("--parsable", "--gres", "gpu:v100:1", "-o", "/dev/null", "--wrap", "exec sleep 600")
    busy = slurm.ask("sbatch", *words)
    try:
        gres = ("--gres", "gpu:v100:1", "--time-limit", "15s")
        done = run(*WORDS, *gres, "-o", "out", "model.py", folder=folder, variables=slurm.variables)
        assert slurm.jobs() == [busy]
    finally:
        slurm.ask("scancel", "--signal=KILL", busy)
    assert done.code == 1
    assert "no node came within --time-limit 15.0 s" in done.error
    assert "Resources" in done.error
    assert devices(folder / "out")["v100"].error
    assert done.left == []


def test_ctrl_c_cancels_the_job_and_keeps_what_was_measured(slurm, folder):
    gres = ("--gres", "gpu:1g.20gb:1")
    command = start(
        *WORDS, *gres, "--budget", "200s", "--no-profile", "-o", "out", "model.py",
        folder=folder, variables=slurm.variables,
    )  # fmt: skip
    record = folder / "out/1g-20gb"
    command.wait_for(lambda: read_record(record).trials, "a trial in the record")
    command.press_ctrl_c()
    done = command.finish()
    assert done.code == 130, done
    assert slurm.jobs() == []
    assert read_record(record).state == "interrupted"
    assert read_record(record).trials
    assert "interrupted" in done.stdout
    assert done.left == []


def test_inside_an_allocation_a_step_takes_its_gpu(slurm, folder):
    command = [sys.executable, "-m", "batchadvisor", *WORDS, *SHORT, "-o", "out", "model.py"]
    allocate = ["salloc", "--quiet", "--nodes", "1", "--gres", "gpu:1g.20gb:1", "-c", "2"]
    done = subprocess.run(
        [*allocate, *command], cwd=folder, env={**os.environ, **slurm.variables},
        capture_output=True, text=True, check=False, timeout=200,
    )  # fmt: skip
    assert done.returncode == 0, done
    assert "1g-20gb: running, as step" in done.stderr
    [(name, of_the_step)] = devices(folder / "out").items()
    assert (name, of_the_step.model, of_the_step.exit_code) == ("1g-20gb", "gpu:1g.20gb:1", 0)
    trials = read_record(folder / "out/1g-20gb").trials
    searched = {trial.batch_size for trial in trials if trial.ran and trial.purpose == "search"}
    assert len(searched) == 2


def test_a_type_that_the_allocation_lacks(slurm, folder):
    command = [sys.executable, "-m", "batchadvisor", *WORDS, "--gres", "gpu:v100:1", "model.py"]
    allocate = ["salloc", "--quiet", "--nodes", "1", "--gres", "gpu:1g.20gb:1"]
    done = subprocess.run(
        [*allocate, *command], cwd=folder, env={**os.environ, **slurm.variables},
        capture_output=True, text=True, check=False, timeout=200,
    )  # fmt: skip
    assert done.returncode == 1
    assert "Unable to create step" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_cluster_without_gpus(folder):
    with cluster(gpus=False) as running:
        done = run(*WORDS, "model.py", folder=folder, variables=running.variables)
    done.assert_refused()
    assert "no GPUs" in done.error


def test_one_line_at_the_end_of_a_job(slurm, folder):
    """The line of the page, in a job's script."""
    line = "batchadvisor advise --line batchadvisor-runs/model"
    assert line in pages.texts()["docs/cluster.md"]
    (folder / "batchadvisor-runs/model").mkdir(parents=True)
    shutil.copy(RECORD, folder / "batchadvisor-runs/model/record.json")
    (folder / "job.sh").write_text(f"#!/bin/sh\nexport PATH='{BIN}':$PATH\n{line}\n")
    output = str(folder / "job.out")
    slurm.ask("sbatch", "--wait", "-D", str(folder), "-o", output, str(folder / "job.sh"))
    text = (folder / "job.out").read_text()
    assert text.startswith("batchadvisor: Use batch size 40")
    assert text.count("\n") == 1


def test_doctor_knows_what_slurm_gave(slurm):
    code = (
        "import os; from batchadvisor.probes.devices.checkup import slurm_checks; "
        "[check] = slurm_checks(os.environ); print(check.state, check.detail)"
    )
    step = ("srun", "--ntasks", "1", "-c", "2")
    slice_of = ("--gres", "gpu:1g.20gb:1")
    said = slurm.ask(*step, *slice_of, sys.executable, "-c", code)
    assert re.fullmatch(
        r"ok job \d+, step 0 on n1; GPUs 1 of its node \(SLURM_STEP_GPUS\); 2 cores", said
    )
    assert "; no GPU; " in slurm.ask(*step, sys.executable, "-c", code)
    script = ("sbatch", "--wait", "--quiet", "-o", f"{slurm.folder}/gpus", *slice_of, "--wrap")
    slurm.ask(*script, shlex.join([sys.executable, "-c", code]))
    assert "(SLURM_JOB_GPUS)" in (slurm.folder / "gpus").read_text()


def test_the_tasks_of_a_step_are_ranks(slurm, folder):
    shutil.copy(SCRIPTS / "train_ddp.py", folder)
    done = run(
        *("run", "-q", "--json", "--device", "cpu", *SHORT, "-o", "out", "train_ddp.py"),
        folder=folder, variables=slurm.variables, launcher=("srun", "-n", "2", sys.executable),
    )  # fmt: skip
    assert done.code == 0, done
    distribution = done.record.distribution
    assert (distribution.launcher, distribution.world_size) == ("srun", 2)
    searched = [trial for trial in done.record.trials if trial.purpose == "search" and trial.ran]
    assert [trial.batch_size for trial in searched] == [8, 16]
    assert done.left == []
