"""A script whose step keeps something, and the same with the remedy of the finding applied."""

import pytest

from .driver import ON_CPU, SCRIPTS, run_preloaded

pytestmark = pytest.mark.slow
OPTIONS = ("-q", "--json", "--no-profile", "-o", "out", "--sizes", "4,8,16", *ON_CPU)
KEEPS = "losses.append(loss)"
REMEDY = "losses.append(loss.item())"


def run(folder, keep):
    """The finding of a script that ends each step so; `None` without one."""
    folder.mkdir()
    text = (SCRIPTS / "tiny_gpt.py").read_text()
    text = text.replace("optimizer.step()", f"optimizer.step()\n            {keep}")
    (folder / "keeps.py").write_text("losses = []\n" + text)
    result = run_preloaded("run", *OPTIONS, "keeps.py", folder=folder)
    assert result.code == 0, result
    looks = [trial.kept for trial in result.record.trials if trial.kept is not None]
    assert sum(look.num_steps for look in looks) >= 30
    return next((f for f in result.advice.findings if f.rule == "memory.creep"), None)


def test_losses_with_their_graphs_are_found_and_the_remedy_ends_it(tmp_path):
    finding = run(tmp_path / "kept", KEEPS)
    assert finding.severity == "warning"
    assert "each step keeps 1 tensor more" in finding.message
    assert "`losses`, a list, with the graph" in finding.message
    assert REMEDY in finding.remedy
    assert run(tmp_path / "mended", REMEDY) is None
