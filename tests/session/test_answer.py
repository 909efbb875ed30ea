"""How to go on with an interrupted run: the command as it was typed."""

from pathlib import Path

import msgspec
import pytest
from batchadvisor.advisor.advise import advise
from batchadvisor.advisor.measured.thresholds import BUDGET_SPENT
from batchadvisor.records import Distribution, FileTouched, Goal, RankInfo, RunRecord, ScriptInfo
from batchadvisor.session.answer import discovery_text, next_command

from ..on_paper import discovery_of, failure_of, record_of, trial_of


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
    record = RunRecord(
        state="interrupted",
        started_at="2026-11-21T00:00:00+00:00",
        command=("batchadvisor", "run", *typed.split(), path, *arguments),
        script=ScriptInfo(path=path, arguments=tuple(arguments)),
        goal=Goal(),
    )
    command = next_command(record, advise(record), Path("out"))
    assert command == f"batchadvisor run --resume out {said}"


RANKS = tuple(
    RankInfo(
        rank=index, local_rank=index, host="here", device="cpu", device_name="CPU", capacity_bytes=1
    )
    for index in range(2)
)


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
    record = RunRecord(
        state="interrupted",
        started_at="2026-11-21T00:00:00+00:00",
        command=("batchadvisor", "run", *typed.split(), "a.py"),
        script=ScriptInfo(path="a.py"),
        goal=Goal(),
        distribution=Distribution(world_size=2, launcher=launcher, ranks=RANKS),
    )
    assert next_command(record, advise(record), Path("out")) == said


def test_no_command_goes_on_with_a_live_function():
    record = record_of(
        [trial_of(8, 0.1, peak=1e9)],
        state="interrupted",
        command=("batchadvisor.probe", "step"),
        script=ScriptInfo(path="step"),
    )
    command = next_command(record, advise(record), Path("out"))
    assert command == "batchadvisor advise --goal memory out"


def test_a_search_that_the_budget_ended_goes_on_with_a_larger_one():
    """Where the answer says that other sizes may be better, the next command looks for them."""
    record = record_of(
        [trial_of(8, 0.1, peak=1e9), trial_of(32, 0.2, peak=2e9)],
        stop_reason=BUDGET_SPENT,
        command=("batchadvisor", "run", "--budget", "30s", "train.py"),
        script=ScriptInfo(path="train.py"),
        goal=Goal(budget_s=30.0),
    )
    advice = advise(record)
    assert "search.cut_short" in {finding.rule for finding in advice.findings}
    command = next_command(record, advice, Path("out"))
    assert command == "batchadvisor run --resume out --budget 120s train.py"
    other = advise(record, Goal(kind="memory", budget_s=30.0))
    assert next_command(record, other, Path("out")) != command
    whole = msgspec.structs.replace(record, stop_reason="done")
    assert "--resume" not in next_command(whole, advise(whole), Path("out"))


@pytest.mark.parametrize("kind", ["knee", "memory"])
def test_no_goal_leads_to_another_that_has_no_answer_either(kind):
    record = record_of([failure_of(4), failure_of(1)], goal=Goal(kind=kind))
    assert next_command(record, advise(record), Path("out")) == ""


@pytest.mark.parametrize(
    ("ranks", "said"),
    [(1, "Step: 4 x 8 = 32 samples; "), (2, "Step: 2 ranks x 4 x 8 = 64 samples; ")],
)
def test_a_dry_run_counts_the_samples_of_all_ranks(ranks, said):
    discovery = discovery_of(micro_batches=4, num_ranks=ranks)
    assert said in discovery_text(discovery, record_of().device)


def test_a_dry_run_says_what_a_step_is():
    several = discovery_of(steps_per_batch=4)
    device = record_of().device
    assert "Step: 4 optimizer steps for each 8 samples; " in discovery_text(several, device)
    unknown = discovery_of(micro_batches=3, unavailable={"optimizer_steps": "not as many"})
    text = discovery_text(unknown, device)
    assert "Step: not known of how many samples: not as many; " in text


def test_a_dry_run_names_the_files_that_were_written():
    files = [
        FileTouched(path="out/cache.bin", action="write"),
        FileTouched(path="model.pt", action="save (not written)"),
    ]
    text = discovery_text(discovery_of(), record_of().device, files)
    assert "What the script itself did to files\n  write  out/cache.bin" in text
    assert "Saves not written: model.pt." in text
    assert "files" not in discovery_text(discovery_of(), record_of().device)


def test_what_a_dry_run_shows_of_the_script_obeys_no_terminal():
    discovery = discovery_of()
    loader = msgspec.structs.replace(discovery.loaders[0], sampler="\x1b[31mMine\x07")
    discovery = msgspec.structs.replace(discovery, loaders=(loader,))
    text = discovery_text(discovery, record_of().device)
    assert "Mine" in text
    assert "\x1b" not in text
    assert "\x07" not in text
