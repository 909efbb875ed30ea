"""Where a script was that was not heard of: what its stacks in the log say."""

import pytest
from batchadvisor.probes.process.supervisor import line_of_the_script

STACKS = """\
printed before
Thread 0x00007f01 (most recent call first):
  File "{folder}/beside.py", line 3 in waits

Current thread 0x00007f02 (most recent call first):
  File "{torch}/nn/modules/linear.py", line 134 in forward
  File "{folder}/model.py", line 103 in forward
  File "{folder}/gpt.py", line 58 in estimate_loss
  File "{torch}/utils/_contextlib.py", line 124 in decorate_context
  File "{folder}/gpt.py", line 210 in <module>
  File "<string>", line 1 in <module>

Thread 0x00007f03 (most recent call first):
  File "{folder}/beside.py", line 9 in reads
"""


@pytest.fixture
def stood(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def ask(stacks):
        log = tmp_path / "script.log"
        before = "File of an earlier trial\n"
        packages = "/usr/lib/python3/site-packages/torch"
        log.write_text(before + stacks.format(folder=tmp_path, torch=packages))
        return line_of_the_script(log, len(before))

    return ask


def test_the_outermost_function_of_the_users_says_what_it_does(stood):
    assert stood(STACKS) == "gpt.py:58 in estimate_loss"


def test_without_a_function_the_line_is_named(stood):
    lines = [line for line in STACKS.splitlines() if "model.py" not in line and "58" not in line]
    assert stood("\n".join(lines)) == "gpt.py:210"


def test_without_a_stack_nothing_is_said(stood):
    assert stood("printed\n") == ""
