"""The batches that went to the script inside a window: their sizes, how these are known, waits."""

from __future__ import annotations

from collections import Counter

from ..loader.batch_size_reader import DRAWN_OTHERWISE


class Arrivals:
    """Counts the batches of a window, and those of its present step.

    Args:
        batch_size: that was asked for.

    Attributes:
        wait_s, num_samples, num_batches: of the present step so far.
        left_out: the script's collate function leaves samples out, or batches are cut by a budget.
    """

    def __init__(self, batch_size: int) -> None:
        self._asked = batch_size
        self._sizes: Counter[tuple[int | None, str]] = Counter()
        self._arrived: list[int] = []
        self._micro_batches: Counter[int] = Counter()
        self.left_out = False
        self.begin_step()

    def begin_step(self) -> None:
        """The script goes on with the next step."""
        self.wait_s, self.num_samples, self.num_batches = 0.0, 0, 0

    def add(self, num_samples: int | None, proof: str, wait_s: float, *, primary: bool) -> None:
        """A batch went to the script after `wait_s` seconds."""
        self.wait_s += wait_s
        if not primary:
            return
        samples = num_samples if num_samples is not None else self._asked
        if proof in DRAWN_OTHERWISE:
            self.left_out = True
            self._sizes[self._asked, "indices"] += 1
        else:
            self._sizes[num_samples, proof] += 1
        self._arrived.append(samples)
        self.num_samples += samples
        self.num_batches += 1

    def count_step(self, micro_batches: int) -> None:
        """A step of so many batches ended."""
        if micro_batches:
            self._micro_batches[micro_batches] += 1

    @property
    def usual_micro_batches(self) -> int:
        """Batches of most steps.

        A step that GradScaler skipped, or the first of an accumulation, counts differently.
        """
        return self._micro_batches.most_common(1)[0][0] if self._micro_batches else 1

    @property
    def size(self) -> int | None:
        """Samples of most batches; `None` where that could not be read, or none came."""
        return self._usual[0]

    @property
    def proof(self) -> str:
        """How `size` is known."""
        return self._usual[1]

    @property
    def mean_size(self) -> float | None:
        """Samples of a batch, where the script leaves some out; else `None`."""
        return round(sum(self._arrived) / len(self._arrived), 3) if self.left_out else None

    @property
    def why_wrong(self) -> str:
        """Says which size arrived instead of the one asked for; empty where that one arrived."""
        if self.size == self._asked:
            return ""
        if self.size is None:
            return f"asked for {self._asked}, the size that arrived could not be read"
        return f"asked for {self._asked}, {self.size} samples arrived"

    @property
    def _usual(self) -> tuple[int | None, str]:
        return self._sizes.most_common(1)[0][0] if self._sizes else (None, "")
