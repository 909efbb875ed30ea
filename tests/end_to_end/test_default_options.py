"""Every door at its default options, profile and FLOPs and all, on a script that its page names.

Keras has its own in tests/frameworks/test_run_keras.py, the notebook in tests/test_readme.py, the
callback in tests/callback/test_examples.py.
"""

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from .. import pages
from .driver import SCRIPTS, run_well

pytestmark = pytest.mark.slow

LONGER = ("--budget", "60s")
PUBLIC = Path(__file__).parents[2] / "bench/public"


@dataclass(frozen=True)
class Page:
    """What a page says to type.

    Attributes:
        own: the script's own size.
        options: beside the budget, which is no default here: the usual one of tests, or, of a
            script that is started for each size, a larger one.
    """

    door: str
    own: int
    words: tuple[str, ...]
    options: tuple[str, ...] = ()


PAGES = {
    "mnist": Page("loader", 64, ("mnist.py",)),
    "token_budget": Page("loader", 300, ("token_budget.py",)),
    "nanogpt": Page("template", 12, ("nanogpt.py", "--batch_size={batch_size}"), LONGER),
    "dqn": Page("template", 128, ("dqn.py", "--batch-size", "{batch_size}"), LONGER),
    "workload": Page("workload", 32, ("bench.py",), ("--workload",)),
}


@pytest.mark.parametrize("name", PAGES)
def test_what_its_page_says_to_type(tmp_path, name):
    page = PAGES[name]
    if name == "workload":
        (tmp_path / "bench.py").write_text(pages.python_block("# bench.py"))
    else:
        folder = SCRIPTS if (SCRIPTS / page.words[0]).exists() else PUBLIC
        shutil.copy(folder / page.words[0], tmp_path)
    done = run_well("run", *page.options, *page.words, folder=tmp_path)
    record = done.record
    assert (record.discovery.door, record.discovery.native_batch_size) == (page.door, page.own)
    assert record.faults == ()
    assert "batchadvisor itself failed" not in done.stdout + done.stderr
    ran = [trial for trial in record.trials if trial.outcome == "ok"]
    refused = {trial.outcome for trial in record.trials} - {"ok", "script_ended", "out_of_memory"}
    assert not refused, done
    own = next(trial for trial in ran if (trial.batch_size, trial.purpose) == (page.own, "search"))
    assert own.flops is not None, own.unavailable
    assert own.profile.trace is not None, own.unavailable
    assert len({trial.batch_size for trial in ran if trial.purpose == "search"}) > 1
