"""Counts the bytes of the storages that live while operations run."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from functools import cache
from itertools import chain
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from .model_tree import local_part, parts_of

BLOCK_BYTES = 512
"""torch's allocator rounds requests up to this (kMinBlockSize of c10/cuda/CUDACachingAllocator)."""


class StorageCount(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Bytes of live storages: now, and at most so far, each rounded up to 512 bytes.

    Storages that operations make are counted until they are freed; `hold` counts some that were
    there before. What one operation allocates and frees inside itself is not seen. Of a tensor that
    several ranks share, what this one holds is counted.

    Attributes:
        live_bytes: what lives now.
        peak_bytes: the most that lived at once since the start or the last `reset_peak`.
        requests: since the last `reset_requests`, in order: bytes for a storage that began to live,
            those that lived already first; -n for the end of the n-th of them, counted from 1.
        origins: of each storage in `requests`, what `origin` returned; `None` for those that
            lived already.

    Args:
        origin: is called as a storage begins to live.
    """

    def __init__(self, origin: Callable[[], Any] | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.live_bytes = 0
        self.peak_bytes = 0
        self.requests: list[int] = []
        self.origins: list[Any] = []
        self._taken: dict[int, int] = {}
        self._origin = origin
        self._numbers: dict[int, int] = {}
        self._known: dict[int, tuple[int, Callable[[], Any]]] = {}
        self._resizes: list[Any] = []

    def hold(self, tensors: Iterable[torch.Tensor]) -> None:
        """Counts these as alive."""
        for tensor in tensors:
            self._count(tensor)

    def ignore(self, tensors: Iterable[torch.Tensor]) -> None:
        """Never counts the storages of these: they stand for some that are counted already."""
        for part in chain.from_iterable(map(parts_of, tensors)):
            storage = part.untyped_storage()
            if storage._cdata not in self._known:
                self._remember(storage, 0)

    def forget(self, tensors: Iterable[torch.Tensor]) -> None:
        """No longer counts these, though they live on: the step would not hold them."""
        for part in chain.from_iterable(map(parts_of, tensors)):
            self._end(part.untyped_storage()._cdata)

    def take(self, num_bytes: int) -> int:
        """Counts memory that is no tensor of the step; the number of the request."""
        size = _block(num_bytes)
        self.live_bytes += size
        self.peak_bytes = max(self.peak_bytes, self.live_bytes)
        self.origins.append(None if self._origin is None else self._origin())
        self.requests.append(size)
        self._taken[len(self.origins)] = size
        return len(self.origins)

    def give_back(self, number: int) -> None:
        """Ends what `take` began."""
        self.live_bytes -= self._taken.pop(number)
        self.requests.append(-number)

    def put_last(self, tensors: Iterable[torch.Tensor]) -> None:
        """After the next reset the requests of what lives end with these, in this order."""
        for part in chain.from_iterable(map(parts_of, tensors)):
            key = part.untyped_storage()._cdata
            if key in self._known:
                self._known[key] = self._known.pop(key)

    def reset_peak(self) -> None:
        """The peak starts anew from what lives now."""
        self.peak_bytes = self.live_bytes

    def reset_requests(self) -> None:
        """The requests start anew with what lives now."""
        self.requests.clear()
        self.origins.clear()
        self._numbers.clear()
        for key, (size, _) in self._known.items():
            self._request(key, size, None)

    def number_of(self, tensor: torch.Tensor) -> int | None:
        """Number of a tensor's storage in `requests`; `None` if it takes no memory."""
        return self._numbers.get(parts_of(tensor)[-1].untyped_storage()._cdata)

    def number_of_key(self, key: int) -> int | None:
        """Number of the storage with this address (its `_cdata`) in `requests`."""
        return self._numbers.get(key)

    def _count(self, tensor: torch.Tensor) -> None:
        if tensor.layout is torch.sparse_coo:  # a table's gradient of the rows that a batch asked
            self.hold(parts_of(tensor))
            return
        if tensor.layout is not torch.strided:
            msg = f"a tensor of layout {tensor.layout} has no single storage to count"
            raise NotImplementedError(msg)
        storage = local_part(tensor).untyped_storage()
        if storage._cdata not in self._known:
            self._remember(storage, _block(storage.nbytes()))

    def _remember(self, storage: torch.UntypedStorage, size: int) -> None:
        key = storage._cdata
        self._known[key] = (size, weakref.ref(storage, lambda _: self._end(key)))
        self.live_bytes += size
        self.peak_bytes = max(self.peak_bytes, self.live_bytes)
        self._request(key, size, self._origin)

    def _end(self, key: int) -> None:
        size, _ = self._known.pop(key, (0, None))
        self.live_bytes -= size
        if size:
            self.requests.append(-self._numbers.pop(key))

    def _resized(self, storage: torch.UntypedStorage) -> None:
        """Sharded models give storages back, and take them again, without an operation."""
        key = storage._cdata
        if key in self._known:
            self._end(key)
            self._remember(storage, _block(storage.nbytes()))

    def _request(self, key: int, size: int, origin: Callable[[], Any] | None) -> None:
        if size:
            self.origins.append(None if origin is None else origin())
            self._numbers[key] = len(self.origins)
            self.requests.append(size)

    def __enter__(self) -> Any:
        """Counts from here on, resizes of storages too."""
        native = torch.UntypedStorage.resize_
        self._resizes.append(native)

        def resize_(storage: torch.UntypedStorage, size: int) -> Any:
            out = native(storage, size)
            self._resized(storage)
            return out

        torch.UntypedStorage.resize_ = resize_  # type: ignore[assignment, method-assign]
        return super().__enter__()  # type: ignore[no-untyped-call]

    def __exit__(self, *why: object) -> None:
        """Counts no longer."""
        torch.UntypedStorage.resize_ = self._resizes.pop()  # type: ignore[method-assign]
        super().__exit__(*why)  # type: ignore[no-untyped-call]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs the operation and counts what it returns."""
        if is_shared(types):
            return NotImplemented
        out = func(*args, **(kwargs or {}))
        self._count_all(out)
        return out

    def _count_all(self, out: Any) -> None:
        """Counts all tensors that an operation returned."""
        if isinstance(out, torch.Tensor):
            self._count(out)
        elif out is not None:
            for leaf in tree_leaves(out):
                if isinstance(leaf, torch.Tensor):
                    self._count(leaf)


def is_shared(types: Iterable[type]) -> bool:
    """Whether an operation is on tensors of several ranks: it comes again, for this one's parts."""
    return any(map(_is_of_ranks, types))


@cache
def _is_of_ranks(kind: type) -> bool:
    return hasattr(kind, "_local_tensor")


def _block(num_bytes: int) -> int:
    return -(-num_bytes // BLOCK_BYTES) * BLOCK_BYTES
