"""Loops whose steps are not plain: other rhythms, hooks, compilers, schedules that run out."""

import shutil

import pytest

from .driver import SCRIPTS
from .driver import run_preloaded as run

pytestmark = pytest.mark.slow

OPTIONS = ("--json", "-q", "-o", "out", "--no-profile", "--budget", "30s")
SIZES = ("--goal", "memory", "--sizes", "8,64")


def assert_both_ran(done):
    assert done.code == 0, done
    assert done.left == []
    trials = done.searched
    assert [(trial.batch_size, trial.outcome) for trial in trials] == [(8, "ok"), (64, "ok")]
    assert done.advice.recommended.batch_size == 64


def test_a_critic_that_steps_five_times(tmp_path):
    """The generator steps on every fifth batch; a cycle is five, and each has a step."""
    done = run("run", *OPTIONS, *SIZES, SCRIPTS / "critic.py", folder=tmp_path)
    assert_both_ran(done)
    discovery = done.record.discovery
    assert (discovery.micro_batches, discovery.pool) == (1, 5)
    assert done.advice.training.effective_before == 30
    assert [(optimizer.name, optimizer.trains) for optimizer in discovery.optimizers] == [
        ("RMSprop", True),
        ("RMSprop", True),
        ("SGD", False),
    ]
    assert {trial.micro_batches for trial in done.searched} == {1}
    larger = done.searched[1]
    assert larger.samples_per_s.median == pytest.approx(64 / larger.step_s.median)


def test_samples_left_out_by_the_collate_function(tmp_path):
    """One of 20; without a shuffle each batch of 64 has 60 or 61 that stay."""
    shuffled = (SCRIPTS / "leaves_out.py").read_text()
    assert "shuffle=True" in shuffled
    (tmp_path / "leaves_out.py").write_text(shuffled.replace("shuffle=True", "shuffle=False"))
    done = run("run", *OPTIONS, *SIZES, "leaves_out.py", folder=tmp_path)
    assert_both_ran(done)
    larger = done.searched[1]
    assert larger.mean_arrived == pytest.approx(0.95 * 64, rel=0.02)
    assert larger.samples_per_s.median * larger.step_s.median == pytest.approx(0.95 * 64, rel=0.02)
    assert "samples.left_out" in done.findings


def test_optimizers_in_backward_hooks(tmp_path):
    """Four optimizers, and a schedule that the script's own 16 steps use up."""
    script = SCRIPTS / "step_in_backward.py"
    done = run("run", *OPTIONS, *SIZES, script, folder=tmp_path)
    assert_both_ran(done)
    assert len(done.record.discovery.optimizers) == 4
    assert done.record.discovery.micro_batches == 1
    # More steps than the schedule has were made, in one process: at least nine for each size.
    timed = [trial for trial in done.record.trials if trial.worker == 0]
    assert sum(trial.num_warmup_steps + trial.step_s.num_samples for trial in timed) > 16


def steps_before_each_compilation(log, size):
    """How many batches of a size had been trained on when a graph was compiled for it."""
    counts, count = [], 0
    for line in log.splitlines():
        if line == f"batch {size}":
            count += 1
        elif line.startswith(("batch ", "started")):
            count = 0
        elif line == "compiling" and count:
            counts.append(count)
    return counts


@pytest.mark.parametrize("words", [(), ("--compile-step",)])
def test_compilation_is_swallowed_by_the_warm_up(tmp_path, words):
    done = run("run", *OPTIONS, *SIZES, SCRIPTS / "compiled.py", *words, folder=tmp_path)
    assert_both_ran(done)
    assert "compiling" in done.log
    for trial in done.searched:
        compiled = steps_before_each_compilation(done.log, trial.batch_size)
        # The first steps of a window warm up, at least three of them.
        assert max(compiled, default=0) <= trial.num_warmup_steps


def test_the_default_compiler(tmp_path):
    if shutil.which("c++") is None and shutil.which("g++") is None:
        pytest.skip("inductor needs a C++ compiler")
    words = ("--dry-run", SCRIPTS / "compiled.py", "--backend", "inductor", "--compile-step")
    # Neither processes that import torch to compile, nor headers compiled for later, nor vectors.
    names = ("COMPILE_THREADS", "CPP_CACHE_PRECOMPILE_HEADERS", "VEC_ISA_OK")
    values = zip(names, ("1", "0", "0"), strict=True)
    little = {f"TORCHINDUCTOR_{name}": value for name, value in values}
    done = run("run", "--timeout", "120s", *words, folder=tmp_path, variables=little)
    assert done.code == 0, done
    assert "1 x 16 = 16 samples" in done.stdout
