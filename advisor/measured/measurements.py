"""Facts that follow from a record by arithmetic, each computed once; every decision starts here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any, Literal

import msgspec

from ...records import Discovery, Goal, Memory, RunRecord, Spread, Trial, Turns
from .epoch_end import has_harmful_tail
from .graph_pools import captures_graphs, overruled
from .length_risk import MAX_CHANCE, LengthRisk, packed, risk_of
from .multiples import Multiples, multiples_of, turned_down
from .refused import not_of_the_size
from .script import Script, script_of
from .speeds import Speeds, speeds_of, wander_of
from .token_pace import at_token_pace, rated_by_tokens, tokens_a_sample
from .trials import compared, latest_confirmation, peaks_of, pooled
from .usual_steps import padding_of_an_epoch

MAX_WIDENING = 1.5
"""Beyond this, room for longer batches is not guessed but looked for, with `--worst-case`."""


class Measurements(msgspec.Struct, frozen=True, dict=True, eq=False):
    """The facts of one record under one goal.

    What follows from them elsewhere is kept here too; see once.py. Everybody gets the same
    mappings, so nobody changes them.

    Attributes:
        record: what was measured, with the goal that is asked for. Where real tokens per second
            decide, the rates of its trials are put on their scale; see token_pace.py.
        measured_for: the goal that it was measured for.
    """

    record: RunRecord
    measured_for: Goal

    @classmethod
    def of(cls, record: RunRecord, goal: Goal | None = None) -> Measurements:
        """The facts of a record.

        Args:
            goal: asks another question of the same record.
        """
        at_pace = at_token_pace(record)
        return cls(at_pace, record.goal).under(record.goal if goal is None else goal)

    def under(self, goal: Goal) -> Measurements:
        """The facts of the same record under another goal; these where it is the same."""
        if goal == self.goal:
            return self
        return Measurements(msgspec.structs.replace(self.record, goal=goal), self.measured_for)

    @property
    def goal(self) -> Goal:
        """The goal of the run."""
        return self.record.goal

    @property
    def is_another_goal(self) -> bool:
        """Whether the record was measured, and confirmed, for another goal."""
        return self.goal != self.measured_for

    @cached_property
    def script(self) -> Script:
        """Facts about the script."""
        return script_of(self.record.discovery, self.record.trials)

    @cached_property
    def rated_by_tokens(self) -> bool:
        """Whether real tokens per second decide; the trials' rates are then theirs."""
        return rated_by_tokens(self.record)

    @cached_property
    def tokens_a_sample(self) -> float | None:
        """Real tokens of a sample over all trials; `None` where they are not surely known."""
        return tokens_a_sample(self.record.trials)

    @cached_property
    def epoch_padding(self) -> dict[int, float]:
        """Share of an epoch's positions that hold padding, by size as far as it is known."""
        return padding_of_an_epoch(self.record)

    @cached_property
    def epoch_samples(self) -> int | None:
        """Samples that this process draws in an epoch's training steps; `None` where unknown."""
        return self.script.epoch_samples()

    def named(self, size: int | str) -> str:
        """A size as people say it: `batch 32`, `max_tokens=512`."""
        discovery = self.record.discovery
        return f"batch {size}" if discovery is None else discovery.primary.named(size)

    @property
    def own_size(self) -> int | None:
        """The script's own batch size."""
        return self.script.own_size

    @cached_property
    def captures_graphs(self) -> bool:
        """Whether a process of the script was seen to hold pools of captured graphs."""
        return captures_graphs(self.record.trials)

    @cached_property
    def ran(self) -> tuple[Trial, ...]:
        """Trials in which the asked size arrived and the optimizer stepped; tails left out."""
        return tuple(trial for trial in self.record.trials if trial.ran and trial.says_of_size)

    @cached_property
    def sizes_that_ran(self) -> frozenset[int]:
        """The sizes of these."""
        return frozenset(trial.batch_size for trial in self.ran)

    @cached_property
    def timed(self) -> tuple[Trial, ...]:
        """Those of `ran` that measured time."""
        return tuple(
            trial for trial in self.ran if trial.kind == "timed" and trial.samples_per_s is not None
        )

    @cached_property
    def failed(self) -> tuple[Trial, ...]:
        """Trials that did not run, without Ctrl-C, tails and comparisons that the script cut short.

        Refusals beside the graphs of other sizes are left out too, where the size ran without them
        afterwards, and those of which the size is not to blame.
        """
        trials = self.record.trials
        return tuple(
            trial
            for trial in trials
            if not trial.ran
            and trial.says_of_size
            and trial.outcome != "interrupted"
            and not (self.captures_graphs and overruled(trials, trial))
            and not (trial.cut_short or not_of_the_size(trial, self.record.device))
        )

    @cached_property
    def too_short_for_turns(self) -> bool:
        """Whether the script ended before a comparison of its sizes did."""
        return any(trial.cut_short for trial in self.record.trials)

    @cached_property
    def multiples(self) -> Multiples:
        """Which sizes the script takes, maybe by a guess that the next trial has to bear out."""
        discovery, ran = self.record.discovery, set(self.sizes_that_ran)
        if discovery is not None and discovery.traits.steers_loader:
            ran.add(discovery.native_batch_size)  # the loop was found at this size
        return multiples_of(ran, turned_down(self.failed), self.goal.multiple_of)

    @cached_property
    def smallest_bad(self) -> int | None:
        """The size at and above which nothing is tried, `None` when nothing failed.

        Memory that was refused bounds all larger sizes. Any other failure bounds them only when
        nothing larger ran, and when multiples that did run do not explain it: a script may need a
        certain size and fail below it.
        """
        largest = max(self.sizes_that_ran, default=0)
        return min(
            (
                trial.batch_size
                for trial in self.failed
                if trial.outcome == "out_of_memory"
                or (trial.batch_size > largest and not self.multiples.explain(trial))
            ),
            default=None,
        )

    def known_bad(self, size: int) -> bool:
        """Whether a size failed, or memory was refused to a smaller one; it may have run before.

        A script that ended says nothing about the size at which it did.
        """
        bad = self.smallest_bad
        return (bad is not None and size >= bad) or any(
            trial.batch_size == size and trial.outcome != "script_ended" for trial in self.failed
        )

    def over_target(self, size: int) -> bool:
        """Whether a size is known to take more memory than a recommended one may."""
        target, memory = self.target_bytes, self.trusted_memory.get(size)
        measured = target is not None and memory is not None and memory.peak_bytes > target
        return measured or self.too_risky(size)

    def fits_but_for_lengths(self, size: int) -> bool:
        """Whether a size ran within the target, and the longest batches of an epoch would not."""
        target, memory = self.target_bytes, self.trusted_memory.get(size)
        fits = target is not None and memory is not None and memory.peak_bytes <= target
        return fits and self.too_risky(size)

    def too_risky(self, size: int) -> bool:
        """Whether the lengths of an epoch make a size run out of memory too often."""
        if size not in self._too_risky:
            refused = not packed(self.record) and any(  # of the longest alone no epoch packs any
                trial.purpose == "lengths"
                and trial.outcome == "out_of_memory"
                and trial.batch_size <= size
                for trial in self.record.trials
            )
            risk = self.length_risk
            often = isinstance(risk, LengthRisk) and risk.chance(size) > MAX_CHANCE
            self._too_risky[size] = refused or often
        return self._too_risky[size]

    @cached_property
    def length_risk(self) -> LengthRisk | str:
        """The memory risk of an epoch's lengths; why it is not known; or empty."""
        return risk_of(self.record)

    @cached_property
    def _too_risky(self) -> dict[int, bool]:
        return {}

    def ruled_out(self, size: int) -> bool:
        """Whether a size can be neither recommended nor tried again."""
        return self.known_bad(size) or self.over_target(size)

    def can_be_delivered(self, size: int) -> bool:
        """Whether the script's own loader would ever yield a batch of this size."""
        num_samples = self.script.num_samples
        return num_samples is None or size <= num_samples

    def usable(self, size: int) -> bool:
        """Whether a size that ran can be trained with."""
        return not self.ruled_out(size) and self.can_be_delivered(size)

    def eligible(self, size: int) -> bool:
        """Whether a size that ran may be recommended: one run may go on under other options."""
        return self.usable(size) and self.is_asked_for(size)

    def is_asked_for(self, size: int) -> bool:
        """Whether the options that bound sizes leave one."""
        goal, own = self.goal, self.script.own_size
        if goal.sizes:
            return size in goal.sizes
        if goal.keep_effective_batch and own and own * self.script.micro_batches % size:
            return False
        return size <= (goal.max_batch or size) and size % goal.multiple_of == 0

    @cached_property
    def usable_sizes(self) -> frozenset[int]:
        """The sizes that ran and may be recommended."""
        return frozenset(filter(self.eligible, self.sizes_that_ran))

    def discovery_at(self, size: int) -> Discovery | None:
        """What the script trains with at a size: with the accumulation that keeps its effective
        batch, where that is asked for.
        """
        discovery = self.record.discovery
        if discovery is None:
            return None
        discovery = self._with_left_out(discovery, size)
        if not self.goal.keep_effective_batch:
            return discovery
        whole = discovery.effective_batch
        if whole % size:
            return discovery
        return msgspec.structs.replace(discovery, micro_batches=whole // size)

    def _with_left_out(self, discovery: Discovery, size: int) -> Discovery:
        """With what trials show of the loop: batches as long as the last one at a size, or longer
        ones that are shorter than the script's own, made no step."""
        last, own = self.script.last_batch(size), discovery.native_batch_size
        if discovery.leaves_out or not last or not discovery.traits.steers_loader:
            return discovery
        lengths = [
            trial.batch_size
            for trial in self.record.trials
            if trial.outcome == "no_step"
            and last <= trial.batch_size < min(own, size)
            and trial.batch_size not in self.sizes_that_ran
        ]
        if not lengths:
            return discovery
        what = f"batches of {min(lengths)} went into it, and no optimizer stepped"
        return msgspec.structs.replace(discovery, leaves_out=what)

    def harmful(self, size: int) -> bool:
        """Whether an epoch's end does harm at a size; not known to before the loop is found."""
        if size not in self._harmful:
            discovery = self.discovery_at(size)
            self._harmful[size] = discovery is not None and has_harmful_tail(
                discovery, size, taken=self.multiples.sure
            )
        return self._harmful[size]

    def first_clean(self, sizes: Iterable[int]) -> int | None:
        """The first of these sizes without a harmful end of its epochs."""
        return next((size for size in sizes if not self.harmful(size)), None)

    def last_batch(self, size: int) -> int | None:
        """Samples in a short last batch: 0 without one, `None` where that is unknown."""
        return self.script.last_batch(size)

    @cached_property
    def _harmful(self) -> dict[int, bool]:
        return {}

    @cached_property
    def turns(self) -> tuple[Turns, ...]:
        """The readings of the trials in which sizes took turns."""
        return tuple(trial.turns for trial in self.ran if trial.turns is not None)

    @cached_property
    def search_turns(self) -> tuple[Turns, ...]:
        """The readings of the search's trials in which sizes took turns."""
        return tuple(
            trial.turns
            for trial in self.ran
            if trial.turns is not None and trial.purpose == "search"
        )

    def took_turns(self, size: int) -> bool:
        """Whether a size took turns with others."""
        return any(size in turns.sizes for turns in self.turns)

    def trials_of(self, size: int) -> Sequence[Trial]:
        """The trials that speak for a size: those of the confirmation, else the last of the search.

        A confirmation that was held up throughout does not speak against a clean window of the
        search: what disturbs a measurement only ever slows it down.
        """
        confirmed = [trial for trial in self.confirmations if trial.batch_size == size]
        best = self.best_timed.get(size)
        clean = [trial for trial in confirmed if not trial.doubtful]
        if confirmed and (clean or best is None or best.doubtful):
            return clean or confirmed
        if best is not None:
            return [best]
        return [trial for trial in self.ran if trial.batch_size == size][-1:]

    def shown(self, size: int, field: Literal["samples_per_s", "step_s"]) -> Spread | None:
        """What an answer shows of a size."""
        compared = self.best_timed.get(size) if self.took_turns(size) else None
        return pooled(self.trials_of(size) if compared is None else [compared], field)

    @cached_property
    def speeds(self) -> Speeds:
        """How fast sizes are beside each other, by all that was timed."""
        return self._speeds_of(self.ran)

    @cached_property
    def searched_speeds(self) -> Speeds:
        """How fast sizes are beside each other, by what the search timed alone."""
        return self._speeds_of(trial for trial in self.ran if trial.purpose == "search")

    def _speeds_of(self, trials: Iterable[Trial]) -> Speeds:
        device = self.record.device
        wander = wander_of(device, self.record.trials)
        return speeds_of((trial for trial in trials if trial.kind in ("timed", "turns")), wander)

    @cached_property
    def best_timed(self) -> dict[int, Trial]:
        """The trial that speaks for each size, of search and confirmation, in order of size."""
        return compared(self.timed, self.speeds, alone=True)

    @cached_property
    def searched(self) -> dict[int, Trial]:
        """The search's trial that speaks for each size, without sizes that may not be recommended.

        What the search found does not change while it is being confirmed, except for sizes that
        are refused by then or turn out to take too much memory. Rates of sizes that took turns are
        those beside the same neighbours: what steps lost to these is one share for all.
        """
        return self._searched(alone=False)

    @cached_property
    def searched_alone(self) -> dict[int, Trial]:
        """`searched`, with rates that reach up to what each size would have done alone."""
        return self._searched(alone=True)

    def _searched(self, *, alone: bool) -> dict[int, Trial]:
        trials = compared(self.searched_trials, self.searched_speeds, alone=alone)
        return {size: trial for size, trial in trials.items() if self.eligible(size)}

    @cached_property
    def searched_trials(self) -> tuple[Trial, ...]:
        """The trials of the search that measured one size's time."""
        return tuple(trial for trial in self.timed if trial.purpose == "search")

    @cached_property
    def confirmations(self) -> tuple[Trial, ...]:
        """The latest series of confirm trials that ran in one process, in order.

        Behind the template door each size has a process of its own, and all of them are the
        series; so it is where captured graphs of two sizes do not fit into one.
        """
        apart = self.script.process_per_size or self.captures_graphs
        return tuple(latest_confirmation(self.record.trials, apart=apart))

    @cached_property
    def confirmed_sizes(self) -> frozenset[int]:
        """The sizes of that series."""
        return frozenset(trial.batch_size for trial in self.confirmations)

    @cached_property
    def confirmed_turns(self) -> tuple[Turns, ...]:
        """Readings of the finalists in turn, in the process of the confirmation.

        Where each size has a process of its own, all of the confirmation are.
        """
        apart = self.script.process_per_size
        workers = {trial.worker for trial in self.confirmations[-1:]}
        return tuple(
            trial.turns
            for trial in self.record.trials
            if trial.ran
            and trial.turns is not None
            and trial.purpose == "confirm"
            and (apart or trial.worker in workers)
        )

    @cached_property
    def trusted_memory(self) -> dict[int, Memory]:
        """Peak memory by size, in order of size, of the readings that say the most."""
        return peaks_of(self.record.trials)

    @cached_property
    def target_bytes(self) -> int | None:
        """Bytes that a recommended size may take: the capacity less the margin, and less what a
        batch as long as the longest one seen would need more."""
        device = self.record.device
        if device is None:
            return None
        return int(device.capacity_bytes * (1 - self.goal.margin) / self.input_widening)

    @cached_property
    def why_unordered(self) -> str:
        """Why trials did not begin with the longest samples, as `--worst-case` asked; or empty."""
        if self.goal.seq_lens:
            return ""  # the script was started with the longest
        return self.script.why_unordered() if self.goal.worst_case else ""

    @cached_property
    def input_widening(self) -> float:
        """The longest batch that was seen over the longest of a usual trial, at least 1.

        A peak is that of the longest batch of its own trial; the longest of all trials may come to
        any of them. Where `--worst-case` could be kept, every trial began with the longest samples.
        """
        if self.goal.worst_case and not self.why_unordered:
            return 1.0
        if isinstance(self.length_risk, LengthRisk):
            return 1.0  # the law says what longer batches take
        seen = sorted(trial.inputs.largest for trial in self.ran if trial.inputs is not None)
        if not seen:
            return 1.0
        return min(MAX_WIDENING, seen[-1] / seen[(len(seen) - 1) // 2])

    @cached_property
    def answers(self) -> dict[object, Any]:
        """Results of functions that are computed `once` for each record, by function."""
        return {}
