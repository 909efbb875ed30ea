"""When a run leaves the loader for the place of the size, and how it finds that again."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from batchadvisor.errors import RunError, UsageError
from batchadvisor.probes.process.endings import over
from batchadvisor.probes.process.messages import Raised
from batchadvisor.probes.source.named_size import find_size
from batchadvisor.records import BatchSizeSource, Distribution, Goal, SourceLine
from batchadvisor.reports.terminal.progress import NullDisplay
from batchadvisor.session.run import Run
from batchadvisor.session.setup.options import RunOptions
from batchadvisor.session.workers.failures import error_of
from batchadvisor.session.workers.size_in_script import SizeInScriptError
from batchadvisor.session.workers.template_workers import (
    TemplateWorkers,
    only_as_written,
    place_before,
    runs_only_as_written,
)
from batchadvisor.session.workers.worker_pool import WorkerPool
from msgspec.structs import replace

from ..end_to_end.driver import SCRIPTS
from ..on_paper import discovery_of, failure_of, loader_of, numbered, record_of, trial_of

CONFIGURED = """
class Config:
    batch_size: int = 20
train = DataLoader(data, batch_size=cfg.batch_size)
held_out = DataLoader(data, batch_size=64)
"""
WHOLE = """
import torch
from torch.utils.data import DataLoader, Dataset
MINI_BATCH = 16
torch.set_num_threads(1)
class Whole(Dataset):
    def __len__(self):
        return 4000
    def __getitem__(self, place):
        return torch.randn(MINI_BATCH, 8)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for batch in DataLoader(Whole(), batch_size=1, collate_fn=lambda items: items[0]):
    optimizer.zero_grad()
    model(batch).mean().backward()
    optimizer.step()
"""
OPTIONS = RunOptions(script=str(SCRIPTS / "constant_in_shapes.py"), device="cpu")


def refused(*sizes, outcome="exception", native=20):
    """The own size ran, and these did not."""
    trials = (trial_of(native, 0.1), *(failure_of(size, outcome) for size in sizes))
    return record_of(numbered(*trials), discovery=discovery_of(native=native))


def leaves(record, options=OPTIONS, *, is_last=False):
    return only_as_written(record, options, is_last=is_last) is not None


def test_a_multiple_of_its_own_and_another():
    assert leaves(refused(80, 40))
    assert leaves(refused(80, 10))
    place = only_as_written(refused(80, 40), OPTIONS, is_last=False).place
    assert (place.number, place.source.place.line) == (20, 7)


@pytest.mark.parametrize(
    "record",
    [
        refused(80),  # memory of another kind, a limit of a kernel
        refused(25, 30),  # it may want multiples of 20
        refused(80, 40, outcome="out_of_memory"),
        record_of(
            numbered(trial_of(20, 0.1), trial_of(40, 0.1), failure_of(80, "exception")),
            discovery=discovery_of(native=20),
        ),
    ],
    ids=["one", "no multiple", "memory", "another ran"],
)
def test_other_reasons(record):
    assert not leaves(record)


def test_one_is_enough_where_no_other_will_be_tried():
    assert leaves(refused(80), is_last=True)
    assert not leaves(refused(80, outcome="out_of_memory"), is_last=True)


def only_these(*sizes, outcome="no_step", **changes):
    """The loop was found, and these sizes were asked for without the own one."""
    trials = (failure_of(size, outcome) for size in sizes)
    return record_of(numbered(*trials), discovery=discovery_of(native=20, **changes))


def test_sizes_without_the_own_one():
    """The loop was found by steps of its own size: batches that make none are of the others."""
    test = "train.py:14 (x.size(0) != batch_size)"
    record = only_these(8, 16, leaves_out=test)
    assert leaves(record, is_last=True)
    what = runs_only_as_written(record, OPTIONS).what
    assert "only at its own batch size 20" in what
    assert what.endswith(f"leaves other batches out: {test}.")
    assert not leaves(only_these(8, 16, outcome="exception"), is_last=True)
    assert not leaves(only_these(20, 16), is_last=True), "nor does the own one"


def test_what_the_user_insists_on_stays():
    assert not leaves(refused(80, 40), replace(OPTIONS, loader=0))
    assert not leaves(refused(80, 40), replace(OPTIONS, door="template"))
    assert "only at its own batch size 20" in runs_only_as_written(refused(80), OPTIONS).what


def test_the_number_of_another_loader_is_not_its_size(tmp_path):
    """What the training loader's own size was traced to is."""
    script = tmp_path / "train.py"
    script.write_text(CONFIGURED)
    options = replace(OPTIONS, script=str(script))
    source = BatchSizeSource(
        place=SourceLine(file=str(script), line=3), before="batch_size: int = 20",
        template="batch_size: int = {}",
    )  # fmt: skip
    traced = loader_of(2000, batch_size=20, source=source)
    record = refused(80, 40)
    discovery = discovery_of(native=20, loader=traced)
    place = only_as_written(replace(record, discovery=discovery), options, is_last=False).place
    assert (place.number, place.replacement.line, place.source) == (20, 3, source)
    unknown = replace(record, discovery=discovery_of(native=20))
    assert only_as_written(unknown, options, is_last=False) is None


def test_a_typed_size_is_found_again_when_a_run_is_resumed():
    options = replace(OPTIONS, script=str(SCRIPTS / "constant_in_shapes.py"), arguments=("-b16",))
    source = BatchSizeSource(place=None, before="-b16", template="-b{}", option="-b")
    typed = loader_of(2000, batch_size=16, source=source)
    record = record_of(discovery=discovery_of(native=16, loader=typed, door="template"))
    assert place_before(record, options).arguments == ("-b{batch_size}",)


def test_a_size_that_is_computed_has_no_place():
    assert not leaves(refused(80, 40), replace(OPTIONS, script=str(SCRIPTS / "rollouts.py")))


def test_a_resumed_run_goes_in_where_it_went_in_before():
    place = only_as_written(refused(80, 40), OPTIONS, is_last=False).place
    through = loader_of(2000, batch_size=20, source=place.source)
    record = record_of(discovery=discovery_of(native=20, loader=through, door="template"))
    assert place_before(record, OPTIONS) == place
    assert place_before(record, replace(OPTIONS, door="template")) is None
    assert place_before(refused(), OPTIONS) is None, "it was steered through its loader"
    elsewhere = replace(place.source, place=replace(place.source.place, line=9))
    moved = loader_of(2000, batch_size=20, source=elsewhere)
    record = record_of(discovery=discovery_of(native=20, loader=moved, door="template"))
    with pytest.raises(UsageError, match="not found any more"):
        place_before(record, OPTIONS)


def test_ranks_that_the_script_starts_itself_have_no_command_to_type():
    """Started once for each size nobody would steer them."""
    job = Distribution(world_size=2, launcher="the script itself")
    error = runs_only_as_written(replace(refused(80, 40), distribution=job), OPTIONS)
    assert "--template" not in error.remedy
    assert "inputs.shape[0]" in error.remedy


@pytest.mark.slow
def test_without_time_to_start_again_a_resumed_run_does(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(WHOLE)
    goal = Goal(kind="memory", profile=False, sizes=(16, 48), budget_s=120)
    first = RunOptions(script="train.py", device="cpu", goal=goal, output=Path("out"))
    with monkeypatch.context() as patched, Run(first, NullDisplay()) as run:
        patched.setattr(Run, "_may_start_again", False)
        with pytest.raises(RunError, match="every step trained on 16 x 8 both times") as caught:
            run.search()
    assert "MINI_BATCH = 16 (train.py:4) sets the size" in caught.value.remedy
    assert "--resume" in caught.value.remedy
    again = replace(first, output=None, resume=Path("out"))
    with Run(again, NullDisplay()) as run:
        record = run.search().record
    assert record.discovery.door == "template"
    ran = [trial for trial in record.trials if trial.ran]
    assert ran[0].batch_size == 16
    assert all(trial.arrived_batch_size == trial.batch_size for trial in ran)


class TestMemoryRefusedAtTheStart:
    """A script that makes its batches itself, at a size that does not fit."""

    REFUSED = Raised(
        kind="RuntimeError", text="can't allocate", traceback="", out_of_memory=True,
        without_loader=True,
    )  # fmt: skip
    BY_ITSELF = RunOptions(script=str(SCRIPTS / "no_loader.py"), device="cpu")

    def test_no_loader_could_give_smaller_batches(self):
        found = error_of(over(self.REFUSED), self.BY_ITSELF, Path("log"), None)
        assert isinstance(found, SizeInScriptError)
        assert "no DataLoader was made" in found.said
        assert not isinstance(
            error_of(over(replace(self.REFUSED, without_loader=False)), self.BY_ITSELF, Path(), 1),
            SizeInScriptError,
        )

    @pytest.mark.parametrize(
        ("num_steps", "says"), [(0, "before its first step"), (3, "at its own size")]
    )
    def test_nothing_is_said_of_other_sizes_where_none_can_go_in(self, num_steps, says):
        message = replace(self.REFUSED, num_steps=num_steps)
        estimated = replace(self.BY_ITSELF, verb="estimate")
        assert says in str(error_of(over(message), estimated, Path("log"), None))

    @pytest.mark.parametrize("by_ranks", [True, False])
    def test_ranks_that_the_script_starts_would_train_in_earnest(self, by_ranks):
        pool, faults = object.__new__(WorkerPool), []
        pool._options, pool._by_ranks, pool._group = self.BY_ITSELF, by_ranks, None
        pool._writer = SimpleNamespace(
            store=SimpleNamespace(log_path=Path("log")),
            add_fault=faults.append,
            record=replace(record_of(), discovery=None),
        )
        with pytest.raises(RunError) as caught:
            pool._fail(over(self.REFUSED), 0, None)
        assert isinstance(caught.value, SizeInScriptError) != by_ranks
        assert ("--nproc-per-node 2" in caught.value.remedy) == by_ranks
        assert len(faults) == by_ranks

    def test_a_loader_that_is_made_later_is_no_reason_to_go_back(self):
        def refuse():
            raise error_of(over(self.REFUSED), self.BY_ITSELF, Path("log"), None)

        run = object.__new__(Run)
        run._options, run._display = self.BY_ITSELF, NullDisplay()
        run.writer = SimpleNamespace(record=replace(record_of(), discovery=None))
        run.workers = SimpleNamespace(start=refuse, close=lambda: None)
        run._workers_for = lambda _: SimpleNamespace(start=lambda: None)
        run.look()
        assert (run._options.door, run._options.forced) == ("template", True)

    def test_what_it_was_refused_is_tried_no_more(self):
        record = record_of(discovery=discovery_of(native=64, door="template"))
        workers = object.__new__(TemplateWorkers)
        workers._options = self.BY_ITSELF.through(find_size(self.BY_ITSELF.known_script))
        workers._display = NullDisplay()
        kept, started = [], []

        def add(trial):
            kept.append(trial)
            workers._writer.record = replace(record, trials=tuple(kept))

        def start_at(size):
            started.append(size)
            if size > 10:
                raise over(self.REFUSED)
            return "the process"

        workers._writer = SimpleNamespace(record=record, add_trial=add)
        workers._start_at, workers._settle_sizes = start_at, lambda _: None
        assert workers.start() == "the process"
        assert [(trial.batch_size, trial.outcome) for trial in kept] == [
            (size, "out_of_memory") for size in started[:-1]
        ]
        assert [trial.ordinal for trial in kept] == list(range(len(kept)))
        started.clear()
        workers.start()  # as a run does that is resumed
        assert max(started) <= 10
