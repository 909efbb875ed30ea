"""How a batch is built: its tensors, its lists, and which list has an item for each sample.

Detection and segmentation batches are lists: `tuple(zip(*batch))` makes one of the images and one
of the targets. No axis of a tensor in them counts samples, although one may happen to be as long.
Other lists hold a tensor for each part of the input (crops, pyramids), each with all samples in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

MAX_LEAVES = 64
BATCH_DEPTH = 6
IMAGE_CHANNELS = (1, 3, 4)
"""First axis of a single image of three axes."""

Path = tuple[tuple[str, Any], ...]
"""How to get from a batch to one of its parts: items and attributes."""
Counted = Path | Literal["axis", "unknown"]


def counted(batch: Any, num_samples: int | None = None) -> Counted:
    """Where samples are counted.

    Args:
        num_samples: in this batch, where that is known.

    Returns:
        The path of a list with an item for each sample; `axis` where tensors carry samples along
        one of their axes; `unknown` where both may be.
    """
    nested_lists = list(lists(batch))
    if not nested_lists:
        return "axis"
    outer, inner = nested_lists[0], nested_lists[1:]
    if outer[0] or not inner:
        return _parallel(batch, nested_lists, num_samples)
    if len(inner) < len(outer[1]):  # fields, some of which are lists
        return _parallel(batch, inner, num_samples)
    return _nested(outer, inner, num_samples)


def _nested(
    outer: tuple[Path, Sequence[Any]],
    inner: list[tuple[Path, Sequence[Any]]],
    num_samples: int | None,
) -> Counted:
    """A list of nothing but lists: of samples that have fields, or of fields that have samples."""
    rows = [items for _, items in inner]
    path = inner[0][0]
    if len({len(row) for row in rows}) > 1:
        return ()
    if num_samples is not None and (len(rows) == num_samples) != (len(rows[0]) == num_samples):
        return () if len(rows) == num_samples else path
    alike = all(map(_alike, rows))
    across = all(map(_alike, zip(*rows, strict=True)))
    if alike != across:
        return path if alike else ()
    # As the two usual collate functions leave them: zip(*batch), and the list as it came.
    if isinstance(outer[1], list) and all(isinstance(row, tuple) for row in rows):
        return ()
    return path if isinstance(outer[1], tuple) else "unknown"


def _parallel(
    batch: Any, rows: list[tuple[Path, Sequence[Any]]], num_samples: int | None
) -> Counted:
    """Lists beside tensors or beside each other; all that speak of samples have one length."""
    length = len(rows[0][1])
    if any(len(items) != length for _, items in rows):
        rows = [row for row in rows if len(row[1]) == num_samples] or rows[:1]
        length = len(rows[0][1])
    path = rows[0][0]
    axes = [
        int(leaf.shape[0]) if hasattr(leaf, "shape") else len(leaf)
        for _, items in rows
        for _, leaf in paths(items, (), BATCH_DEPTH)
    ]
    if not axes or len(set(axes)) > 1 or any(map(_has_numbers, rows[0][1])):
        return path
    inside = axes[0]
    if num_samples is not None and (length == num_samples) != (inside == num_samples):
        return path if length == num_samples else "axis"
    beside = {
        int(leaf.shape[0]) if hasattr(leaf, "shape") else len(leaf)
        for way, leaf in paths(batch, (), BATCH_DEPTH)
        if not any(way[: len(prefix)] == prefix for prefix, _ in rows)
    }
    if (length in beside) != (inside in beside):
        return path if length in beside else "axis"
    if not _image(rows[0][1][0]):
        return "axis"
    return "unknown" if num_samples is None else path


def _image(item: Any) -> bool:
    shape = _shape(item)
    return len(shape) == 3 and shape[0] in IMAGE_CHANNELS


def _has_numbers(item: Any) -> bool:
    """Whether single values stand beside tensors, as in one sample and not in a whole batch."""
    parts = item.values() if isinstance(item, Mapping) else item
    if _is_array(item) or not isinstance(parts, Iterable):
        return False
    return any(not is_container(part) or _shape(part) == () for part in parts)


def _shape(thing: Any) -> tuple[Any, ...]:
    shape = None if _is_nested(thing) else getattr(thing, "shape", None)
    return tuple(shape) if isinstance(shape, Sequence) else (None,)


def _is_nested(thing: Any) -> bool:
    """Whether it is a nested tensor of torch, whose samples have a shape each: it has none."""
    return bool(getattr(thing, "is_nested", False))


def _is_array(thing: Any) -> bool:
    return _is_nested(thing) or hasattr(thing, "shape")


def _alike(items: Iterable[Any]) -> bool:
    """Whether items are of one kind."""
    kinds = {(type(item), len(_shape(item))) for item in items}
    return len(kinds) == 1


def lists(batch: Any) -> Iterator[tuple[Path, Sequence[Any]]]:
    """The batch where it may be a list of samples, and lists in it: images of a size each."""
    parts: Iterable[tuple[Any, Any]] = ()
    if isinstance(batch, Mapping):
        parts = batch.items()
    elif isinstance(batch, Sequence) and not isinstance(batch, (str, bytes)):
        parts = enumerate(batch[:MAX_LEAVES])
        tensors = [part for part in batch if _is_array(part)]
        # Inputs and targets are no samples; images of a size each are.
        if (batch and not tensors) or (
            0 < len(tensors) == len(batch) and all(map(_image, tensors))
        ):
            yield (), batch
    for key, part in parts:
        if isinstance(part, Sequence) and part and all(map(is_container, part)):
            yield (("item", key),), part


def paths(value: Any, path: Path, depth: int, most: int = MAX_LEAVES) -> Iterator[tuple[Path, Any]]:
    """Tensors and lists of plain values inside `value`, in a fixed order, and how to get there.

    Of a list's parts, `most` at most.
    """
    if depth == 0 or isinstance(value, (str, bytes)) or _is_nested(value):
        return
    if hasattr(value, "shape"):
        try:
            dimensions = len(value.shape)
        except TypeError:
            return
        if dimensions:
            yield path, value
        return
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from paths(part, (*path, ("item", key)), depth - 1, most)
    elif isinstance(value, Sequence):
        nested = [(key, part) for key, part in enumerate(value) if is_container(part)]
        if value and not nested:
            yield path, value
        for key, part in nested[:most]:
            yield from paths(part, (*path, ("item", key)), depth - 1, most)
    elif hasattr(value, "__dict__"):
        for name, part in vars(value).items():
            yield from paths(part, (*path, ("attribute", name)), depth - 1, most)


def is_container(value: Any) -> bool:
    return _is_array(value) or (
        isinstance(value, (Mapping, Sequence)) and not isinstance(value, (str, bytes))
    )
