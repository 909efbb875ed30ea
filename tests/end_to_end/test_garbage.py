"""What Python's garbage collector takes of a step, and the remedy."""

import pytest

from .driver import SCRIPTS, run


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.parametrize("freeze", [False, True])
def test_collections_are_a_part_of_the_step(freeze, tmp_path):
    """The remedy is applied in the second case."""
    arguments = ("--freeze",) if freeze else ()
    done = run(
        "run", "--json", "-q", "-o", "out", "--no-profile", "--budget", "20s", "--sizes", "2048",
        SCRIPTS / "collected.py", *arguments, folder=tmp_path,
    )  # fmt: skip
    assert done.code == 0, done
    found = done.findings
    assert ("steps.garbage" in found) is not freeze, done.record.trials[0].quality
    if not freeze:
        quality, step_s = done.record.trials[0].quality, done.record.trials[0].step_s
        assert quality.num_collections >= 1
        assert step_s.median > quality.collected_s > 0.05 * step_s.median
        assert "gc.freeze()" in found["steps.garbage"].remedy
