"""Finds the one place that sets the batch size of a script without a loader to follow it from.

It goes by names: an option, a key of a settings file, a number in the script's text. Where there
is one, sizes get in there; where there are several, or it is computed from others, that is said.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from ...records import BatchSizeSource, SourceLine
from .computed_size import computed_as
from .declared_fields import field_options
from .replaced import Replacement, replacement_in_line, replacement_of
from .script_options import (
    PLACEHOLDER,
    declared_options,
    given_as_size,
    has_a_configurator,
    imported_files,
    source_file,
)
from .script_text import ScriptText, bound_names, number_of, numbers_at_the_top
from .settings_files import is_settings_file, numbers_of
from .size_names import NAMES, best_rank, option_rank, rank_of


class Script(NamedTuple):
    """What is known of a script.

    Attributes:
        arguments: its command line.
        settings: the settings files that it opened, as a person would type them.
        files: of the user's code, beside those that its text imports.
    """

    name: str
    arguments: tuple[str, ...] = ()
    module: bool = False
    settings: tuple[str, ...] = ()
    files: tuple[str, ...] = ()


class SizePlace(msgspec.Struct, frozen=True, kw_only=True):
    """The place that sets the batch size, and how another gets in.

    Attributes:
        number: that stands there; `None` where nothing does.
        arguments: of the script, with the placeholder, where they carry the size.
        replacement: the number in a file that takes another, where they do not.
    """

    name: str
    number: int | None
    source: BatchSizeSource
    arguments: tuple[str, ...] = ()
    replacement: Replacement | None = None

    @property
    def text(self) -> str:
        """As it is said."""
        where = f" ({self.source.place})" if self.source.place is not None else ""
        return f"{self.source.before}{where}"


class NoPlace(NamedTuple):
    """Why there is no one place.

    Attributes:
        several: the places between which nothing decides.
        computed: each step of a size that is computed from others, and what these are.
    """

    several: tuple[SizePlace, ...] = ()
    computed: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()


class _Found(NamedTuple):
    place: SizePlace
    rank: tuple[int, ...]


def find_size(script: Script) -> SizePlace | NoPlace:
    """The one place that sets the size; what is typed counts before options, these before files."""
    texts = _texts(script)
    for finder in (_typed, _options, _settings, _numbers):
        found = list(finder(script, texts))
        if not found:
            continue
        best = min(each.rank for each in found)
        computed = _computed(texts[:1], texts, best[0])
        if computed is not None:
            return computed
        places = {each.place.text: each.place for each in found if each.rank == best}
        if len(places) == 1:
            return next(iter(places.values()))
        return NoPlace(several=tuple(places.values()))
    return _computed(texts, texts, len(NAMES)) or NoPlace()


def find_named(script: Script, name: str) -> SizePlace | tuple[SizePlace, ...]:
    """The number or the option of this very name, `module.NAME` too; else all that have one.

    Several of that name are told apart by their kind: a global counts before what is local.
    """
    texts = _texts(script)
    module, _, last = name.rpartition(".")
    plain = last.lstrip("-").replace("-", "_")
    wanted = [text for text in texts if not module or Path(text[0]).stem == module.split(".")[-1]]
    found = [*_options(script, wanted, plain), *_numbers(script, wanted, _is(plain))]
    best = min((each.rank for each in found), default=None)
    everything = list(_numbers(script, texts, lambda _: 0))
    places = [each.place for each in found if each.rank == best] or [
        each.place for each in everything if str(each.place.source.place) == name
    ]
    if len(places) == 1:
        return places[0]
    return tuple(places or (each.place for each in sorted(everything, key=_globals_first)))


# the kinds of places ------------------------------------------------------------------------------

_Texts = Sequence[tuple[str, ScriptText]]


def _texts(script: Script) -> list[tuple[str, ScriptText]]:
    """The script's text first, then those of the user's other files."""
    main = source_file(script.name, module=script.module)
    if script.module and not Path(main).exists():  # found on the path of modules
        parts = "/".join(script.name.split("."))
        ends = (f"{parts}.py", f"{parts}/__main__.py")
        main = next((file for file in script.files if file.endswith(ends)), main)
    named = (word for word in script.arguments if word.endswith(".py"))
    files = dict.fromkeys((main, *named, *imported_files(main), *script.files))
    texts = ((file, ScriptText.of(SourceLine(file=file, line=1))) for file in files)
    return [(file, text) for file, text in texts if text is not None]


def _typed(script: Script, texts: _Texts) -> Iterator[_Found]:
    """`--batch-size 16`, `-b 16`, and `train.batch_size=16`, as they were typed."""
    known = {
        flag: option.rank
        for option in _declared(texts)
        if option.rank is not None
        for flag in option.flags
    }
    words = script.arguments
    for position, word in enumerate(words):
        flag, equals, value = word.partition("=")
        if not equals and word.startswith("-") and position + 1 < len(words):
            value = words[position + 1]
        rank = known.get(flag, option_rank(flag) if equals or word.startswith("-") else None)
        if rank is None or not value.isdecimal():
            continue
        between = "=" if equals else " "
        filled = (
            (*words[:position], f"{flag}={PLACEHOLDER}", *words[position + 1 :])
            if equals
            else (*words[: position + 1], PLACEHOLDER, *words[position + 2 :])
        )
        source = BatchSizeSource(
            place=None,
            before=f"{flag}{between}{value}",
            template=f"{flag}{between}{{}}",
            option=flag if word.startswith("-") else f"{flag}=",
        )
        place = SizePlace(name=flag, number=int(value), source=source, arguments=filled)
        yield _Found(place, (rank,))


def _options(script: Script, texts: _Texts, name: str | None = None) -> Iterator[_Found]:
    """Options that the text declares, whatever reads them; those of the script before others."""
    for option in _declared(texts, script.arguments):
        names = {flag.lstrip("-").replace("-", "_") for flag in option.flags}
        if option.rank is None if name is None else name not in names:
            continue
        named = [flag for flag in option.flags if option_rank(flag) is not None]
        flag = max(named or option.flags, key=len)
        before, template, line = flag, f"{flag} {{}}", getattr(option.holder, "lineno", 1)
        if option.value is not None:
            before, template = dict(texts)[option.file].marked(option.value, option.holder, flag)
            line = option.value.lineno
        place = SourceLine(file=option.file, line=line)
        words = (f"{flag}={PLACEHOLDER}",) if option.joined else (flag, PLACEHOLDER)
        yield _Found(
            SizePlace(
                name=flag,
                number=number_of(option.value),
                source=BatchSizeSource(place=place, before=before, template=template, option=flag),
                arguments=(*script.arguments, *words),
            ),
            (option.rank or 0, option.file != texts[0][0]),
        )


class _Declared(NamedTuple):
    """An option of the script.

    Attributes:
        rank: of its name; `None` if it is not called like a batch size.
        value: its default, where that is a number.
        holder: what declares it.
        joined: whether `=` must stand between it and its value.
    """

    flags: tuple[str, ...]
    rank: int | None
    file: str
    value: ast.expr | None
    holder: ast.AST
    joined: bool = False


def _declared(texts: _Texts, words: Sequence[str] = ()) -> Iterator[_Declared]:
    """Every option, of whatever declares it.

    Args:
        words: of the command line, which may name files that override variables.
    """
    for file, text in texts:
        given = given_as_size(text.tree)
        for declared in declared_options(text.tree):
            rank = best_rank(declared.flags)
            if rank is None and any(map(declared.fills, given)):
                rank = len(NAMES)
            value = _if_number(declared.default_value)
            yield _Declared(declared.flags, rank, file, value, declared.default or declared.call)
    for option in field_options([text.tree for _, text in texts]):
        file, value = texts[option.text][0], _if_number(option.value)
        yield _Declared((option.flag,), option_rank(option.flag), file, value, option.holder)
    yield from _overridden(texts, words)


def _overridden(texts: _Texts, words: Sequence[str]) -> Iterator[_Declared]:
    """Variables of a script that takes them from its command line, after the files named there."""
    if not texts or not has_a_configurator(texts[0][1].tree):
        return
    last = {name: (texts[0][0], *where) for name, *where in numbers_at_the_top(texts[0][1].tree)}
    for file, text in texts:
        for name, *where in numbers_at_the_top(text.tree) if file in words else ():
            if name in last:
                last[name] = (file, *where)
    for name, (file, value, holder) in last.items():
        flag = f"--{name}"
        yield _Declared((flag,), option_rank(flag), file, value, holder, joined=True)


def _settings(script: Script, _: _Texts) -> Iterator[_Found]:
    """Keys of settings files: those that were opened, else those that were passed."""
    passed = tuple(
        value
        for word in script.arguments
        for value in (word.rpartition("=")[2],)
        if is_settings_file(value)
    )
    for file in dict.fromkeys((*script.settings, *passed)):
        for entry in numbers_of(Path(file), file):
            rank = option_rank("--" + ".".join(entry.path))
            replacement = replacement_in_line(entry.place, entry.before, entry.value)
            if rank is None or replacement is None or entry.value < 1:
                continue
            source = BatchSizeSource(
                place=entry.place, before=entry.before, template=entry.template
            )
            place = SizePlace(
                name=entry.name, number=entry.value, source=source, replacement=replacement
            )
            yield _Found(place, (rank,))


def _numbers(
    _: Script, texts: _Texts, rank_of: Callable[[str], int | None] = rank_of
) -> Iterator[_Found]:
    """Numbers in the text that are given to a name, those of the script before those of others."""
    for nth, (file, text) in enumerate(texts):
        outermost = {id(node) for node in text.tree.body}
        for each in dict.fromkeys(bound_names(text.tree)):
            rank = rank_of(each)
            if rank is None:
                continue
            for value, holder in text.bindings(each):
                number = number_of(value)
                if number is None:
                    continue
                before, template = text.marked(value, holder, each)
                line = SourceLine(file=file, line=value.lineno)
                place = SizePlace(
                    name=each,
                    number=number,
                    source=BatchSizeSource(place=line, before=before, template=template),
                    replacement=replacement_of(file, value, number),
                )
                yield _Found(place, (rank, nth > 0, _kind(holder, outermost)))


# parts --------------------------------------------------------------------------------------------


def _computed(where: _Texts, texts: _Texts, best: int) -> NoPlace | None:
    """A size that the script computes from others, where no place is named more exactly."""
    for rank in range(min(best + 1, len(NAMES) - 2)):
        for file, text in where:
            for name in dict.fromkeys(bound_names(text.tree, assigned=True)):
                computed = computed_as(file, text, name) if rank_of(name) == rank else None
                if computed is not None:
                    steps, leaves = computed
                    return NoPlace(computed=steps, settings=_as_options(leaves, texts))
    return None


def _as_options(leaves: Sequence[str], texts: _Texts) -> tuple[str, ...]:
    """Names of settings, as options where they are some."""
    flags = {
        flag.lstrip("-").replace("-", "_"): flag
        for option in _declared(texts)
        for flag in option.flags
    }
    return tuple(flags.get(leaf, leaf) for leaf in leaves)


def _kind(holder: ast.AST, outermost: set[int]) -> int:
    """A global counts before other assignments, these before arguments, fields and defaults."""
    if isinstance(holder, (ast.Assign, ast.AnnAssign)) and id(holder) in outermost:
        return 0
    kinds: tuple[type[ast.AST], ...] = (ast.Assign, ast.keyword, ast.Constant, ast.AnnAssign)
    return next((nth for nth, kind in enumerate(kinds, 1) if isinstance(holder, kind)), 5)


def _is(name: str) -> Callable[[str], int | None]:
    """Ranks that name alone."""
    return lambda other: 0 if other == name else None


def _globals_first(found: _Found) -> tuple[int, ...]:
    return found.rank


def _if_number(value: ast.expr | None) -> ast.expr | None:
    return value if number_of(value) is not None else None
