"""`find_batch_size`: the batch size for a training that runs in this process already."""

from __future__ import annotations

import contextlib
import html
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ..errors import BatchAdvisorError, RunError, UsageError
from ..records import Advice, GoalKind, Spread
from ..units import parse_seconds
from .answer import brief_text
from .api import ProbedRun, check_numbers, probed
from .live_function import LiveStep
from .setup.checked_options import PYTHON, checked_options
from .setup.goals import goal_from
from .setup.options import RunOptions

if TYPE_CHECKING:
    from torch.utils.data import DataLoader

    from ..probes.distributed.live_ranks import LiveRanks
    from ..probes.doors.step_on_batches import Batches, StepOnBatches
    from ..probes.worker.live import LocalWorker
    from ..probes.worker.training_state import TrainingState

REPR_WIDTH = 100


class FoundBatchSize(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `find_batch_size`. Its `repr` is the answer on one screen.

    Attributes:
        record: of the run, with its folder.
        not_restored: what of the training is not as it was before, in words; empty where nothing
            is known to differ.
    """

    record: ProbedRun
    not_restored: tuple[str, ...] = ()

    @property
    def advice(self) -> Advice:
        """The whole advice."""
        return self.record.advice

    @property
    def batch_size(self) -> int | None:
        """The recommended size, of each rank where there are several; `None` where none is."""
        return self.record.batch_size

    @property
    def ratio(self) -> float | None:
        """Samples per second of `batch_size` over those of the size in use.

        1 where it is that size, `None` where the two were not compared.
        """
        if self._is_own:
            return 1.0
        compared = self._compared
        return None if compared is None else compared.median

    @property
    def interval(self) -> tuple[float, float] | None:
        """Where the ratio lies, (lowest, highest); `None` as above."""
        if self._is_own:
            return 1.0, 1.0
        compared = self._compared
        return None if compared is None else (compared.low, compared.high)

    @property
    def why(self) -> str:
        """The reason in words."""
        return self.advice.reason

    @property
    def sureness(self) -> str:
        """`confirmed`, `not confirmed`, `measured once`, `partial` or `none`."""
        return self.advice.sureness

    @property
    def _is_own(self) -> bool:
        native = self.advice.native
        return native is not None and native.batch_size == self.batch_size

    @property
    def _compared(self) -> Spread | None:
        return None if self.batch_size is None else self.advice.against_own

    def __repr__(self) -> str:
        folder = Path(self.record.folder)
        text = brief_text(self.record, self.advice, folder, width=REPR_WIDTH, color=False)
        return "\n".join([text.rstrip("\n"), *map(_not_restored, self.not_restored)])

    def _repr_html_(self) -> str:
        notes = "".join(f"<p>{html.escape(_not_restored(each))}</p>" for each in self.not_restored)
        return self.record._repr_html_() + notes


def find_batch_size(
    train_step: Callable[[Any], Any],
    make_batch: Callable[[int], Any] | None = None,
    *,
    loader: DataLoader[Any] | None = None,
    own: int | None = None,
    goal: GoalKind = "knee",
    budget: float | str = 120.0,
    device: str = "auto",
    sizes: Sequence[int] = (),
    start: int | None = None,
    max_batch: int | None = None,
    multiple_of: int = 1,
    margin: float = 0.05,
    tolerance: float = 0.05,
    profile: bool = True,
    num_samples: int | None = None,
    memory_limit_bytes: int | None = None,
    state: Sequence[Any] = (),
    output: str | Path | None = None,
    quiet: bool = False,
) -> FoundBatchSize:
    """Finds the batch size for a training of this process, which then goes on as it was.

    >>> import tempfile, torch
    >>> model = torch.nn.Linear(64, 64)
    >>> optimizer = torch.optim.AdamW(model.parameters())
    >>> def train_step(batch):
    ...     optimizer.zero_grad()
    ...     model(batch).square().mean().backward()
    ...     optimizer.step()
    >>> def make_batch(size):
    ...     return torch.randn(size, 64)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     found = find_batch_size(
    ...         train_step, make_batch, own=8, goal="memory", max_batch=32, quiet=True,
    ...         output=folder,
    ...     )
    >>> found.batch_size, len(optimizer.state)
    (32, 0)

    In a job of torch.distributed every rank calls it; all try the same sizes and get the same
    answer, which is the size of one rank.

    Afterwards all modules, optimizers, schedulers and gradient scalers of the process are as they
    were, and so are the random generators and plain values that `train_step` can reach. What is
    known to differ is in `not_restored`.

    Args:
        train_step: makes one whole step of the batch that it is given: forward, backward,
            optimizer.
        make_batch: takes a size, returns a batch of so many samples. It is called before each step;
            its time does not count.
        loader: instead of `make_batch`, a DataLoader that gives the batches. The waiting for them
            counts. Its own iterators stay where they are.
        own: the size in use, to compare with; that of the loader if not given.
        budget: seconds for all trials, or text such as "2m".
        device: the steps have to train there; `auto` takes any.
        profile: take traces.
        num_samples: samples of an epoch, for what the last batch does.
        memory_limit_bytes: what may be used on the device, by the whole process on a CPU, whose
            kernel refuses more; on a GPU it bounds what is tried.
        state: more objects to put back, with `state_dict` and `load_state_dict`.
        output: the folder of the run; a new one below `batchadvisor-runs` if not given.
        sizes, start, max_batch, multiple_of, margin, tolerance: as in `run`.

    Raises:
        UsageError: it cannot work as asked for.
        ScriptError: the step raised at its own size.
        RunError: the run failed.
        InterruptedRunError: interrupted; what was measured is in the record on disk.
    """
    from ..probes.distributed.live_ranks import live_ranks
    from ..probes.doors.step_on_batches import StepOnBatches
    from ..probes.worker.live import free_memory

    ranks = live_ranks()
    with contextlib.ExitStack() as last:
        if ranks is not None:
            last.callback(ranks.close)
        with _agreed(ranks):
            # Before a sampler of the script's own is tried: it may draw random numbers.
            kept = _kept(train_step, make_batch, loader, state)
            batches = _batches(make_batch, loader, max_batch)
            last.callback(batches.close)
            check_numbers(own=own, num_samples=num_samples)
            step = StepOnBatches(train_step, batches, own_size=own)
            name = getattr(train_step, "__name__", "train_step").strip("<>")
            options = checked_options(
                PYTHON,
                script=name,
                goal=goal_from(
                    {
                        "kind": goal,
                        "budget_s": _seconds(budget),
                        "sizes": sizes,
                        "start": start,
                        "max_batch": max_batch,
                        "multiple_of": multiple_of,
                        "margin": margin,
                        "tolerance": tolerance,
                        "profile": profile,
                    }
                ),
                device=device,
                memory_limit_bytes=memory_limit_bytes,
                output=output,
                command=("batchadvisor.find_batch_size", name),
                door="live",
                live=LiveStep(step, own, num_samples or step.info().num_samples, ranks),
                quiet=quiet or (ranks is not None and not ranks.leads),
            )
            step.before_size, step.before_step = kept.rewind_counters, kept.rewind_schedules
        if ranks is not None:
            _check_alike(ranks, options, step)
        notes: tuple[str, ...] = ()
        try:
            record = _probed_on(ranks, options)
        finally:
            batches.close()
            notes = kept.restore()
            free_memory()
        if ranks is not None:
            every = [note for part in ranks.gather(notes) for note in part]
            notes = tuple(dict.fromkeys(every))
        return FoundBatchSize(record=record, not_restored=notes)


def _probed_on(ranks: LiveRanks | None, options: RunOptions) -> ProbedRun:
    """The run of this process, or of all ranks, which get what rank 0 gets."""
    if ranks is None:
        return probed(options)
    from ..probes.distributed.live_ranks import Over, follow

    if not ranks.leads:
        result: ProbedRun = follow(ranks, lambda order: _worker(options, order, ranks))
        return result
    try:
        record = probed(options)
    except BaseException as error:
        ranks.tell(Over(error=error))
        raise
    ranks.tell(Over(result=record))
    return record


def _worker(options: RunOptions, order: Any, ranks: LiveRanks) -> LocalWorker:
    from ..probes.worker.live import LocalWorker

    assert options.live is not None
    return LocalWorker(
        options.live.step,
        order,
        batch_size=options.live.batch_size,
        num_samples=options.live.num_samples,
        log=Path(order.run_folder),
        on_progress=lambda _: None,
        ranks=ranks,
        device=options.device,
    )


def _batches(
    make_batch: Callable[[int], Any] | None, loader: Any, max_batch: int | None
) -> Batches:
    from ..probes.doors.step_on_batches import LoadedBatches, MadeBatches

    if (make_batch is None) == (loader is None):
        what = (
            "neither make_batch nor loader= was given"
            if loader is None
            else ("make_batch and loader= were both given")
        )
        raise UsageError(
            f"{what}: one of them gives the batches.",
            "Give make_batch, a function from a size to a batch, or a DataLoader as loader=.",
        )
    return LoadedBatches(loader) if make_batch is None else MadeBatches(make_batch, max_batch)


def _kept(train_step: Any, make_batch: Any, loader: Any, state: Sequence[Any]) -> TrainingState:
    from ..probes.worker.training_state import TrainingState

    for each in state:
        if not (hasattr(each, "state_dict") and hasattr(each, "load_state_dict")):
            raise UsageError(
                f"state= holds a {type(each).__name__}, which has no state_dict and "
                "load_state_dict.",
                "Name objects that have both.",
            )
    # Not what the loader itself holds: its iterators stay, and a twin of it gives the batches.
    dataset, sampler, batches, collate = (
        getattr(loader, name, None)
        for name in ("dataset", "sampler", "batch_sampler", "collate_fn")
    )
    parts = (dataset, sampler, batches, getattr(batches, "sampler", None))
    stateful = [part for part in (loader, *parts[:3]) if hasattr(part, "load_state_dict")]
    return TrainingState(
        [each for each in (train_step, make_batch, collate) if each is not None],
        owners=[part for part in parts if part is not None],
        generators=[getattr(loader, "generator", None)],
        others=(*state, *stateful),
    )


@contextlib.contextmanager
def _agreed(ranks: LiveRanks | None) -> Iterator[None]:
    """What is wrong on one rank ends the call on all of them, with an error of ours."""
    from ..probes.doors.declared import WorkloadError
    from ..probes.worker.training_state import StateNotKeptError

    error: BatchAdvisorError | None = None
    try:
        yield
    except WorkloadError as wrong:
        error = UsageError(wrong.reason, wrong.remedy)
    except StateNotKeptError as failed:
        error = RunError(f"{failed.reason}.", failed.remedy)
    except BatchAdvisorError as wrong:
        error = wrong
    if ranks is not None:
        ranks.raise_any(error)
    elif error is not None:
        raise error from None


def _check_alike(ranks: LiveRanks, options: RunOptions, step: StepOnBatches) -> None:
    """Fails on all ranks where they do not ask the same."""
    asked = ranks.gather((step.batch_size, options.goal, options.device))
    if any(other != asked[0] for other in asked):
        own = ", ".join(str(size) for size, _, _ in asked)
        raise UsageError(
            f"the ranks ask different questions (their own sizes: {own}).",
            "Call find_batch_size with the same arguments on every rank.",
        )


def _seconds(budget: float | str) -> float:
    if not isinstance(budget, str):
        return budget
    try:
        return parse_seconds(budget)
    except ValueError as error:
        raise UsageError(f"budget: {error}.", 'Give seconds, or text such as "2m".') from None


def _not_restored(what: str) -> str:
    return f"Not as before: {what}."
