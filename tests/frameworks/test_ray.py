"""`run --engine ray` on a local cluster of several nodes, with accelerator types that are none."""

import os
import shlex
import subprocess
import sys

import msgspec
import pytest
from batchadvisor.records import DevicesRecord
from batchadvisor.session.recording.store import DEVICES, read_record

from tests import pages
from tests.end_to_end.driver import SCRIPTS, run, start
from tests.needs import framework

from .ray_nodes import add_gpu, head

pytestmark = [pytest.mark.frameworks, pytest.mark.timeout(600)]

SHORT = ("--budget", "20s", "--goal", "memory", "--sizes", "8,16", "--no-profile")
WORDS = ("run", "--engine", "ray", "--device", "cpu")


@pytest.fixture(scope="module")
def bare():
    with head() as (cluster, variables):
        yield cluster, variables


@pytest.fixture(scope="module")
def ray(bare):
    cluster, variables = bare
    for kind in ("A100", "V100"):
        add_gpu(cluster, kind)
    return variables


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "model.py").write_text((SCRIPTS / "plain.py").read_text())
    return tmp_path


def run_job(folder, variables):
    """Runs `job.py`; Ray starts a dozen processes for it, which a busy machine does slowly."""
    log = folder / "job.log"
    try:
        with log.open("w") as output:
            done = subprocess.run(
                [sys.executable, "job.py"], cwd=folder, env={**os.environ, **variables},
                stdout=output, stderr=subprocess.STDOUT, check=False, timeout=500,
            )  # fmt: skip
    except subprocess.TimeoutExpired:
        pytest.fail(f"job.py did not end:\n{log.read_text()[-8000:]}")
    assert done.returncode == 0, log.read_text()


def test_a_cluster_without_gpus(bare, folder):
    """The first test: nodes are added below."""
    _, variables = bare
    done = run(*WORDS, "model.py", folder=folder, variables=variables)
    done.assert_refused()
    assert "has no GPUs" in done.error


def test_a_probe_for_each_type_of_the_cluster(ray, folder):
    [line] = pages.on_a_cluster("ray")
    _, verb, *words = shlex.split(line)
    added = ("--device", "cpu", "-o", "out", *SHORT)
    done = run(verb, *added, *words, folder=folder, variables=ray)
    assert done.code == 0, done
    record = msgspec.json.decode((folder / "out" / DEVICES).read_bytes(), type=DevicesRecord)
    assert [(each.device, each.model, each.error) for each in record.devices] == [
        ("a100", "A100", ""), ("v100", "V100", ""),
    ]  # fmt: skip
    for name in ("a100", "v100"):
        sizes = [trial.batch_size for trial in read_record(folder / "out" / name).trials]
        assert list(dict.fromkeys(sizes)) == [8, 16]  # a busy machine has one measured again
        assert f"{name}: running, on " in done.stderr
        assert f"{name}: batch 16" in done.stderr
    assert done.left == []


@pytest.mark.slow
def test_ctrl_c_brings_home_what_was_measured(ray, folder):
    command = start(
        *WORDS, "--budget", "200s", "--no-profile", "-o", "out", "model.py",
        folder=folder, variables=ray,
    )  # fmt: skip
    measured = []

    def is_measured():
        logs = [path for path in (folder / "out").glob("*.log") if "  ok" in path.read_text()]
        measured[:] = [path.stem for path in logs]
        return measured

    command.wait_for(is_measured, "a trial")
    command.press_ctrl_c()
    done = command.finish()
    assert done.code == 130, done
    for name in measured:
        assert read_record(folder / "out" / name).state == "interrupted"
        assert read_record(folder / "out" / name).trials
    assert done.left == []


def test_the_callback_in_a_worker(ray, folder):
    """The code of the page, on a node of the cluster."""
    [block] = [
        block for block in pages.all_blocks() if block.text.startswith("# in a worker of Ray")
    ]
    (folder / "job.py").write_text(block.text.replace("runs/a100", str(folder / "runs/a100")))
    run_job(folder, ray)
    record = read_record(folder / "runs/a100")
    assert (record.state, record.trials[0].batch_size) == ("finished", 32)


@pytest.mark.slow
def test_the_callback_in_ray_train_and_ray_tune(ray, folder):
    """The code of the page: two ranks, then two trials."""
    framework("pandas")
    framework("pyarrow")  # of ray[train]
    [block] = [block for block in pages.all_blocks() if block.text.startswith("# in Ray Train")]
    (folder / "job.py").write_text(block.text.replace("/shared", str(folder)))
    run_job(folder, {**ray, "HOME": str(folder)})
    for rank in ("runs/train", "runs/train/rank-0001"):
        record = read_record(folder / rank)
        assert (record.distribution.world_size, record.trials[0].batch_size) == (2, 32)
    for size in (32, 64):
        record = read_record(folder / f"runs/tune-{size}")
        assert (record.state, record.trials[0].batch_size) == ("finished", size)


def test_a_type_whose_gpu_stays_taken(ray, folder):
    from batchadvisor.features.plan.engines.ray_cluster import types_of

    assert types_of([{"GPU": 0.0, "accelerator_type:T4": 1.0}]) == []
    done = run(*WORDS, "--time-limit", "1s", "-o", "out", "model.py", folder=folder, variables=ray)
    assert done.code == 1
    assert "within --time-limit 1.0 s" in done.error
    assert done.left == []


@pytest.mark.parametrize("address", ["127.0.0.1:1", "no address"])
def test_no_cluster_answers(folder, address):
    variables = {"RAY_ADDRESS": address, "RAY_TMPDIR": str(folder)}
    done = run(*WORDS, "model.py", folder=folder, variables=variables)
    done.assert_refused()
    assert "no Ray cluster answers" in done.error
