"""How long the samples of a data set are: by a list that the script keeps, or by loading them."""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import torch

from .lengths import elements

SCAN_SAMPLES = 20_000
SCAN_S = 20.0
"""Samples are loaded for their lengths up to so many, for at most so long."""
CHECKED = 16
"""Samples that are loaded to see whether a list of lengths is one."""
LENGTH_ATTRIBUTES = (
    "lengths",
    "seq_lengths",
    "sequence_lengths",
    "seq_lens",
    "sizes",
    "durations",
    "lens",
)
"""Attributes under which batch samplers and data sets keep the lengths of their samples."""
NO_SAMPLE_LENGTH = "a sample has no length before the collate function ran"
STOPPED = "loading the samples for their lengths took too long"


class SampleLengths:
    """Lengths of samples by index, in the unit of the script: tokens, frames or the like.

    Attributes:
        by_index: what is known so far.
        why: why a length that was asked for is unknown; empty while all are known.
        declared: they come from a list that the script keeps.
    """

    def __init__(self, dataset: Any, samplers: Sequence[Any] = ()) -> None:
        self._dataset = dataset
        self.by_index: dict[Any, int] = {}
        self.why = ""
        self._end_s: float | None = None
        declared = _declared(dataset, samplers)
        self.declared = declared is not None
        if declared is not None:
            self.by_index = dict(enumerate(declared))

    def of(self, indices: Iterable[Any]) -> list[int] | None:
        """Lengths of these samples, `None` where one is unknown; see `why`."""
        lengths = [self._one(index) for index in indices]
        known = [length for length in lengths if length is not None]
        return known if len(known) == len(lengths) else None

    def longest_of(
        self, stream: Iterable[Any], most: int, *, looked_at: int = SCAN_SAMPLES
    ) -> list[Any]:
        """The longest samples of a stream, the longest first; their lengths are kept by order.

        Args:
            most: that are returned.
            looked_at: samples, at most.
        """
        end_s = time.monotonic() + SCAN_S
        kept: list[tuple[int, int, Any]] = []
        for number, sample in enumerate(islice(self._loaded(stream), looked_at)):
            length = measure(sample)
            if length is None:
                self.why = NO_SAMPLE_LENGTH
                return []
            self.by_index[number] = length
            # The number breaks ties: samples have no order.
            push = heapq.heappush if len(kept) < most else heapq.heappushpop
            push(kept, (length, -number, sample))
            if time.monotonic() > end_s:
                break
        return [sample for _, _, sample in sorted(kept, key=lambda entry: entry[:2], reverse=True)]

    def between(self, stream: Iterable[Any], band: tuple[int, int], most: int) -> list[Any]:
        """The first samples of a stream whose lengths lie within these, ends included.

        Args:
            most: that are returned.
        """
        end_s = time.monotonic() + SCAN_S
        some: list[Any] = []
        for sample in islice(self._loaded(stream), SCAN_SAMPLES):
            length = measure(sample)
            if length is not None and band[0] <= length <= band[1]:
                some.append(sample)
            if len(some) == most or time.monotonic() > end_s:
                break
        return some

    def load(self, indices: Iterable[Any]) -> None:
        """Loads samples, within limits; those that do not fit into these stay unknown."""
        for index in islice(indices, SCAN_SAMPLES):
            if self._one(index) is None:
                return

    def _one(self, index: Any) -> int | None:
        try:
            known = self.by_index.get(index)
        except TypeError:  # an index of the script's own kind
            self.why = "samples are fetched by something else than a number"
            return None
        if known is not None or self.why:
            return known
        if self._end_s is None:
            self._end_s = time.monotonic() + SCAN_S
        if time.monotonic() > self._end_s or len(self.by_index) >= SCAN_SAMPLES:
            self.why = STOPPED
            return None
        try:
            length = measure(fetch(self._dataset, index))
        except Exception as error:  # noqa: BLE001  the script's own code, outside of its processes
            self._failed(error)
            return None
        if length is None:
            self.why = NO_SAMPLE_LENGTH
            return None
        self.by_index[index] = length
        return length

    def _loaded(self, stream: Iterable[Any]) -> Iterator[Any]:
        """The samples of a stream, up to the first that cannot be loaded."""
        try:
            yield from stream
        except Exception as error:  # noqa: BLE001  as above
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        self.why = f"a sample could not be loaded for its length: {type(error).__name__}"


def measure(sample: Any) -> int | None:
    """The length of a sample; of one without sequences, such as an image, its elements."""
    length = length_of(sample)
    return elements(sample) or None if length is None else length


def fetch(dataset: Any, index: Any) -> Any:
    """One sample, fetched as torch's DataLoader does it."""
    many = getattr(dataset, "__getitems__", None)
    return many([index])[0] if many else dataset[index]


def length_of(sample: Any) -> int | None:
    """The length of a sample: of its longest sequence of ids or of features.

    `None` where nothing in it is a sequence: a text that a collate function splits later, an image.

    >>> length_of({"input_ids": [5, 6, 7], "label": 1}), length_of("three words here")
    (3, None)
    """
    lengths = [length for part in _parts(sample) if (length := _of_part(part)) is not None]
    return max(lengths, default=None)


def _parts(sample: Any) -> Iterable[Any]:
    if isinstance(sample, Mapping):
        return sample.values()
    if isinstance(sample, tuple):
        return sample
    if hasattr(sample, "shape") or isinstance(sample, (str, bytes, list)):
        return (sample,)
    return vars(sample).values() if hasattr(sample, "__dict__") else ()


def _of_part(part: Any) -> int | None:
    shape = getattr(part, "shape", None)
    if shape is not None:
        return int(shape[0]) if len(shape) in (1, 2) else None
    if isinstance(part, list):
        return len(part) if not part or not isinstance(part[0], (str, Mapping)) else None
    return None


def _declared(dataset: Any, samplers: Sequence[Any]) -> list[int] | None:
    """A list of lengths, one for each sample, of the samplers or the data set.

    Some samples are loaded: a list of other numbers does not grow with them.
    """
    owners = (*samplers, dataset)
    lists = [getattr(owner, name, None) for owner in owners for name in LENGTH_ATTRIBUTES]
    if all(each is None for each in lists):
        return None  # a stream may count a file to tell how many samples it has
    num = _num(dataset)
    for each in lists if num else ():
        numbers = _whole(each, num)
        if numbers is not None and _are_lengths(dataset, numbers):
            return numbers
    return None


def _num(dataset: Any) -> int | None:
    try:
        return len(dataset)
    except Exception:  # noqa: BLE001  the script's own code
        return None


def _whole(values: Any, num: int | None) -> list[int] | None:
    if isinstance(values, torch.Tensor) or hasattr(values, "tolist"):
        values = values.tolist()
    if not isinstance(values, (list, tuple)) or len(values) != num:
        return None
    return list(values) if all(type(value) is int for value in values) else None


def _are_lengths(dataset: Any, numbers: Sequence[int]) -> bool:
    """Whether samples are as long as the numbers say, up to marks at their ends."""
    step = max(1, len(numbers) // CHECKED)
    over = set()
    for index in range(0, len(numbers), step):
        try:
            length = length_of(fetch(dataset, index))
        except Exception:  # noqa: BLE001  the script's own code, outside of its processes
            length = None
        if length is None:
            return True  # nothing contradicts, and the script counts by them
        over.add(length - numbers[index])
    return max(over) - min(over) <= 2
