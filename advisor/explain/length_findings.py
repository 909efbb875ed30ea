"""Findings about samples that differ in length: the memory of the longest batch of an epoch."""

from __future__ import annotations

from collections.abc import Callable

from ...records import Evidence, Finding
from ...units import format_bytes
from ..measured.epoch_chance import worst_peak
from ..measured.length_risk import MAX_CHANCE, LengthRisk
from ..measured.measurements import Measurements

LEAST_CHANCE = 1e-4
"""A smaller chance is shown as one below this."""


def percent_of_epochs(chance: float) -> str:
    """A chance an epoch, as people read it.

    >>> [percent_of_epochs(value) for value in (0.0, 0.0034, 0.38, 0.997, 0.99999)]
    ['below 0.01%', '0.34%', '38%', '99.7%', 'above 99.9%']
    """
    if chance < LEAST_CHANCE:
        return f"below {LEAST_CHANCE:.2%}"
    if chance > 0.999:
        return "above 99.9%"
    if chance >= 0.995:
        return f"{chance:.1%}"
    return f"{chance:.0%}" if chance >= 0.1 else f"{100 * chance:.2g}%"


def risk_words(measurements: Measurements, chosen: int) -> str:
    """The chance that an epoch runs out of memory, of a size and the next; or empty."""
    risk = measurements.length_risk
    if not isinstance(risk, LengthRisk):
        return ""
    tried = measurements.sizes_that_ran | {trial.batch_size for trial in measurements.failed}
    larger = sorted(size for size in tried if size > chosen)[:1]
    words = [f"{size}: {percent_of_epochs(risk.chance(size))}" for size in (chosen, *larger)]
    return f"Chance of running out of memory in an epoch, by the lengths: {', '.join(words)}."


def _varying_inputs(measurements: Measurements) -> list[Finding]:
    """The peak depends on the longest batch; a short window may not have seen it."""
    seen = [trial.inputs for trial in measurements.ran if trial.inputs is not None]
    unordered = measurements.why_unordered
    if not seen:
        return _worst_case_not_kept(unordered)
    low, high = min(inputs.smallest for inputs in seen), max(inputs.largest for inputs in seen)
    if low == high:  # of chosen batches it is kept all the same
        if measurements.goal.worst_case and not unordered:
            words = f"batches had {high:.0f} elements a sample, padding included"
            return [_longest_first(words)]
        return _worst_case_not_kept(unordered)
    words = f"batches varied from {low:.0f} to {high:.0f} elements a sample, padding included"
    if isinstance(measurements.length_risk, LengthRisk):
        return [*_worst_case_not_kept(unordered), _by_law(measurements, measurements.length_risk)]
    if measurements.goal.worst_case and not unordered:
        return [_longest_first(words)]
    widening = measurements.input_widening
    why = measurements.length_risk
    message = f"{words}; the longest batch of an epoch may need more memory than any trial saw"
    if widening > 1:
        message += f", so {1 - 1 / widening:.0%} more of the memory is left free"
    if why:
        message += f"; the chance of that in an epoch is not known: {why}"
    return [
        *_worst_case_not_kept(unordered),
        Finding(
            rule="inputs.vary",
            severity="warning",
            message=message,
            evidence=(Evidence(metric="longest batch over a usual one", value=round(widening, 3)),)
            if widening > 1
            else (),
            remedy="cut the longest samples; until then keep memory free (--memory-margin)."
            if unordered or not _can_be_ordered(measurements)
            else "run with --worst-case, which begins every trial with the longest samples.",
        ),
    ]


def _longest_first(words: str) -> Finding:
    message = f"{words}; every trial began with the longest samples"
    return Finding(rule="inputs.vary", severity="info", message=message)


def _by_law(measurements: Measurements, risk: LengthRisk) -> Finding:
    """States the memory of the longest batch by the law, and how often an epoch exceeds it."""
    law, longest = risk.law, risk.census.lengths[-1]
    sizes = sorted(
        measurements.sizes_that_ran | {trial.batch_size for trial in measurements.failed}
    )
    chances = ", ".join(f"{size}: {percent_of_epochs(risk.chance(size))}" for size in sizes)
    squared = f" + {law.per_square_bytes:.3g} B x samples x length²" if law.per_square_bytes else ""
    known = risk.census.complete and not risk.epoch.replaced
    of_all = (
        f"of all {risk.census.num_samples} samples"
        if risk.census.complete
        else f"of {risk.census.num_samples} samples, and the tail that these have"
    )
    risky = any(risk.chance(size) > MAX_CHANCE for size in sizes)
    return Finding(
        rule="memory.lengths",
        severity="warning" if risky else "info",
        message=f"peak memory follows {format_bytes(int(law.fixed_bytes))} + "
        f"{format_bytes(int(law.per_token_bytes))} x tokens{squared} (off by {law.residual:.1%} at "
        f"most, {len(law.windows)} windows at chosen lengths); by the lengths {of_all}, the "
        f"longest {longest}, the chance that an epoch runs out of memory is: {chances}",
        evidence=tuple(
            Evidence(
                metric=f"worst batch of {size}, by the law, _bytes",
                value=int(worst_peak(law, size, longest, by_budget=risk.epoch.by_budget)),
                threshold=risk.capacity_bytes,
            )
            for size in sizes[-1:]
        ),
        remedy="cut the longest samples, or group samples of like length with a budget of tokens, "
        "and larger batches become safe."
        if risky
        else "",
        confidence="measured" if known else "estimate",
    )


def _can_be_ordered(measurements: Measurements) -> bool:
    """Whether `--worst-case` could choose the samples of the loader that trains."""
    discovery = measurements.record.discovery
    return discovery is not None and discovery.traits.reorders_samples


def _worst_case_not_kept(why: str) -> list[Finding]:
    """`--worst-case` was asked for, and the samples came as they do."""
    if not why:
        return []
    return [
        Finding(
            rule="inputs.unordered",
            severity="warning",
            message=f"--worst-case had no effect: {why}; trials did not begin with the longest "
            "samples",
            remedy="leave it out, and either keep memory free for them (--memory-margin) or sort "
            "the data by length, the longest first, for this run.",
        )
    ]


def _argument(measurements: Measurements) -> list[Finding]:
    """The length was an argument of the script."""
    goal = measurements.goal
    if not goal.seq_lens:
        return []
    taken = goal.seq_lens[-1 if goal.worst_case else (len(goal.seq_lens) - 1) // 2]
    others = [length for length in goal.seq_lens if length > taken]
    return [
        Finding(
            rule="inputs.seq_len",
            severity="warning" if others else "info",
            message=f"the script ran with sequences of {taken}, of the lengths "
            f"{', '.join(map(str, goal.seq_lens))} that were named"
            + ("; longer ones need more memory than any trial saw" if others else ""),
            remedy="run with --worst-case, which starts the script with the longest."
            if others
            else "",
        )
    ]


LENGTH_RULES: tuple[Callable[[Measurements], list[Finding]], ...] = (_varying_inputs, _argument)
