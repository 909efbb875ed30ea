"""What the answer says beside the advice: the next command, what a dry run saw, files."""

from pathlib import Path

import msgspec
import pytest
from batchadvisor.advisor.advise import advise
from batchadvisor.advisor.measured.thresholds import BUDGET_SPENT
from batchadvisor.cli.common import wrote
from batchadvisor.records import Distribution, FileTouched, Goal, RankInfo, ScriptInfo
from batchadvisor.session.answer import discovery_text, next_command, report_command

from ..on_paper import discovery_of, failure_of, loader_of, record_of, trial_of


def following(record, goal=None):
    """The next command of a run in the folder `out`."""
    return next_command(record, advise(record, goal), Path("out"))


@pytest.mark.parametrize(
    ("typed", "script", "said"),
    [
        ("", "train.py", "train.py"),
        ("", "train.py -o mine", "train.py -o mine"),
        ("--goal memory -o out --json", "train.py", "--goal memory train.py"),
        ("-q --resume out --", "train.py --", "-q train.py --"),
        ("-qo out --goal memory", "train.py", "-q --goal memory train.py"),
        ("-moout", "package.train", "-m package.train"),
        ("-m", "package.train --lr 1", "-m package.train --lr 1"),
        ("--output=out --workload", "bench.py:make", "--workload bench.py:make"),
        ("--nproc-per-node 2", "train.py", "--nproc-per-node 2 train.py"),
        ("--template", "gpt.py --bs {batch_size}", "--template gpt.py --bs '{batch_size}'"),
    ],
)
def test_it_keeps_the_goal_and_the_door(typed, script, said):
    path, *arguments = script.split()
    command = ("batchadvisor", "run", *typed.split(), path, *arguments)
    script = ScriptInfo(path=path, arguments=tuple(arguments))
    record = record_of(state="interrupted", command=command, script=script)
    assert following(record) == f"batchadvisor run --resume out {said}"


def test_without_a_timed_step_there_is_no_answer_yet_and_more_time_helps():
    long = discovery_of(native_step_s=18.0)
    early = record_of([trial_of(8, peak=1)], discovery=long, stop_reason=BUDGET_SPENT)
    advice = advise(early)
    assert (advice.recommended, advice.standing) == (None, "not compared")
    assert advice.headline.startswith("No answer yet")
    assert "18" in advice.reason
    assert "--resume out" in following(early)
    assert "--budget" in following(early)
    other = advise(early, Goal(kind="throughput"))  # the record was made for another question
    assert other.headline == "No batch size can be recommended."


def test_a_longer_budget_has_time_for_a_second_size():
    """Beside the default it is what two sizes take, where a step takes half a minute."""
    for step_s, least, most in ((0.01, 120, 120), (30.0, 400, 2000)):
        record = record_of(
            [trial_of(8, step_s, peak=1)],
            discovery=discovery_of(native_step_s=step_s),
            stop_reason=BUDGET_SPENT,
            goal=Goal(budget_s=20.0),
        )
        budget = following(record).partition("--budget ")[2].partition("s ")[0]
        assert least <= int(budget) <= most


@pytest.mark.parametrize(
    ("launcher", "typed", "said"),
    [
        ("torchrun", "--nproc-per-node 2", "batchadvisor run --resume out --nproc-per-node 2 a.py"),
        ("torchrun", "", "batchadvisor run --nproc-per-node 2 --resume out a.py"),
        ("RANK and WORLD_SIZE", "", "batchadvisor run --nproc-per-node 2 --resume out a.py"),
        ("mpirun", "", "mpirun -np 2 batchadvisor run --resume out a.py"),
        ("srun", "-q", "srun -n 2 batchadvisor run --resume out -q a.py"),
        ("the script itself", "", "batchadvisor run --resume out a.py"),
    ],
)
def test_it_starts_as_many_ranks_again(launcher, typed, said):
    words = {"host": "here", "device": "cpu", "device_name": "CPU", "capacity_bytes": 1}
    ranks = tuple(RankInfo(rank=index, local_rank=index, **words) for index in range(2))
    record = record_of(
        state="interrupted",
        command=("batchadvisor", "run", *typed.split(), "a.py"),
        script=ScriptInfo(path="a.py"),
        distribution=Distribution(world_size=2, launcher=launcher, ranks=ranks),
    )
    assert following(record) == said


def test_no_command_goes_on_with_a_live_function():
    record = record_of(
        [trial_of(8, 0.1, peak=1e9)], state="interrupted", command=("batchadvisor.probe", "step")
    )
    assert following(record) == "batchadvisor advise --goal memory out"


def test_what_was_asked_for_stays_in_the_next_commands():
    """Another margin is another largest size: the next command and the report are of the same."""
    record = record_of(
        [trial_of(8, 0.1, peak=1e9), trial_of(32, 0.2, peak=2e9)], command=("batchadvisor.probe",)
    )
    asked = msgspec.structs.replace(record.goal, margin=0.2, tolerance=0.1)
    options = "--memory-margin 0.2 --tolerance 0.1"
    assert following(record, asked) == f"batchadvisor advise --goal memory {options} out"
    said = report_command(record, advise(record, asked), Path("out"))
    assert said == f"batchadvisor report {options} out -o report.html"
    assert report_command(record, advise(record), Path("out")) == (
        "batchadvisor report out -o report.html"
    )


def test_a_search_that_the_budget_ended_goes_on_with_a_larger_one():
    """Where the answer says that other sizes may be better, the next command looks for them."""
    record = record_of(
        [trial_of(8, 0.1, peak=1e9), trial_of(32, 0.2, peak=2e9)],
        stop_reason=BUDGET_SPENT,
        command=("batchadvisor", "run", "--budget", "30s", "train.py"),
        goal=Goal(budget_s=30.0),
    )
    assert "search.cut_short" in {finding.rule for finding in advise(record).findings}
    assert following(record) == "batchadvisor run --resume out --budget 120s train.py"
    assert "--resume" not in following(record, Goal(kind="memory", budget_s=30.0))
    assert "--resume" not in following(msgspec.structs.replace(record, stop_reason="done"))


@pytest.mark.parametrize("kind", ["knee", "memory"])
def test_no_goal_leads_to_another_that_has_no_answer_either(kind):
    record = record_of([failure_of(4), failure_of(1)], goal=Goal(kind=kind))
    assert following(record) == ""


def dry_run(files=(), **discovery):
    return discovery_text(discovery_of(**discovery), record_of().device, files)


UNKNOWN = {"optimizer_steps": "not as many"}


@pytest.mark.parametrize(
    ("discovery", "said"),
    [
        ({"micro_batches": 4, "num_ranks": 1}, "Step: 4 x 8 = 32 samples; "),
        ({"micro_batches": 4, "num_ranks": 2}, "Step: 2 ranks x 4 x 8 = 64 samples; "),
        ({"steps_per_batch": 4}, "Step: 4 optimizer steps for each 8 samples; "),
        (
            {"micro_batches": 3, "unavailable": UNKNOWN},
            "Step: not known of how many samples: not as many; ",
        ),
    ],
)
def test_a_dry_run_says_what_a_step_is(discovery, said):
    assert said in dry_run(**discovery)


def test_a_dry_run_names_the_files_that_were_written():
    text = dry_run(
        [
            FileTouched(path="out/cache.bin", action="write"),
            FileTouched(path="model.pt", action="save (not written)"),
        ]
    )
    assert "What the script itself did to files\n  write  out/cache.bin" in text
    assert "Saves not written: model.pt." in text
    assert "files" not in dry_run()


def test_what_a_dry_run_shows_of_the_script_obeys_no_terminal():
    text = dry_run(loader=loader_of(sampler="\x1b[31mMine\x07"))
    assert "Mine" in text
    assert not {"\x1b", "\x07"} & set(text)


@pytest.mark.parametrize(
    ("num_bytes", "size"),
    [(0, "0 bytes"), (999, "999 bytes"), (1000, "1 kB"), (1499600, "1500 kB")],
)
def test_the_size_of_a_written_file_is_never_rounded_to_nothing(tmp_path, capsys, num_bytes, size):
    path = tmp_path / "plan.md"
    path.write_bytes(b"x" * num_bytes)
    wrote("plan", path)
    assert capsys.readouterr().out == f"Wrote plan  {path} ({size})\n"
