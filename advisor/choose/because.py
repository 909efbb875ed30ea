"""Why a size is recommended, or none: which rule chose it, and the sizes and ratios it rests on.

Data alone. decision.py fills it while it chooses, explain/reasons.py puts it into words.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import msgspec

from ...records import Spread


class Rival(NamedTuple):
    """A size that may be much faster, for all that the noise tells.

    Attributes:
        ratio: its throughput over that of the recommended size: the middle, and the interval that
            the measurements leave.
    """

    size: int
    ratio: Spread


class Again(NamedTuple):
    """The chosen size beside another one in the fresh process.

    Attributes:
        other: the other size.
        middle, low, high: the throughput of the chosen size over that of the other.
        num_readings: of each that the ratio rests on.
    """

    other: int
    middle: float
    low: float
    high: float
    num_readings: int


class OnlyTimed(msgspec.Struct, frozen=True):
    """No other size was timed."""


class Largest(msgspec.Struct, frozen=True):
    """The largest size that ran and may be used."""


class NextToLargest(msgspec.Struct, frozen=True):
    """A clean size beside the largest, whose epochs end badly.

    Attributes:
        avoided: the largest.
        cost: what a clean end may cost of it, 0..1.
    """

    avoided: int
    cost: float


class NextToThriftiest(msgspec.Struct, frozen=True):
    """A clean size beside the one with the most samples per joule, whose epochs end badly.

    Attributes:
        avoided: that size.
        cost: what a clean end may cost of its samples per joule, 0..1.
        mine, theirs: samples per joule of both; 0 where they are unknown.
    """

    avoided: int
    cost: float
    mine: float
    theirs: float


class NextToFastest(msgspec.Struct, frozen=True):
    """A clean size beside the fastest, whose epochs end badly.

    Attributes:
        avoided: the fastest.
        cost: what a clean end may cost of its throughput, 0..1.
        again: both in the fresh process.
    """

    avoided: int
    cost: float
    again: Again | None = None


class LoaderSetsThePace(msgspec.Struct, frozen=True):
    """The script's own size, as its steps wait for the loader and no size is much faster.

    Attributes:
        share: of a step that waits, 0..1.
    """

    share: float


class Thriftiest(msgspec.Struct, frozen=True):
    """The size with the most samples per joule.

    Attributes:
        fastest: the fastest size where that is another one.
        theirs: samples per joule of that one.
    """

    fastest: int | None = None
    theirs: float | None = None


class Fastest(msgspec.Struct, frozen=True):
    """The fastest size of the search."""


class FasterAgain(msgspec.Struct, frozen=True):
    """A size that the fresh process compared with the fastest of the search, and preferred.

    Attributes:
        again: beside that one.
    """

    again: Again


class FastestConfirmed(msgspec.Struct, frozen=True):
    """The fastest of the sizes that ran in the fresh process; the fastest of the search did not.

    Attributes:
        fastest: of the search.
    """

    fastest: int


class FastestUsable(msgspec.Struct, frozen=True):
    """The fastest size that may be used; the fastest of the search may not.

    Attributes:
        fastest: of the search.
    """

    fastest: int


KneeRule = Literal[
    "smallest within the tolerance",
    "smallest within the tolerance and fastest",
    "fastest",  # another size may be faster, for all that the noise tells
    "clean beside the smallest",
    "clean beside the fastest",
    "large enough for BatchNorm",
    "faster in the fresh process",
    "the fresh process turned the fastest down",
]
Doubt = Literal["none", "noise", "few readings", "drift"]


class Knee(msgspec.Struct, frozen=True):
    """The size within the tolerance of the best.

    Attributes:
        rule: which of them it is.
        beside: the size that it stands next to, or was taken for.
        again: beside its rival in the fresh process.
        doubt: what keeps the fresh process from bearing it out.
    """

    rule: KneeRule
    beside: int | None = None
    again: Again | None = None
    doubt: Doubt = "none"


class NotBetter(msgspec.Struct, frozen=True):
    """The script keeps its size: compared with it, that of the goal is worse, or as good
    and not much smaller."""


class TooNoisy(msgspec.Struct, frozen=True):
    """The script keeps its size: the noise does not tell whether another is better."""


class NotCompared(msgspec.Struct, frozen=True):
    """No size: the script's own was not timed.

    Attributes:
        own: the script's own size.
        ran: the sizes that ran, smallest first.
    """

    own: int
    ran: tuple[int, ...]


class NoEnergy(msgspec.Struct, frozen=True):
    """No size: energy decides, and none was measured.

    Attributes:
        why: in words.
    """

    why: str


class TooLarge(msgspec.Struct, frozen=True):
    """No size: each that ran takes too much memory.

    Attributes:
        smallest: of them.
        peak_bytes: of that one.
    """

    smallest: int
    peak_bytes: int


class NeverDelivered(msgspec.Struct, frozen=True):
    """No size: the script's own loader yields no batch as large as those that ran.

    Attributes:
        num_samples: that the loader has.
        smallest: size that ran.
    """

    num_samples: int
    smallest: int


class NeverTimed(msgspec.Struct, frozen=True):
    """No size: the goal needs times, and none was taken.

    Attributes:
        largest: size that ran.
    """

    largest: int


class OutOfMemory(msgspec.Struct, frozen=True):
    """No size: memory was refused to the smallest that was tried.

    Attributes:
        smallest: that was tried.
    """

    smallest: int


class Failed(msgspec.Struct, frozen=True):
    """No size: the smallest that was tried failed.

    Attributes:
        smallest: that was tried.
        detail: how.
    """

    smallest: int
    detail: str


class NothingRan(msgspec.Struct, frozen=True):
    """No size: none was tried.

    Attributes:
        why: in a sentence.
    """

    why: str


OfTheGoal = (
    OnlyTimed
    | Largest
    | NextToLargest
    | NextToThriftiest
    | NextToFastest
    | LoaderSetsThePace
    | Thriftiest
    | Fastest
    | FasterAgain
    | FastestConfirmed
    | FastestUsable
    | Knee
)
"""Rules by which the goal chooses a size."""


class AskedFor(msgspec.Struct, frozen=True):
    """The best of the sizes that were asked for; the script's own is not among them.

    Attributes:
        own: the script's own size.
        rule: which chose among them.
    """

    own: int
    rule: OfTheGoal


class NothingLarger(msgspec.Struct, frozen=True):
    """No size yet: the time was over before one larger than the script's own was tried.

    Attributes:
        own: the script's own size.
        timed: the sizes that were timed.
    """

    own: int
    timed: tuple[int, ...]


OfTheOwnSize = AskedFor | NotBetter | TooNoisy | NotCompared | NothingLarger
"""Rules by which the script's own size has a say."""
OfNothing = NoEnergy | TooLarge | NeverDelivered | NeverTimed | OutOfMemory | Failed | NothingRan
"""Why there is no size."""
Because = OfTheGoal | OfTheOwnSize | OfNothing
