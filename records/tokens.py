"""The tokens of a trial whose batches are sequences: real ones apart from padding."""

from __future__ import annotations

from typing import Literal

from .base import Record, Spread

TokenEvidence = Literal[
    "attention mask",
    "padding mask",
    "mask beside the tokens",
    "position ids",
    "cu_seqlens",
    "lengths",
    "lengths beside the sequences",
    "packed sequence",
    "nested tensor",
    "list of sequences",
    "run of one id",
    "shape",
]
"""Evidence that tells padding from tokens; `shape` tells positions only."""
INFERRED: frozenset[TokenEvidence] = frozenset({"run of one id"})
"""Evidence that a batch of another meaning could show too, however seldom."""


class TokenLengths(Record, frozen=True, kw_only=True):
    """Real tokens of a sequence: the shortest, the one in the middle, the longest.

    Attributes:
        ordered: some of them, evenly spaced in their order; all where they are few.
    """

    num_sequences: int
    shortest: int
    median: float
    longest: int
    ordered: tuple[int, ...] = ()


class TokenStep(Record, frozen=True, kw_only=True):
    """One timed step and what it held, over all of its micro-batches.

    Attributes:
        rows, squares: sequences, and the sum of rows x length² over the batches, padding included;
            `None` where rows hold no sequence each.
    """

    step_s: float
    positions: int | None = None
    real: int | None = None
    rows: int | None = None
    squares: int | None = None


class CountedTokens(Record, frozen=True, kw_only=True):
    """Sums over all counted batches of a size, slow and disturbed ones too.

    Attributes:
        squares: rows x length², padding included; 0 where rows hold no sequence each.
    """

    num_batches: int
    real: int
    positions: int
    squares: int = 0


class Tokens(Record, frozen=True, kw_only=True):
    """Tokens of the timed steps of one trial.

    Frames of sequences of features count as tokens. Positions are all places of a batch, padding
    included. Of several ranks, what one rank has on average.

    Attributes:
        num_batches: that were counted.
        evidence: what tells padding from tokens.
        unit: what a position holds.
        positions_per_step, real_per_step, squares_per_step: means of an optimizer step, of the
            steps that the step time is made of; squares as in `CountedTokens`.
        padding_share: positions that hold padding over all of the counted batches, 0..1.
        trained_per_step: positions whose label is not -100, which losses leave out; these may be
            fewer than the real tokens (prompts), or counted beside unknown padding.
        lengths: real tokens of the counted sequences.
        steps: some of those that the step time is made of, each with its time.
        real_per_s, positions_per_s: from the same steps as the trial's samples per second.
        counted: all batches that were counted; `None` where something of them is unknown.
    """

    num_batches: int
    evidence: TokenEvidence
    unit: Literal["tokens", "time steps"] = "tokens"
    positions_per_step: float | None = None
    real_per_step: float | None = None
    padding_share: float | None = None
    squares_per_step: float | None = None
    trained_per_step: float | None = None
    lengths: TokenLengths | None = None
    steps: tuple[TokenStep, ...] = ()
    real_per_s: Spread | None = None
    positions_per_s: Spread | None = None
    counted: CountedTokens | None = None
    unavailable: dict[str, str] = {}

    @property
    def per_s(self) -> Spread | None:
        """Real tokens per second; where padding is unknown, positions per second."""
        return self.real_per_s or self.positions_per_s

    @property
    def per_step(self) -> float | None:
        """Real tokens of a step; where padding is unknown, its positions."""
        return self.positions_per_step if self.real_per_step is None else self.real_per_step

    @property
    def inferred(self) -> bool:
        """Whether padding was told by a sign that is no proof."""
        return self.evidence in INFERRED


LengthChoice = Literal["", "shortest", "median", "longest"]
"""The samples that a trial begins with; as they come where it is empty."""


CHOSEN_STEPS = 3
"""Steps at the beginning of a trial that are made with samples of a chosen length, as its warm-up:
none is timed, and the memory of the first may be left out, as a batch of before still lives."""


class ChosenBatch(Record, frozen=True, kw_only=True):
    """The batch that a trial began with, where its samples were chosen by their length.

    Attributes:
        length: which ones.
        longest, total: of its samples, in the unit in which the script or the data set counts.
    """

    length: LengthChoice
    num_samples: int
    longest: int
    total: int


class LengthCensus(Record, frozen=True, kw_only=True):
    """How many samples there are of each length.

    Attributes:
        lengths: ascending; some stand for shorter ones too, never for longer.
        counts: samples of each.
        complete: these are all samples of an epoch; else the first that were looked at.
        declared: they come from a list that the script keeps; else samples were loaded.
    """

    lengths: tuple[int, ...]
    counts: tuple[int, ...]
    complete: bool
    declared: bool = False

    @property
    def num_samples(self) -> int:
        """Samples whose length is known."""
        return sum(self.counts)
