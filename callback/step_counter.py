"""The framework-neutral core: told of runs, steps and micro-batches; keeps constant memory.

    on_run_begin ─┬─ on_step_begin ── on_microbatch ... ── on_step_end ─┬─ on_run_end
                  └──────────────── on_pause, on_oom ──────────────────┘

A step lasts from its begin to the begin of the next one, so that whatever the loop does after the
optimizer's step (reading the loss, logging) is in it, and each step holds one fetch of data for
each micro-batch. `on_pause` ends a step where something else follows: validation, the end of an
epoch. Where the device is the CPU, the host's clock times each step. Any other device runs behind
the host: its steps are timed in stretches (see device_times.py) and never one by one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Protocol

from .device_times import Pacer
from .step_kinds import StepKind, Stretch

MAX_KINDS = 64
"""Kinds of steps (size, micro-batches) that are told apart, so that memory stays bounded."""
WARMUP_STEPS = 3
"""First steps of a run that are not timed: compilation, allocation, caches."""
MAX_UNSETTLED = 16
NEVER = 1 << 62


class Listener(Protocol):
    """Whoever does the slow things, at a boundary between two steps."""

    def boundary(self, core: Core, now_ns: int) -> None:
        """It is due: the first step is over, `due_ns` has passed, or `due_step` was reached."""

    def pause(self, core: Core) -> None:
        """Something that is no training follows; the step before it is closed."""

    def growth(self, core: Core) -> None:
        """A larger micro-batch than all before will run next."""

    def look(self, core: Core) -> None:
        """The step `look_step` ended; takes a few microseconds."""


class Core:
    """Counts and times; every other measurement hangs on its boundaries.

    Args:
        listener: told when something slow is due; never inside a step.
        clock: monotonic nanoseconds; the process's own if not given.
        stated: samples of a micro-batch that does not tell; `None` where nobody knows.

    Attributes:
        pacer: times the steps of a device that runs behind the host; `None` on a CPU, and until
            the first step has shown the device.
        mark_ns: when it wants its next mark.
        num_ended, num_skipped_steps, num_micro_batches, num_samples, num_tokens: whole run.
        num_unsized: micro-batches whose size is not known, and `num_stated`: as stated.
        sizes: micro-batches by size.
        num_other_sizes: micro-batches of sizes beyond `MAX_KINDS`.
        kinds: steps by (size, micro-batches), in the order of their first step.
        look_step: the step at whose end the listener reads the memory that is held.
        due_ns, due_step: when the listener wants the next boundary; `timing` is false while it
            disturbs the times (a profiler runs).
        last: (step, wait, samples, batch size) of the last timed step; a mean of the last ones on
            a device that runs behind the host.
        size: samples in the last micro-batch, and `step_size`: of the first one of its step.
        was_even: whether all micro-batches of the step that was closed last had one size.
        tails: samples of an epoch's last, shorter micro-batch, by the size that was usual in it.
        refused: (size, text) of an out-of-memory error.
    """

    def __init__(
        self,
        listener: Listener,
        *,
        clock: Callable[[], int] | None = None,
        stated: int | None = None,
    ) -> None:
        self._listener = listener
        self._stated = stated
        self._clock = clock or time.perf_counter_ns
        self.pacer: Pacer | None = None
        self.mark_ns = NEVER
        self.num_ended = 0
        self.num_micro_batches = 0
        self.num_samples = 0
        self.num_unsized = self.num_stated = 0
        self.num_skipped_steps = 0
        self.num_tokens = 0
        self.num_epochs = 0
        self.sizes: dict[int, int] = {}
        self.num_other_sizes = 0
        self.kinds: dict[tuple[int, int], StepKind] = {}
        self.due_ns = 0
        self.due_step = NEVER
        self.look_step = NEVER
        self.timing = True
        self.began_ns = 0
        self.last: tuple[int, int, int, int] | None = None
        self.size: int | None = None
        self.step_size: int | None = None
        self.was_even = True
        self.tails: dict[int, int] = {}
        self._epoch_began: dict[int, int] = {}
        self.refused: tuple[int | None, str] | None = None
        # Since the listener last looked: timed steps, their time, wait and samples.
        self.recent = [0, 0, 0, 0]
        self._begin_ns: int | None = None
        self._complete = False
        self._broken = False
        self._even = True
        self._in_call = False
        self._micro = 0
        self._samples = 0
        self._wait_ns = 0
        self._previous: tuple[int, int] | None = None

    # the six -----------------------------------------------------------------------------------

    def on_run_begin(self) -> None:
        """The loop is about to start."""
        self.began_ns = self._clock()

    def on_step_begin(self, now_ns: int | None = None) -> int:
        """A step begins, or goes on with its next micro-batch; a step that was ended is closed.

        Args:
            now_ns: when it did; now if not given.

        Returns:
            When it did; later, where the listener had something to do.
        """
        now = self._clock() if now_ns is None else now_ns
        if self._complete:
            now = self._close(now)
        if self._begin_ns is None:
            self._begin_ns = now
        return now

    def on_microbatch(self, num_samples: int | None, wait_ns: int = 0) -> None:
        """A micro-batch arrived.

        Args:
            num_samples: in it; `None` where it does not tell.
            wait_ns: how long the loop waited for it.
        """
        self.num_micro_batches += 1
        self._wait_ns += wait_ns
        self._micro += 1
        if num_samples is None and self._stated is not None:
            num_samples = self._stated
            self.num_stated += 1
        if num_samples is None:
            self.num_unsized += 1
            self._even = False
            self.size = None
            return
        self.num_samples += num_samples
        self._samples += num_samples
        self.size = num_samples
        if self._micro == 1:
            self.step_size = num_samples
        elif num_samples != self.step_size:
            self._even = False
        sizes = self.sizes
        if num_samples in sizes:
            sizes[num_samples] += 1
        elif len(sizes) < MAX_KINDS:
            sizes[num_samples] = 1
        else:
            self.num_other_sizes += 1

    def on_step_end(self, stepped: bool = True) -> None:
        """The optimizer stepped.

        Args:
            stepped: false where a gradient scaler refused the step.
        """
        if self._complete and not self.num_micro_batches:
            self._close(self._clock())  # nobody tells of fetches: each end is a step
        if not stepped:
            self.num_skipped_steps += 1
        if self._begin_ns is None:
            self._begin_ns = self._clock()  # a loop that tells of no begin: counted, not timed
            self._broken = True
        self._complete = True

    def on_oom(self, error: BaseException, batch_size: int | None = None) -> None:
        """Memory was refused.

        Args:
            error: as it was raised; it is only read.
            batch_size: of the micro-batch; if not given that of the step under way, of which a
                validation is no part.
        """
        text = f"{type(error).__name__}: {error}".splitlines()[0][:300]
        under_way = not self._complete and (self._micro or self._begin_ns is not None)
        if batch_size is None and under_way:
            batch_size = self.size
        self.refused = (batch_size, text)

    def on_run_end(self) -> None:
        """The loop is over, one way or another."""
        self.on_pause()

    # beside them -------------------------------------------------------------------------------

    def on_pause(self, *, epoch_ended: bool = False) -> None:
        """Something that is no training follows: the step that was ended is closed now.

        Args:
            epoch_ended: the data ran out.
        """
        if self._complete:
            self._close(self._clock())
        self._listener.pause(self)
        if self._micro:
            self._broken = True  # an accumulation goes on afterwards; its time means nothing
        if self.pacer is not None:
            if self._micro:
                self.pacer.spoil()
            self.pacer.pause(epoch_ended=epoch_ended)
            self.mark_ns = 0  # a piece begins as soon as the first step after it is over
        self._begin_ns = None
        self._previous = None
        if epoch_ended:
            self.num_epochs += 1
            self.note_tail()
            self._epoch_began = dict(self.sizes)

    def on_growth(self) -> None:
        """A larger micro-batch than all before arrived: peaks of memory are those of the others."""
        self._listener.growth(self)

    @property
    def num_steps(self) -> int:
        """Steps that the optimizer made."""
        return self.num_ended - self.num_skipped_steps

    def note_tail(self) -> int | None:
        """Keeps the last micro-batch if it is shorter than those before it in its epoch.

        Returns:
            The usual size of the epoch, where the last one was shorter.
        """
        before = self._epoch_began
        counts = {size: num - before.get(size, 0) for size, num in self.sizes.items()}
        usual = max(counts, key=counts.__getitem__, default=None)
        if self.size is None or usual is None or not self.size < usual or not counts[usual]:
            return None
        self.tails[usual] = self.size
        return usual

    @property
    def usual_size(self) -> int | None:
        """The most frequent size of a micro-batch."""
        return max(self.sizes, key=self.sizes.__getitem__) if self.sizes else None

    def on_execution(self, sizes: Sequence[int | None], micro_batches: int) -> None:
        """Several micro-batches that the framework ran in one call, since the step began.

        Args:
            sizes: samples in each.
            micro_batches: of them per optimizer step.
        """
        now, begin = self._clock(), self._begin_ns
        first = self.num_ended
        self._in_call = True
        for size in sizes:
            if self._begin_ns is None:
                self._begin_ns = now
            self.on_microbatch(size)
            if self._micro == micro_batches:
                self._broken = True  # the call's time is shared out below, not measured here
                self._close(now)
        self._in_call = False
        steps = self.num_ended - first
        self._begin_ns = None
        if self.pacer is not None:
            if now >= self.mark_ns:
                self._boundary(now, due=False)
            return
        whole = steps * micro_batches == len(sizes) and len(set(sizes)) == 1
        kind = self.kinds.get((self.step_size or 0, micro_batches))
        if whole and begin is not None and kind is not None and self.timing and first:
            kind.elapsed_ns += now - begin
            kind.times.add(((now - begin) // steps, 0))

    def _close(self, now: int) -> int:
        """Books the step that was ended; returns when the next one begins."""
        begin = self._begin_ns
        step_ns = now - begin if begin is not None else 0
        self.num_ended += 1
        if self._even and self._micro and self.step_size is not None:
            self._book(step_ns, (self.step_size, self._micro))
        else:
            self._previous = None
            if self.pacer is not None:
                self.pacer.spoil()
        self._complete = self._broken = False
        self.was_even = self._even
        self._even = True
        self._micro = self._samples = self._wait_ns = 0
        self._begin_ns = None
        if self.num_ended >= self.look_step:
            self._listener.look(self)
        due = now >= self.due_ns or self.num_ended >= self.due_step
        return self._boundary(now, due=due) if due or now >= self.mark_ns else now

    def _boundary(self, now: int, *, due: bool) -> int:
        """Between two steps: a mark, and what the listener wants to do; it belongs to no step."""
        if self.pacer is not None and not self._in_call:
            self.pacer.stop()
        if due:
            self._listener.boundary(self, now)
            now = self._clock()
        if self.pacer is not None and not self._in_call:
            if not self.timing:
                self.mark_ns = NEVER
            elif self.num_ended < WARMUP_STEPS:
                self.mark_ns = 0
            else:
                self.mark_ns = self.pacer.start(now, at_once=not due)
            now = self._clock()  # a full queue holds up who sets a mark; no loader is to blame
        return now

    def book_piece(self, kind: StepKind, piece: Stretch) -> None:
        """Steps of one kind that the device is through with."""
        kind.elapsed_ns += piece.elapsed_ns
        kind.stretches.add(piece)
        samples = kind.batch_size * kind.micro_batches
        step_ns, wait_ns = piece.elapsed_ns // piece.steps, piece.wait_ns // piece.steps
        self.last = (step_ns, wait_ns, samples, kind.batch_size)
        news = (*piece, samples * piece.steps)
        self.recent[:] = [before + new for before, new in zip(self.recent, news, strict=True)]

    def _book(self, step_ns: int, key: tuple[int, int]) -> None:
        kind = self.kinds.get(key)
        if kind is None:
            if len(self.kinds) >= MAX_KINDS:
                if self.pacer is not None:
                    self.pacer.spoil()
                return
            kind = self.kinds[key] = StepKind(*key)
        kind.num_steps += 1
        settled = self._previous == key and self.num_ended > WARMUP_STEPS
        self._previous = key
        undisturbed = self.timing and (self._in_call or not self._broken)
        if self.pacer is not None:
            self.pacer.step(kind, self._wait_ns, settled=settled and undisturbed)
            return
        if self._broken or not self.timing:
            return
        kind.elapsed_ns += step_ns
        wait_ns = self._wait_ns
        if not settled:
            if len(kind.unsettled) < MAX_UNSETTLED:
                kind.unsettled.append((step_ns, wait_ns))
            return
        kind.times.add((step_ns, wait_ns))
        self.last = (step_ns, wait_ns, self._samples, kind.batch_size)
        recent = self.recent
        recent[0] += 1
        recent[1] += step_ns
        recent[2] += wait_ns
        recent[3] += self._samples
