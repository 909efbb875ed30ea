"""How to go on with an interrupted run: the command as it was typed."""

from pathlib import Path

import pytest
from batchadvisor.advisor.advise import advise
from batchadvisor.records import Goal, RunRecord, ScriptInfo
from batchadvisor.session.answer import next_command


@pytest.mark.parametrize(
    ("typed", "script", "said"),
    [
        ("", "train.py", "train.py"),
        ("", "train.py -o mine", "train.py -o mine"),
        ("--goal memory -o out --json", "train.py", "--goal memory train.py"),
        ("-q --resume out --", "train.py --", "-q train.py --"),
        ("-m", "package.train --lr 1", "-m package.train --lr 1"),
        ("--output=out --workload", "bench.py:make", "--workload bench.py:make"),
        ("--template", "gpt.py --bs {batch_size}", "--template gpt.py --bs '{batch_size}'"),
    ],
)
def test_it_keeps_the_goal_and_the_door(typed, script, said):
    path, *arguments = script.split()
    record = RunRecord(
        state="interrupted",
        started_at="2026-11-21T00:00:00+00:00",
        command=("batchadvisor", "run", *typed.split(), path, *arguments),
        script=ScriptInfo(path=path, arguments=tuple(arguments)),
        goal=Goal(),
    )
    command = next_command(record, advise(record), Path("out"))
    assert command == f"batchadvisor run --resume out {said}"
