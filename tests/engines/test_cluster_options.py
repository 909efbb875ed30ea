"""What `run --engine` refuses before anything is started, and what the one line says."""

import msgspec
import pytest
from batchadvisor.advisor.advise import advise
from batchadvisor.cli import cli
from batchadvisor.features.plan.engines.slurm import SlurmEngine
from batchadvisor.session.answer import answer_line
from batchadvisor.session.recording.store import read_record
from click.testing import CliRunner

from tests.engines.test_probes import RECORD

ENGINE = ("--engine", "slurm")
REFUSED = {
    "an engine that is none": (("--engine", "lsf"), "slurm"),
    "types without an engine": (("--gres", "gpu:a100:1"), "--gres needs --engine"),
    "a time limit without an engine": (("--time-limit", "5m"), "--time-limit needs --engine"),
    "Slurm's options for Ray": (("--engine", "ray", "--gres", "gpu:1"), "--gres is Slurm's"),
    "a type that is no GPU": ((*ENGINE, "--gres", "a100"), "gpu:TYPE:1"),
    "no GPU at all": ((*ENGINE, "--gres", "gpu:a100:0"), "gpu:TYPE:1"),
    "a type twice": ((*ENGINE, "--gres", "gpu:1", "--gres", "gpu:1"), "twice"),
    "a type twice, with and without its number": (
        (*ENGINE, "--gres", "gpu:a100", "--gres", "gpu:a100:1"),
        "--gres gpu:a100 is given twice, as gpu:a100 and as gpu:a100:1",
    ),
    "no time at all": ((*ENGINE, "--time-limit", "0"), "--time-limit 0 leaves"),
    "no time without an engine": (("--time-limit", "0s"), "--time-limit needs"),
    "half a quotation": ((*ENGINE, "--slurm-options", "'x"), "Quote"),
    "a device of this machine": ((*ENGINE, "--device", "cuda:1"), "--device cuda:1"),
    "GPUs of this machine": ((*ENGINE, "--gpus", "all"), "--gpus"),
    "ranks": ((*ENGINE, "--nproc-per-node", "2"), "--nproc-per-node"),
    "a run to go on with": ((*ENGINE, "--resume", "x"), "--resume"),
    "a look": ((*ENGINE, "--dry-run"), "--dry-run"),
}


@pytest.fixture
def no_slurm(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    script = tmp_path / "model.py"
    script.write_text("print()\n")
    return str(script)


def refused(*words):
    from batchadvisor.errors import UsageError

    answer = CliRunner().invoke(cli, ["run", *words])
    if isinstance(answer.exception, UsageError):
        return str(answer.exception)
    assert answer.exit_code == 2, answer
    return answer.output


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case, no_slurm):
    words, said = REFUSED[case]
    assert said in refused(*words, no_slurm)


def test_without_the_engine(no_slurm):
    said = refused(*ENGINE, no_slurm)
    assert "there is no sbatch on this machine" in said
    assert "login node" in said


def test_started_by_a_launcher(no_slurm, monkeypatch):
    for name, value in (("RANK", "0"), ("WORLD_SIZE", "2"), ("LOCAL_RANK", "0")):
        monkeypatch.setenv(name, value)
    assert "Start it once" in refused(*ENGINE, no_slurm)


def test_names_of_slices_are_short(no_slurm, monkeypatch):
    monkeypatch.setattr("shutil.which", lambda name: name)
    gres = ("gpu:a100:1", "gpu:1g.20gb:1", "gpu", "gpu:a100:2")
    names = [kind.name for kind in SlurmEngine(gres).types()]
    assert names == ["a100", "1g-20gb", "gpu", "a100-2"]


@pytest.mark.parametrize(
    ("gpu", "gib", "fits"),
    [
        (None, 0, None),
        ("NVIDIA H100 80GB HBM3", 79, "; fits 1g.10gb (memory alone"),
        ("NVIDIA A100-SXM4-40GB", 39, "; fits 1g.5gb ("),
        ("Tesla T4", 14, None),
        ("NVIDIA A100-SXM4-80GB MIG 2g.20gb", 19, None),
    ],
)
def test_one_line_for_the_log_of_a_job(gpu, gib, fits):
    """As if that GPU had made the record of a CPU."""
    record = read_record(RECORD)
    if gpu is not None:
        of_gpu = {"kind": "cuda", "name": gpu, "total_bytes": gib << 30}
        device = msgspec.structs.replace(record.device, **of_gpu, capacity_bytes=gib << 30)
        record = msgspec.structs.replace(record, device=device)
    advice = advise(read_record(RECORD))
    line = answer_line(record, advice)
    assert line.startswith(f"batchadvisor: {advice.headline}")
    assert "fits" not in line if fits is None else fits in line


def test_the_line_of_a_stored_record():
    answer = CliRunner().invoke(cli, ["advise", "--line", str(RECORD)])
    assert answer.exit_code == 0
    assert answer.output.count("\n") == 1
    for other in (["--json"], ["--global-batch", "64"]):
        both = CliRunner().invoke(cli, ["advise", "--line", *other, str(RECORD)])
        assert f"--line and {other[0]} contradict" in str(both.exception)
