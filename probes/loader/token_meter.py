"""Tokens of timed steps: set aside when a batch goes to the script, counted when its step is over.

The step that is timed pays for a look at the batch's parts, some microseconds. The counting itself
falls between two steps.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Literal, NamedTuple

from ...records import CountedTokens, TokenEvidence, TokenLengths
from .token_batch import BatchTokens
from .token_counts import tokens_in
from .token_parts import Part, parts_of

MIXED = "batches differ in what tells their padding"
MIN_WIDTHS = 3
"""Different widths of batches, each equal to the longest sequence, that are no chance."""
PADDED: frozenset[TokenEvidence] = frozenset(
    {
        "attention mask",
        "padding mask",
        "mask beside the tokens",
        "lengths",
        "lengths beside the sequences",
        "run of one id",
    }
)
"""Evidence of batches whose rows hold a sequence each, and padding."""
MAX_SHOWN = 200
"""Lengths that are kept of all that were counted, evenly spaced in their order."""
MAX_FAILURES = 3
"""After so many batches whose parts could not be read, nothing is tried any more."""


class StepTokens(NamedTuple):
    """Sums over the batches of one step; `None` where one of them is unknown.

    Attributes:
        squares: rows x length² of batches whose rows are padded to one length.
        rows: of these.
    """

    positions: int | None
    real: int | None
    trained: int | None
    squares: int | None = None
    rows: int | None = None


class TokenMeter:
    """Counts the tokens of the steps that it is told of."""

    def __init__(self) -> None:
        self._num_failures = 0
        self._pad_id: int | None = None  # holds for all trials of a script
        self._ahead: list[Part] | None = None  # fetched, and not yet trained on
        self.begin()

    def begin(self) -> None:
        """A trial begins."""
        self._pending: list[list[Part]] | None = None
        self._batches: list[BatchTokens] = []
        self._lengths: Counter[int] = Counter()
        self._widths: set[int] = set()
        self._num_unknown = 0

    def begin_step(self) -> None:
        """A timed step begins."""
        self._pending = []

    def note(self, batch: Any, *, ahead: bool = False) -> None:
        """A batch goes to the script.

        Args:
            ahead: to whoever hands on the one before it now, and this one at the next fetch.
        """
        if (self._pending is None and not ahead) or self._num_failures >= MAX_FAILURES:
            return
        try:
            parts: list[Part] | None = parts_of(batch)
        except Exception:  # noqa: BLE001  a batch of the script's own kind must not end the script
            self._num_failures += 1
            parts = None
        if ahead:
            parts, self._ahead = self._ahead, parts
        if parts is not None and self._pending is not None:
            self._pending.append(parts)

    def end_step(self) -> StepTokens | None:
        """The timed step is over; `None` where its batches show no tokens."""
        pending, self._pending = self._pending, None
        if not pending:
            return None
        batches = [counted for parts in pending if (counted := self._count(parts)) is not None]
        if len(batches) < len(pending):
            self._num_unknown += len(pending) - len(batches)
            return None
        return StepTokens(
            _sum([batch.positions for batch in batches]),
            _sum([batch.real for batch in batches]),
            _sum([batch.trained for batch in batches]),
            _sum([_squares(batch) for batch in batches]),
            _sum([_rows(batch) for batch in batches]),
        )

    # what they say together ------------------------------------------------------------------

    @property
    def num_batches(self) -> int:
        """Batches that were counted."""
        return len(self._batches)

    @property
    def evidence(self) -> TokenEvidence | None:
        """Evidence of the padding; `None` where some batch, or all together, show no sequences."""
        sure = [batch.evidence for batch in self._batches if self._is_sure(batch)]
        if not sure or self._num_unknown or 2 * len(sure) < len(self._batches):
            return None
        return Counter(sure).most_common(1)[0][0]

    def _is_sure(self, batch: BatchTokens) -> bool:
        """Whether a batch shows that it holds tokens, if only together with others.

        Batches of sequences of like length have little padding to show.
        """
        beside = batch.evidence == "lengths beside the sequences"
        return not batch.tentative or (beside and len(self._widths) >= MIN_WIDTHS)

    @property
    def unit(self) -> Literal["tokens", "time steps"]:
        """The unit of a position."""
        return self._batches[0].unit if self._batches else "tokens"

    @property
    def why_no_real(self) -> str:
        """Why real tokens are unknown; empty where each batch tells them by the same sign."""
        if len({batch.evidence for batch in self._batches}) > 1:
            return MIXED
        return next((batch.why for batch in self._batches if batch.real is None), "")

    @property
    def why_no_positions(self) -> str:
        """Why positions are unknown; empty where they are known."""
        return next((batch.why for batch in self._batches if batch.positions is None), "")

    @property
    def padding_share(self) -> float | None:
        """Padding as a share of the positions of all batches, 0..1; `None` where unknown."""
        positions = _sum([batch.positions for batch in self._batches])
        real = None if self.why_no_real else _sum([batch.real for batch in self._batches])
        return 1 - real / positions if positions and real is not None else None

    @property
    def counted(self) -> CountedTokens | None:
        """The sums over all batches; `None` where a batch does not tell its real tokens."""
        real = None if self.why_no_real else _sum([batch.real for batch in self._batches])
        positions = _sum([batch.positions for batch in self._batches])
        if not self._batches or real is None or positions is None:
            return None
        return CountedTokens(
            num_batches=len(self._batches),
            real=real,
            positions=positions,
            squares=_sum([_squares(batch) for batch in self._batches]) or 0,
        )

    @property
    def lengths(self) -> TokenLengths | None:
        """Real tokens of the sequences; `None` where a batch does not tell them."""
        num = sum(self._lengths.values())
        if not num or self.why_no_real or any(batch.lengths is None for batch in self._batches):
            return None
        ordered = sorted(self._lengths)
        return TokenLengths(
            num_sequences=num,
            shortest=ordered[0],
            median=(self._at((num - 1) // 2) + self._at(num // 2)) / 2,
            longest=ordered[-1],
            ordered=self._evenly(min(num, MAX_SHOWN)),
        )

    def reasons(self, *, real: bool, positions: bool) -> dict[str, str]:
        """Why fields of `Tokens` are `None`.

        Args:
            real, positions: whether those of a step are known.
        """
        reasons: dict[str, str] = {}
        if not real:
            reasons |= dict.fromkeys(("real_per_step", "real_per_s"), self.why_no_real)
        if not positions:
            fields = ("positions_per_step", "positions_per_s")
            reasons |= dict.fromkeys(fields, self.why_no_positions)
        if self.padding_share is None:
            reasons["padding_share"] = (
                self.why_no_real or self.why_no_positions or "the batches held nothing"
            )
        if self.lengths is None:
            reasons["lengths"] = self.why_no_real or "a row holds several sequences"
        return reasons

    def _evenly(self, count: int) -> tuple[int, ...]:
        """Picks `count` of the lengths, evenly spaced in order; each stands for equally many."""
        num = sum(self._lengths.values())
        wanted = [((2 * place + 1) * num) // (2 * count) for place in range(count)]
        shown: list[int] = []
        below = 0
        for length in sorted(self._lengths):
            below += self._lengths[length]
            while len(shown) < count and wanted[len(shown)] < below:
                shown.append(length)
        return tuple(shown)

    def _at(self, rank: int) -> int:
        """The length at a place in the order, from 0."""
        for length in sorted(self._lengths):
            rank -= self._lengths[length]
            if rank < 0:
                return length
        raise IndexError(rank)

    def _count(self, parts: list[Part]) -> BatchTokens | None:
        try:
            counted = tokens_in(parts, self._pad_id)
        except Exception:  # noqa: BLE001  as in note
            return None
        if counted is None:
            return None
        if counted.pad_id is not None:
            self._pad_id = counted.pad_id
        if counted.lengths is not None:
            self._lengths.update(counted.lengths)
            self._widths.add(max(counted.lengths, default=0))
            counted = counted._replace(lengths=(), width=_width(counted))
        self._batches.append(counted)
        return counted


def _width(batch: BatchTokens) -> int | None:
    """Places of each row, where a batch holds one sequence a row; `None` where nothing tells."""
    if batch.evidence not in PADDED or not batch.lengths or batch.positions is None:
        return None
    width, rest = divmod(batch.positions, len(batch.lengths))
    return None if rest or width < max(batch.lengths) else width


def _rows(batch: BatchTokens) -> int | None:
    if not batch.width or batch.positions is None:
        return None
    return batch.positions // batch.width


def _squares(batch: BatchTokens) -> int | None:
    return None if not batch.width or batch.positions is None else batch.positions * batch.width


def _sum(values: list[int | None]) -> int | None:
    total = 0
    for value in values:
        if value is None:
            return None
        total += value
    return total
