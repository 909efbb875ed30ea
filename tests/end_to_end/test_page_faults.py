"""Steps that give their memory back to the system, and what keeps it."""

import platform

import pytest

from .driver import SCRIPTS, run

pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc")

SCRIPT = SCRIPTS / "remedies_gives_back.py"


@pytest.mark.slow
def test_memory_that_every_step_takes_anew(tmp_path):
    """The remedy is applied: the variables as the finding prints them."""
    options = ("--json", "-q", "--no-profile", "--sizes", "8", "--budget", "60s")
    alone = run("run", *options, "-o", "alone", SCRIPT, folder=tmp_path)
    assert alone.code == 0, alone
    finding = alone.finding("memory.page_faults")
    trial = next(each for each in alone.record.trials if each.step_s is not None)
    assert trial.quality.page_faults.num == pytest.approx(48 * 1024 / 4, rel=0.05)
    assert trial.quality.page_faults.allocator == "glibc"
    (line,) = finding.code
    assert line.startswith("export ")
    variables = [word.split("=") for word in line.split()[1:]]
    kept = run("run", *options, "-o", "kept", SCRIPT, folder=tmp_path, variables=variables)
    assert kept.code == 0, kept
    assert "memory.page_faults" not in kept.findings
    again = next(each for each in kept.record.trials if each.step_s is not None)
    if not (trial.contended or again.contended):  # else the two times are of the neighbours too
        assert again.step_s.median < trial.step_s.median
