"""The callback in real fits of Keras 3, on each of its backends in a process of its own.

The one on JAX starts as a user starts it, without torch.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from batchadvisor.advisor.advise import advise
from batchadvisor.session.recording.store import read_record

from ..end_to_end.preloaded import Forked
from ..needs import framework_of_scripts
from .preloads import KERAS

pytestmark = pytest.mark.frameworks

SCRIPT = Path(__file__).with_name("keras_loop.py")


def started(folder, environment):
    """Exit code and errors of the script in an interpreter of its own."""
    # Most of its fits are alike, and their steps are compiled once.
    cache = {
        "JAX_COMPILATION_CACHE_DIR": str(folder / "compiled"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(folder)],
        capture_output=True,
        text=True,
        check=False,
        env={**environment, **cache},
        cwd=folder,
        timeout=280,
    )
    return done.returncode, done.stderr


@pytest.fixture(
    scope="module",
    params=["torch", "tensorflow", pytest.param("jax", marks=pytest.mark.slow)],
)
def run(request, tmp_path_factory):
    """Backend, folder, and what the script saw."""
    backend = request.param
    for name in ("keras", backend):
        framework_of_scripts(name)
    folder = tmp_path_factory.mktemp(backend)
    environment = {
        **os.environ,
        "KERAS_BACKEND": backend,
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "OMP_NUM_THREADS": "1",
    }
    if backend == "jax":
        code, said = started(folder, environment)
    else:
        preload = KERAS[backend]
        fork = Forked((folder,), script=SCRIPT, cwd=folder, env=environment, preload=preload)
        said = fork.communicate(timeout=280)[1]
        code = fork.returncode
    assert code == 0, said
    return backend, folder, json.loads((folder / "found.json").read_text())


def test_the_training_is_the_same_to_the_bit(run):
    results = run[2]
    assert results["plain"] == results["watch"]
    assert len(results["plain"][0]) == 21


def test_it_counts_what_the_loop_did(run):
    backend, folder, _ = run
    record = read_record(folder / "watch")
    observed = record.observed
    assert record.state == "finished"
    assert observed.framework == f"keras ({backend})"
    assert (observed.num_steps, observed.num_samples, observed.num_epochs) == (21, 300, 3)
    assert {size.batch_size: size.num_micro_batches for size in observed.sizes} == {16: 18, 4: 3}


def test_what_it_found_out(run):
    backend, folder, _ = run
    record = read_record(folder / "watch")
    discovery = record.discovery
    assert (discovery.native_batch_size, discovery.micro_batches) == (16, 1)
    assert discovery.primary.num_samples == 100
    assert discovery.optimizers[0].name == "AdamW"
    assert discovery.optimizers[0].learning_rate == pytest.approx(1e-3)
    assert discovery.norm_layers.batch_norm == 1
    trial = record.trials[0]
    assert trial.step_s.median > 0
    assert trial.memory.peak_bytes > 0
    assert trial.tail.num_samples == 4
    assert advise(record).recommended.batch_size == 16
    if backend == "torch":
        assert trial.profile.operators_pct > 0
    else:
        assert trial.profile is None
        assert "does not see" in trial.unavailable["profile"]
    if backend == "tensorflow":
        assert trial.input_wait_s is None
        assert "fetches inside its step" in trial.unavailable["input_wait_s"]
    else:
        assert 0 < trial.input_wait_s.median < trial.step_s.median


def test_accumulation(run):
    _, folder, results = run
    record = read_record(folder / "accumulate")
    # 21 batches in pairs; the last one is left over.
    assert record.observed.num_steps == results["steps"] == 10
    assert record.observed.num_samples == 300
    assert record.discovery.micro_batches == 2


def test_accumulation_under_a_loss_scale(run):
    """The optimizer inside of the one that scales the loss is the one that accumulates."""
    record = read_record(run[1] / "scaled")
    assert record.observed.num_steps == 10
    assert record.discovery.micro_batches == 2
    assert record.discovery.optimizers[0].name == "AdamW"


def test_a_rank_has_a_folder_of_its_own(run):
    """In that of another it would be refused, and the training would end."""
    observed = read_record(run[1] / "ranks" / "rank-0001").observed
    assert (observed.rank, observed.world_size) == (1, 2)
    assert observed.num_samples == 300


def test_several_steps_in_one_call(run):
    backend, folder, results = run
    if backend == "torch":
        assert "per_call" not in results
        return
    observed = read_record(folder / "per_call").observed
    assert observed.num_steps == results["per_call"] == 21
    assert observed.num_samples == 300


def test_validation_belongs_to_no_step(run):
    observed = read_record(run[1] / "validate").observed
    assert (observed.num_steps, observed.num_samples) == (15, 240)


def test_an_exception_passes_unchanged(run):
    _, folder, results = run
    assert results["same"] is True
    record = read_record(folder / "raise")
    assert record.state == "failed"
    assert record.faults[0].detail == "BoomError: mine"
    # Callbacks run in order: the one that raised at the fifth batch stands before ours.
    assert record.observed.num_steps == 4


def test_an_exception_inside_a_step(run):
    _, folder, results = run
    assert results["in_step"]
    record = read_record(folder / "step")
    assert record.state == "failed"
    assert record.faults[0].detail.startswith(results["in_step"])
    assert record.observed.num_steps == 5
    assert results["train_function"] is False


def test_a_watched_training_on_jax_imports_no_torch(run):
    backend, _, results = run
    assert results["torch"] is (backend != "jax")


def test_no_torch_where_it_is_not_wanted(tmp_path):
    """On TensorFlow and JAX our own part imports no torch."""
    framework_of_scripts("keras")
    code = (
        "import sys, batchadvisor.callback.step_counter, batchadvisor.callback.recorder,"
        " batchadvisor.callback.watch; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)
