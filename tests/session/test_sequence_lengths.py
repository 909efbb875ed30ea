"""`{seq_len:...}` in a script's arguments."""

import msgspec
import pytest
from batchadvisor.advisor.advise import advise
from batchadvisor.errors import UsageError
from batchadvisor.records import Goal
from batchadvisor.session.setup.checked_options import COMMAND_LINE, checked_options

from ..on_paper import discovery_of, record_of, trial_of


def options_of(*arguments, **goal):
    return checked_options(COMMAND_LINE, script="train.py", arguments=arguments, goal=Goal(**goal))


@pytest.mark.parametrize(
    ("arguments", "worst_case", "filled", "lengths"),
    [
        (["--len", "{seq_len:2048/128/512}"], False, ["--len", "512"], (128, 512, 2048)),
        (["--len", "{seq_len:2048/128/512}"], True, ["--len", "2048"], (128, 512, 2048)),
        (["--len={seq_len:256/64}"], False, ["--len=64"], (64, 256)),
        # Braces of the script are typed twice.
        (["--name={{length}}-{{seq_len}}"], False, ["--name={length}-{seq_len}"], ()),
        (["{{max_len:4}}", "{{other}}"], False, ["{max_len:4}", "{{other}}"], ()),
        (["--n={{length}}", "--len={seq_len:8/16}"], False, ["--n={length}", "--len=8"], (8, 16)),
    ],
)
def test_a_length_is_filled_in(arguments, worst_case, filled, lengths):
    options = options_of(*arguments, worst_case=worst_case)
    assert options.arguments == tuple(filled)
    assert options.goal.seq_lens == lengths


def test_beside_a_size():
    options = options_of("--bs={batch_size}", "--len={seq_len:64/256}", worst_case=True)
    assert options.arguments == ("--bs={batch_size}", "--len=256")
    assert options.traits.size_is_argument


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["{seq_len}"], "names no lengths"),
        (["{seq_len:}"], "names no lengths"),
        (["{seq_len:12/x}"], "names no lengths"),
        (["{seq_len:0}"], "names no lengths"),
        (["{seqlen:12}"], "is not the placeholder for the length"),
        (["--name={length}"], r"is to get \{length\}, type \{\{length\}\}\."),
        (["{seq_len:12}", "{seq_len:13}"], "name other lengths"),
    ],
)
def test_what_is_refused(arguments, what):
    with pytest.raises(UsageError, match=what):
        options_of(*arguments)


@pytest.mark.parametrize("worst_case", [True, False])
def test_the_answer_says_which(worst_case):
    goal = Goal(worst_case=worst_case, seq_lens=(64, 256))
    discovery = msgspec.structs.replace(discovery_of(), door="template")
    record = record_of([trial_of(8, 0.1, peak=10**9)], goal=goal, discovery=discovery)
    findings = {finding.rule: finding for finding in advise(record).findings}
    assert "inputs.unordered" not in findings
    said = findings["inputs.seq_len"]
    assert (said.severity == "info") == worst_case
    assert f"sequences of {256 if worst_case else 64}," in said.message
