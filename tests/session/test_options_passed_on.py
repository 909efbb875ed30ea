"""The options of a run: one way to them, and how other processes get them."""

import os
import subprocess
import sys
from pathlib import Path

import click
import msgspec
import pytest
from batchadvisor.cli.run import _options_of
from batchadvisor.cli.run import run as run_command
from batchadvisor.errors import UsageError
from batchadvisor.probes.source.named_size import SizePlace
from batchadvisor.probes.source.replaced import Replacement
from batchadvisor.records import BatchSizeSource, Goal, SourceLine
from batchadvisor.session import api
from batchadvisor.session.setup.checked_options import COMMAND_LINE, PYTHON, checked_options
from batchadvisor.session.setup.goals import goal_from
from batchadvisor.session.setup.options import RunOptions
from batchadvisor.session.setup.options_as_typed import (
    FLAGS,
    SHORT_OPTIONS,
    options_as_typed,
    with_options_typed,
)
from batchadvisor.session.setup.options_handed_over import hand_over, handed_over
from batchadvisor.session.workers.launcher import of_a_rank

TYPED = (
    *("run", "--goal", "memory", "--sizes", "8,4,8", "--memory-limit", "1GiB", "-qo", "out"),
    *("--profile-schedule", "1,1,2", "--stacks", "--nproc-per-node", "2", "-m", "train", "--lr"),
)
SOURCE = BatchSizeSource(place=SourceLine(file="a.py", line=1), before="B=4", template="B={}")
GIVEN = {
    "script": "a.py",
    "arguments": ("--lr", "0.1"),
    "module": True,
    "goal": Goal(kind="memory", sizes=(8, 4), max_batch=64),
    "budget_share": 0.5,
    "device": "cuda:1",
    "memory_limit_bytes": 1 << 33,
    "output": Path("out"),
    "resume": Path("in"),
    "loader": 1,
    "silence_s": 5.5,
    "profile_schedule": (1, 2, 4),
    "with_stack": True,
    "command": ("batchadvisor", "run", "a.py"),
    "door": "template",
    "forced": True,
    "place": SizePlace(
        name="B", number=4, source=SOURCE,
        replacement=Replacement(file="/a.py", line=1, column=2, end_line=1, end_column=3, number=4),
    ),
    "typed": ("--lr", "0.1"),
    "gpus": "all",
    "num_ranks": 2,
    "launcher": ("torchrun", "--nproc-per-node=2"),
    "tried": "workers,amp",
    "dry_run": True,
    "as_json": True,
    "brief": True,
    "verbose": True,
    "quiet": True,
    "debug": True,
    "verb": "estimate",
}  # fmt: skip
"""A value of each option that is not its default."""
COUNT = """
import os
from batchadvisor.session.setup.options_handed_over import handed_over
print(len(handed_over(os.environ).arguments))
"""


def options_of(*typed):
    """As the command line makes them."""
    values = run_command.make_context("run", list(typed)).params
    script, arguments = values.pop("script"), values.pop("arguments")
    return _options_of(
        script, arguments, as_json=values.pop("as_json"), launcher=(), options=values
    )


def test_a_run_from_python_has_the_command_that_does_the_same(monkeypatch):
    made = []
    monkeypatch.setattr(api, "probed", made.append)
    api.run(
        "pkg.train", "--lr", "0.1", module=True, goal="memory", budget_s=10, sizes=[8, 4],
        margin=0.1, profile=False, device="cuda:1", memory_limit_bytes=1 << 30, timeout_s=5.5,
        loader=1, output="out", worst_case=True, quiet=True,
    )  # fmt: skip
    (from_python,) = made
    verb, words = from_python.command[:2], from_python.command[2:]
    assert verb == ("batchadvisor", "run")
    typed = options_of(*words)
    for field in msgspec.structs.fields(RunOptions):
        if field.name != "command":
            assert getattr(typed, field.name) == getattr(from_python, field.name), field.name
    api.run("a.py", "-q", sizes=[])
    assert made[1].command == ("batchadvisor", "run", "a.py", "-q")


def test_words_of_a_place_that_was_found_are_none_of_the_typed():
    place = SizePlace(
        name="--bs", number=4, source=SOURCE, arguments=("-q", "--bs", "{batch_size}")
    )
    through = RunOptions(script="a.py", arguments=("-q",), forced=True).through(place)
    assert (through.script_words, through.typed_words) == (
        ("a.py", "-q", "--bs", "{batch_size}"),
        ("a.py", "-q"),
    )
    assert through.forced


@pytest.mark.parametrize(
    ("typed", "remedy", "said"),
    [
        (  # names of the script's own options are none of ours
            "--device cpu --budget 9s --loader 0 a.py --device cpu",
            "Type: batchadvisor run a.py --device cpu --bs {batch_size}.",
            "--device cpu --budget 9s a.py --device cpu --bs {batch_size}. It was not tried.",
        ),
        (
            "--set B={batch_size} --budget 9s a.py",
            "Leave it out: batchadvisor run a.py",
            "batchadvisor run --budget 9s a.py. It was not tried.",
        ),
        (
            "--set B={batch_size} a.py",
            "Type: batchadvisor run --template --set C={batch_size} a.py",
            "batchadvisor run --template --set C={batch_size} a.py. It was not tried.",
        ),
        (
            "--budget 9s --device cpu a.py",
            "Type batchadvisor run --set 'B C={batch_size}' --device gpu a.py in a.py's folder.",
            "9s --set 'B C={batch_size}' --device gpu a.py in a.py's folder. It was not tried.",
        ),
    ],
)
def test_what_a_proposed_command_keeps(typed, remedy, said):
    words = typed.split()
    num_script_words = len(words) - words.index("a.py")
    command = ["batchadvisor", "run", *words]
    assert with_options_typed(remedy, command, num_script_words).endswith(said)


def test_another_process_gets_what_was_typed(tmp_path):
    options = options_of(*TYPED[1:])
    environment = {**hand_over(options, tmp_path / "options.json"), "HOME": "/root"}
    assert handed_over(environment) == options
    assert environment == {"HOME": "/root"}  # what it starts itself is another command
    assert handed_over(environment) is None
    assert options.goal == Goal(kind="memory", sizes=(8, 4))
    assert (options.script, options.arguments, options.module) == ("train", ("--lr",), True)
    assert (options.output, options.quiet, options.num_ranks) == (Path("out"), True, 2)


def test_every_option_survives(tmp_path):
    """Whatever a field is given, another process gets the same."""
    values = {
        field.name: GIVEN[field.name]
        for field in msgspec.structs.fields(RunOptions)
        if field.name != "live"  # a function of this process
    }
    assert all(getattr(RunOptions(script="b.py"), name) != value for name, value in values.items())
    given = RunOptions(**values)
    back = handed_over(hand_over(given, tmp_path / "options.json"))
    assert msgspec.structs.asdict(back) == msgspec.structs.asdict(given)


def test_arguments_longer_than_a_variable_can_be(tmp_path):
    """Linux allows 128 KiB."""
    arguments = tuple(f"data/{number:06}.parquet" for number in range(20_000))
    given = RunOptions(script="a.py", arguments=arguments)
    variable = hand_over(given, tmp_path / "options.json")
    done = subprocess.run(
        [sys.executable, "-c", COUNT], env={**os.environ, **variable}, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert done.stdout == "20000\n", done.stderr


def test_a_rank_starts_no_others():
    options = msgspec.structs.replace(options_of(*TYPED[1:]), command=("batchadvisor", *TYPED))
    rank = of_a_rank(options)
    assert rank.num_ranks is None
    assert rank.command[:4] == ("batchadvisor", "run", "--nproc-per-node", "2")
    assert rank.command.count("--nproc-per-node") == 1
    assert rank.command[-3:] == ("-m", "train", "--lr")


@pytest.mark.parametrize(
    ("spelling", "values", "said"),
    [
        (COMMAND_LINE, {"timeout_s": 0.0}, "--timeout 0: every trial would count as hung."),
        (PYTHON, {"timeout_s": 0}, "timeout_s=0: every trial would count as hung."),
        (COMMAND_LINE, {"stacks": True}, "--no-profile contradicts --stacks and --profile-sched"),
        (PYTHON, {"profile_schedule": (0, 1, 3)}, "profile=False contradicts stacks and profile_"),
        (COMMAND_LINE, {"resume": "a", "output": "b"}, "--resume continues in its own folder; "),
        (PYTHON, {"resume": "a", "output": "b"}, "resume continues in its own folder; output nam"),
        (PYTHON, {"template": True}, "--template: no argument of a.py holds {batch_size}."),
        (COMMAND_LINE, {"setting": "B=4"}, "--set B=4 is not NAME={batch_size}."),
        (PYTHON, {"setting": "B"}, "setting='B' is not NAME={batch_size}."),
        (
            COMMAND_LINE,
            {"setting": "B={batch_size}", "loader": 1},
            "--set B={batch_size} says where",
        ),
        (COMMAND_LINE, {"setting": "B={batch_size}"}, "--set B={batch_size}: a.py sets no number"),
    ],
)
def test_both_doors_refuse_the_same(spelling, values, said):
    with pytest.raises(UsageError) as caught:
        checked_options(spelling, script="a.py", goal=Goal(profile=False), **values)
    assert str(caught.value).startswith(said)


@pytest.mark.parametrize("given", [{"margin": 1.0}, {"start": 0}, {"sizes": (8, 0)}, {"kind": "x"}])
def test_a_goal_that_cannot_be(given):
    with pytest.raises(UsageError):
        goal_from(given)


def test_of_a_goal_only_what_was_given_is_checked():
    stored = Goal(start=0, kind="memory")
    assert goal_from({"margin": 0.1}, stored) == Goal(start=0, kind="memory", margin=0.1)


@pytest.mark.parametrize(
    ("typed", "kept"),
    [
        ("--goal knee -ofar --goal=memory", ["--goal=memory", "-o", "far"]),
        ("--budget", ["--budget"]),
        ("--output=out --quiet", ["--output=out", "--quiet"]),
        ("--slurm-options -pgpu -q --gres x", ["--slurm-options", "-pgpu", "-q", "--gres", "x"]),
        ("--slurm-options=-pgpu -qofar", ["--slurm-options=-pgpu", "-q", "-o", "far"]),
        ("-qm -- ", ["-q", "-m"]),
        ("-q a.py --", ["-q"]),
        ("-q accelerate launch --cpu", ["-q"]),
        ("--budget 9s python", ["--budget", "9s"]),
    ],
)
def test_words_stay_as_typed(typed, kept):
    assert options_as_typed(["batchadvisor", "run", *typed.split(), "a.py"], 1) == kept


def test_every_flag_of_the_command_is_known():
    options = [each for each in run_command.params if isinstance(each, click.Option)]
    flags = {each.opts[-1] for each in options if each.is_flag and each.name != "help_all"}
    assert flags == FLAGS
    short = {each.opts[0]: each for each in options if len(each.opts[0]) == 2}
    assert {name: each.opts[-1] for name, each in short.items()} == {**SHORT_OPTIONS, "-m": "-m"}
    assert [name for name, each in short.items() if not each.is_flag] == ["-o"]
