"""Real runs of small scripts under frameworks."""

from ..end_to_end.driver import SCRIPTS, start
from ..end_to_end.preloaded import TORCH

SIZES = (8, 64)
OPTIONS = ("--json", "-q", "-o", "out", "--no-profile", "--goal", "memory")


def probed(name, folder, *words, options=OPTIONS, preload=TORCH):
    """The run of a script of tests/scripts at SIZES.

    Args:
        preload: what its processes have before; `None` starts them as a user does.
    """
    (folder / name).write_text((SCRIPTS / name).read_text())
    sizes = ("--sizes", ",".join(map(str, SIZES)))
    given = {} if preload is None else {"preloaded": True, "preload": preload}
    # Where nothing was imported before, that counts too (Lightning alone takes half a minute beside
    # other tests on slow cores); the last budget given is the one.
    options = (*options, "--budget", "90s", *sizes)
    return start("run", *options, name, *words, folder=folder, **given).finish()


def assert_steered(done, *, native, micro_batches, num_samples):
    """Both sizes arrived, in steps of as many micro-batches as the script makes."""
    assert done.code == 0, done
    assert done.left == []
    discovery = done.record.discovery
    assert discovery.door == "loader"
    assert discovery.native_batch_size == native
    assert discovery.micro_batches == micro_batches
    assert discovery.primary.num_samples == num_samples
    assert discovery.primary.steered == "exact"
    trials = [trial for trial in done.record.trials if trial.purpose == "search"]
    assert [(trial.batch_size, trial.outcome, trial.arrived_batch_size) for trial in trials] == [
        (size, "ok", size) for size in SIZES
    ]
    assert {(trial.size_proof, trial.micro_batches) for trial in trials} == {
        ("shape", micro_batches)
    }
    assert done.advice.recommended.batch_size == SIZES[-1]


def assert_longest_first(done):
    """With `--worst-case` every trial of a size began with the longest samples, so many."""
    assert "worst_case" not in done.record.discovery.unavailable
    chosen = {
        (trial.batch_size, trial.inputs.chosen.length, trial.inputs.chosen.num_samples)
        for trial in done.record.trials
        if trial.purpose == "search"
    }
    assert chosen == {(size, "longest", size) for size in SIZES}
