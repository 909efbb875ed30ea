"""The size among what the script was given from outside: words typed, settings files. Pure.

A place is claimed where its number is the one in use and its key is the one that the script reads,
or one that trainers of frameworks call so. Other places of that key are named beside it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from ...records import BatchSizeSource, OtherPlace, SourceLine
from .settings_files import Entry, numbers_of

Chain = tuple[str, ...]
"""How an expression reads a setting, without its root: `cfg.train.batch_size` is train, batch_size.
"""
TRAINER_NAMES: tuple[Chain, ...] = (
    ("per_device_train_batch_size",),
    ("train_micro_batch_size_per_gpu",),
    ("device_train_microbatch_size",),
    ("micro_train_batch_size",),
    ("micro_batch_size",),
    ("local_batch_size",),
    ("per_gpu_train_batch_size",),
    ("train_batch_size",),
    ("samples_per_gpu",),
    ("batch_size",),
)
"""Names of the size in trainers that make the loader themselves, the most exact ones first."""
_NO_TRAINING = re.compile(
    r"(^|[_./])(eval|evaluation|val|valid|validation|test|testing|predict|inference|dev)($|[_./])"
)


class Outside(NamedTuple):
    """Values that the script was given from outside.

    Attributes:
        arguments: its command line.
        opened: the settings files that it has opened so far, in that order: the path, and how a
            person would type it.
    """

    arguments: tuple[str, ...] = ()
    opened: tuple[tuple[Path, str], ...] = ()


class _Typed(NamedTuple):
    """A number typed on the command line."""

    path: Chain
    value: int
    before: str
    template: str
    option: str


_Place = TypeVar("_Place", Entry, _Typed)


def source_outside(
    outside: Outside,
    chains: Iterable[Chain],
    size: int | None,
    place: SourceLine | None,
    known: BatchSizeSource | None,
) -> BatchSizeSource | None:
    """The place outside the script that sets its size, else what is known.

    Args:
        chains: how the script reads it, the likeliest first.
        size: the size in use.
        place: the line that makes the loader.
        known: what the script's text says; where it holds the same number, it is named beside.
    """
    numbers = [entry for file, shown in outside.opened for entry in numbers_of(file, shown)]
    typed = list(_typed_numbers(outside.arguments))
    unclear = None
    chains = tuple(chains)
    guessed = set(TRAINER_NAMES) if TRAINER_NAMES[0] in chains else set()
    for chain in chains:
        word = _last(_best(typed, chain, lambda each: each.path), size)
        if word is not None:
            return BatchSizeSource(
                place=place, before=word.before, template=word.template, option=word.option
            )
        entries = _best(numbers, chain, _with_folders)
        same = [entry for entry in entries if entry.value == size]
        if same:
            return _claimed(same[-1], entries, known)
        if entries and chain not in guessed and (known is None or not known.template):
            unclear = unclear or _unclear(entries)
    return unclear or known


def numbers_outside(outside: Outside) -> Iterator[tuple[str, int]]:
    """Numbers that the script was given, each with its plain name, typed ones first."""
    for typed in _typed_numbers(outside.arguments):
        yield typed.path[-1], typed.value
    for file, shown in outside.opened:
        for entry in numbers_of(file, shown):
            yield _plain(entry.name), entry.value


def _claimed(entry: Entry, entries: list[Entry], known: BatchSizeSource | None) -> BatchSizeSource:
    others = [
        OtherPlace(place=other.place, number=other.value)
        for other in entries
        if other.place != entry.place
    ]
    holds = known is not None and known.template.format(entry.value) == known.before
    if holds and known is not None and known.place is not None:
        others.append(OtherPlace(place=known.place, number=entry.value))
    return BatchSizeSource(
        place=entry.place,
        before=entry.before,
        template=entry.template,
        option=None if known is None else known.option,
        others=tuple(dict.fromkeys(others)),
    )


def _unclear(entries: list[Entry]) -> BatchSizeSource:
    """Settings of that name with other numbers alone: the script makes the size of them."""
    *others, last = entries
    return BatchSizeSource(
        place=last.place,
        before=last.before,
        others=tuple(OtherPlace(place=each.place, number=each.value) for each in others),
    )


def _typed_numbers(arguments: Sequence[str]) -> Iterable[_Typed]:
    """`--train.batch-size 16`, `--batch_size=16`, and `train.batch_size=16` as Hydra takes it."""
    for position, word in enumerate(arguments):
        flag, equals, number = word.partition("=")
        if not equals and word.startswith("-") and position + 1 < len(arguments):
            number = arguments[position + 1]
        if not number.isdecimal():
            continue
        path = tuple(_plain(part) for part in flag.lstrip("-+").split("."))
        dashed = flag.startswith("-")
        between = "=" if equals else " "
        option = flag if dashed else f"{flag}="
        braces = flag.replace("{", "{{").replace("}", "}}")
        yield _Typed(path, int(number), f"{flag}{between}{number}", braces + between + "{}", option)


def _best(
    places: Sequence[_Place], chain: Chain, path_of: Callable[[_Place], Chain]
) -> list[_Place]:
    """The places whose last keys are those of the chain: those that share most of them with it."""
    shared = [_shared(path_of(place), chain) for place in places]
    most = max(shared, default=0)
    best = [place for place, keys in zip(places, shared, strict=True) if keys == most > 0]
    if _NO_TRAINING.search("/".join(chain)):
        return best
    training = [place for place in best if not _NO_TRAINING.search("/".join(place.path))]
    return training or best


def _with_folders(entry: Entry) -> Chain:
    """Hydra's groups are folders: `conf/train/base.yaml` is below `train`."""
    return (*Path(entry.place.file).parts[:-1], *entry.path)


def _shared(path: Chain, chain: Chain) -> int:
    count = 0
    for key, wanted in zip(reversed(path), reversed(chain), strict=False):
        if _plain(key) != _plain(wanted):
            break
        count += 1
    return count


def _plain(key: str) -> str:
    return key.lower().replace("-", "_")


def _last(typed: list[_Typed], size: int | None) -> _Typed | None:
    """The last word on it, if that is the size in use."""
    return typed[-1] if typed and typed[-1].value == size else None
