"""An iterable dataset that yields for ever."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from torch.utils.data import IterableDataset, get_worker_info


class CycledDataset(IterableDataset[Any]):
    """An iterable dataset that starts again when it ends; everything else is the script's.

    Args:
        first: a batch of samples that comes before its own.
        times: as often as that, over all workers: a loader takes their batches in turn.
    """

    def __init__(self, dataset: Any, first: Sequence[Any] = (), times: int = 0) -> None:
        self.__dict__["_dataset"] = dataset
        self.__dict__["_first"] = first
        self.__dict__["_times"] = times

    def starting_with(self, first: Sequence[Any], times: int) -> CycledDataset:
        """Returns the data set with other samples before its own."""
        return CycledDataset(self._dataset, first, times)

    def __iter__(self) -> Iterator[Any]:
        worker = get_worker_info()
        own = (worker.id, worker.num_workers) if worker else (0, 1)
        for _ in range(own[0], self._times, own[1]):
            yield from self._first
        while True:
            empty = True
            for sample in self._dataset:
                empty = False
                yield sample
            if empty:
                return

    def __len__(self) -> int:
        return len(self._dataset)

    def __getattr__(self, name: str) -> Any:
        if name in ("_dataset", "_first", "_times") or (
            name.startswith("__") and name.endswith("__")
        ):
            raise AttributeError(name)  # while being unpickled in a spawned worker
        return getattr(self._dataset, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._dataset, name, value)


def own_of(dataset: Any) -> Any:
    """The script's own, of one that is cycled; no attribute, as its own may have one so called."""
    return dataset.__dict__["_dataset"] if isinstance(dataset, CycledDataset) else dataset
