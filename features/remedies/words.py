"""What came of a remedy, in words: the same in every format."""

from __future__ import annotations

from ...records import Spread
from ...reports.words.wording import plural
from ...units import format_bytes, format_seconds
from .records import NumbersChecked, Outcome, Remedies, TriedRemedy

OUTCOME_ORDER: tuple[Outcome, ...] = (
    "gain",
    "no gain",
    "cannot tell",
    "slower",
    "wrong numbers",
    "failed",
    "in use",
    "not tried",
)
SAME = 1e-6
"""Relative differences below this are rounding."""
SAME_MEMORY = 0.02


def in_order(remedies: Remedies) -> list[TriedRemedy]:
    """The remedies: what gained first, then by what came of them."""
    return sorted(
        remedies.tried,
        key=lambda each: (
            OUTCOME_ORDER.index(each.outcome),
            -(each.gain.median if each.gain is not None else 0.0),
        ),
    )


def gain_text(tried: TriedRemedy) -> str:
    """`x1.57 (1.51 to 1.63)`; where it is no gain what it is, and the interval."""
    gain = tried.gain
    assert gain is not None
    if tried.outcome == "gain":
        return ratio_text(gain)
    return f"{tried.outcome} ({gain.low:.2f} to {gain.high:.2f})"


def ratio_text(gain: Spread) -> str:
    """A ratio with its interval.

    >>> ratio_text(Spread(median=1.571, low=1.51, high=1.63, num_samples=9, confidence=0.98))
    'x1.57 (1.51 to 1.63)'
    """
    return f"x{gain.median:.2f} ({gain.low:.2f} to {gain.high:.2f})"


def memory_text(tried: TriedRemedy) -> str:
    """Peak memory without and with it."""
    usual, peak = tried.usual_bytes, tried.peak_bytes
    if usual is None or peak is None:
        return "-"
    if abs(peak - usual) <= SAME_MEMORY * usual:
        return format_bytes(peak)
    before, after = format_bytes(usual), format_bytes(peak)
    number, _, unit = before.partition(" ")
    return f"{number if after.endswith(f' {unit}') else before} → {after}"


def loss_text(numbers: NumbersChecked) -> str:
    """How far the loss of the same batches is apart, in a cell."""
    if not numbers.finite:
        return "not finite"
    if numbers.reason or numbers.loss is None:
        return "-"
    return "the same" if numbers.loss <= SAME else f"{small_share(numbers.loss)} off"


def numbers_text(numbers: NumbersChecked) -> str:
    """What the same batches gave."""
    if numbers.reason:
        return f"not compared: {numbers.reason}"
    if not numbers.finite:
        return f"not finite{': ' + numbers.note if numbers.note else ''}"
    if numbers.loss is None:
        return "not compared: no loss was seen"
    steps = plural(numbers.num_steps, "step")
    if numbers.loss <= SAME and (numbers.gradients or 0.0) <= SAME:
        text = f"the same in {steps}"
    else:
        text = f"the loss differs by {small_share(numbers.loss)}"
        if numbers.gradients is not None:
            text += f", gradients by {small_share(numbers.gradients)}"
        text += f" ({steps})"
    return f"{text}; {numbers.note}" if numbers.note else text


def small_share(share: float) -> str:
    """A share in percent, in two digits however small.

    >>> small_share(0.0042), small_share(1e-7), small_share(0.0)
    ('0.42%', '<0.0001%', '0%')
    """
    if share == 0:
        return "0%"
    return "<0.0001%" if share < SAME else f"{100 * share:.2g}%"


def notes_of(remedies: Remedies) -> list[str]:
    """What qualifies the table: failures, what is in use, what was not tried, the loader."""
    notes: list[str] = []
    for tried in in_order(remedies):
        if tried.gain is not None:
            notes += [f"{tried.change}: {tried.reason}."] if tried.reason else []
        elif tried.outcome not in ("in use", "not tried"):
            notes.append(f"{tried.change}: {tried.outcome}: {tried.reason}.")
    for outcome, words in (("in use", "In use already"), ("not tried", "Not tried")):
        reasons: dict[str, list[str]] = {}
        for each in remedies.tried:
            if each.outcome == outcome:
                reasons.setdefault(each.reason, []).append(each.change)
        notes += [f"{words}: {', '.join(names)}: {why}." for why, names in reasons.items()]
    notes += _loads(remedies)
    notes += ceilings_text(remedies)
    apart = [each.numbers for each in remedies.tried if each.numbers.num_steps]
    if apart:
        fewest, most = min(n.num_steps for n in apart), max(n.num_steps for n in apart)
        steps = plural(most, "step") if fewest == most else f"{fewest} to {most} steps"
        notes.append(f"Losses are of {steps} on the same batches; the largest difference stands.")
    took = f"All of it took {format_seconds(remedies.spent_s)} of "
    took += f"{format_seconds(remedies.budget_s)}."
    if any(each.gain is not None for each in remedies.tried):
        took = (
            "Each remedy ran in a fresh process of the script, in turn with the script as it is; "
            f"intervals at 98%. {took}"
        )
    notes.append(took)
    if remedies.state != "finished":
        notes.append(f"It is not complete: {remedies.reason or 'it was killed'}.")
    elif remedies.reason:
        notes.append(f"It ended early: {remedies.reason}.")
    return notes


def _loads(remedies: Remedies) -> list[str]:
    """Which remedies were compared beside others, and beside what the first of them."""
    together = (remedies.together,) if remedies.together is not None else ()
    beside = [each for each in (*together, *in_order(remedies)) if each.gain and each.load]
    if not beside:
        return []
    names = ", ".join(each.change for each in beside)
    return [f"Timed beside other programs, alone the gains may differ: {names} ({beside[0].load})."]


def ceilings_text(remedies: Remedies) -> list[str]:
    """What the loader gives alone, and whether it can ever keep up."""
    known = [each for each in remedies.ceilings if each.samples_per_s is not None]
    if not known:
        return []
    known.sort(key=lambda each: each.num_workers)
    said = ", ".join(f"{each.samples_per_s:,.0f} with {each.num_workers}" for each in known)
    notes = [f"The loader alone gives, in samples/s by its number of workers: {said}."]
    again = [each for each in remedies.ceilings if each.repeats]
    return notes + [f"More data workers were not tried: {each.reason}." for each in again[:1]]


def message_of(tried: TriedRemedy, *, confirmed: bool) -> str:
    """`x1.57 (1.51 to 1.63) with num_workers=2`, and what becomes of the numbers."""
    assert tried.gain is not None
    sure = ", confirmed in fresh processes" if confirmed else ""
    numbers = numbers_text(tried.numbers)
    return f"{ratio_text(tried.gain)} with {tried.change}{sure}{_beside(tried)}; {numbers}"


def _beside(tried: TriedRemedy) -> str:
    return ", beside other programs" if tried.load else ""


def where_of(tried: TriedRemedy) -> str:
    """The line to change, as far as it is known."""
    return f"write at {tried.place}:" if tried.place is not None else "write:"


def headline(remedies: Remedies) -> str:
    """What came of it, in a sentence."""
    for best in all_gained(remedies)[:1]:
        assert best.gain is not None
        sure = ", confirmed together" if best is remedies.together else ""
        return f"{ratio_text(best.gain)} with {best.change}{sure}{_beside(best)}"
    ran = [each for each in remedies.tried if each.gain is not None or each.outcome == "slower"]
    if not ran:
        return "no remedy was measured"
    unsure = sum(each.outcome == "cannot tell" for each in ran)
    tail = f"; of {unsure} the noise does not tell" if unsure else ""
    return f"no remedy of {len(ran)} that ran gains{tail}"


def all_gained(remedies: Remedies) -> list[TriedRemedy]:
    """Each that gained, the most first; before them all that gained together.

    One that surely gained more than these comes before them: two may be in each other's way, and
    one at a larger size is not among them.
    """
    alone = [each for each in in_order(remedies) if each.outcome == "gain"]
    together = remedies.together
    if together is None or together.outcome != "gain" or together.gain is None:
        return alone
    least = together.gain.median
    more = [each for each in alone if each.gain is not None and each.gain.low > least]
    return [*more, together, *(each for each in alone if each not in more)]
