"""Finds the one place that sets the batch size of a script without a loader to follow it from.

It goes by names: an option, a key of a settings file, a number in the script's text. Where there
is one, sizes get in there; where there are several, or it is computed from others, that is said.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from ...records import BatchSizeSource, SourceLine
from .replaced import Replacement, replacement_at, replacement_in_line, replacement_of
from .script_options import (
    PLACEHOLDER,
    Option,
    Texts,
    all_options,
    imported_files,
    source_file,
)
from .script_text import ScriptText, bound_names, name_of, number_of, target_name
from .settings_files import is_settings_file, numbers_of
from .size_names import SIZE_NAMES, option_rank, rank_of

MOST_COMPUTATIONS = 4
_ROUNDING = ("int", "round", "max", "min", "floor", "ceil")
_ARITHMETIC = (ast.Mult, ast.FloorDiv, ast.Div)


class Script(NamedTuple):
    """Facts about a script.

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
        source = self.source
        named = source.option is None or source.option.strip("-") in source.before
        option = "" if named else f" of {source.option}"
        where = f" ({source.place})" if source.place is not None else ""
        return f"{source.before}{option}{where}"


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
        best_ones = [each.place for each in found if each.rank == best]
        places = {(each.text, each.replacement): each for each in best_ones}
        if len(places) == 1:
            return next(iter(places.values()))
        return NoPlace(several=tuple(places.values()))
    return _computed(texts, texts, len(SIZE_NAMES)) or NoPlace()


def find_named(script: Script, name: str) -> SizePlace | tuple[SizePlace, ...]:
    """The number or the option of this very name, `module.NAME` too; else all that have one.

    Several of that name are told apart by their kind: a global counts before what is local.
    """
    texts = _texts(script)
    module, _, last = name.rpartition(".")
    plain = last.lstrip("-").replace("-", "_")
    wanted = [text for text in texts if not module or Path(text[0]).stem == module.split(".")[-1]]
    found = [
        *_options(script, wanted, lambda option: option.fills(plain)),
        *_numbers(script, wanted, _is(plain)),
        *(each for each in _settings(script, wanted) if each.place.name.rpartition(".")[2] == last),
    ]
    best = min((each.rank for each in found), default=None)
    options = [each for each in _options(script, texts, bool) if each.place.number is not None]
    known = {each.place.source.place for each in options}
    numbers = list(_numbers(script, texts, lambda _: 0))
    everything = options + [each for each in numbers if each.place.source.place not in known]
    places = [each.place for each in found if each.rank == best] or [
        each.place for each in everything if str(each.place.source.place) == name
    ]
    if len(places) == 1:
        return places[0]
    return tuple(places or sorted((each.place for each in everything), key=_likeliest_first))


def place_of(
    source: BatchSizeSource | None, own: int | None, arguments: Sequence[str]
) -> SizePlace | None:
    """The place that a source names, where another size gets in there.

    Args:
        own: the size that stands there.
        arguments: of the script.

    Returns:
        `None` where it is no number, its line does not tell which one, or it has changed.
    """
    if source is None or own is None:
        return None
    words = _typed_with(PLACEHOLDER, source, arguments)
    replacement = None if words is not None else replacement_of_size(source, own, own)
    if words is None and replacement is None:
        if source.option is None or not source.template:
            return None
        joined = source.option.endswith("=")
        option = (f"{source.option}{PLACEHOLDER}",) if joined else (source.option, PLACEHOLDER)
        words = (*arguments, *option)
    names = re.findall(r"[A-Za-z_][\w.]*", source.before)
    name = source.option or (names[0] if names else source.before)
    return SizePlace(
        name=name, number=own, source=source, arguments=words or (), replacement=replacement
    )


def replacement_of_size(source: BatchSizeSource, own: int, size: int) -> Replacement | None:
    """The size in place of the script's own, in the script or in a settings file.

    `None` where the place is no number, or its line does not tell which one.
    """
    place = source.place
    if place is not None and is_settings_file(place.file):
        found = replacement_in_line(place, source.before, own)
        return None if found is None else found.with_number(size)
    return replacement_at(source, own, size)


# the kinds of places ------------------------------------------------------------------------------


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


def _typed(script: Script, texts: Texts) -> Iterator[_Found]:
    """`--batch-size 16`, `-b 16`, and `train.batch_size=16`, as they were typed."""
    known = {
        flag: option.rank
        for option in all_options(texts)
        if option.rank is not None
        for flag in option.flags
    }
    words = script.arguments
    for position, word in enumerate(words):
        flag, equals, value = word.partition("=")
        glued = not equals and word[:2] in known and word[2:].isdecimal()  # `-b16`
        if glued:
            flag, value = word[:2], word[2:]
        elif not equals and word.startswith("-") and position + 1 < len(words):
            value = words[position + 1]
        rank = known.get(flag, option_rank(flag) if equals or word.startswith("-") else None)
        if rank is None or not value.isdecimal():
            continue
        between = "=" if equals else "" if glued else " "
        filled = (
            (*words[:position], f"{flag}{between}{PLACEHOLDER}", *words[position + 1 :])
            if equals or glued
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


def _options(
    script: Script,
    texts: Texts,
    wanted: Callable[[Option], bool] = lambda option: option.rank is not None,
) -> Iterator[_Found]:
    """Options that the text declares, whatever reads them; those of the script before others."""
    for option in all_options(texts, script.arguments):
        if not wanted(option):
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


def _settings(script: Script, _: Texts) -> Iterator[_Found]:
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
    _: Script, texts: Texts, rank_of: Callable[[str], int | None] = rank_of
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


def _typed_with(
    size: int | str, source: BatchSizeSource, arguments: Sequence[str]
) -> tuple[str, ...] | None:
    """The arguments with another size, where the number was typed; else `None`."""
    words = list(arguments)
    for position, word in enumerate(words):
        if word == source.before:
            words[position] = source.template.format(size)
        elif " ".join(words[position : position + 2]) == source.before:
            words[position + 1] = str(size)
        else:
            continue
        return tuple(words)
    return None


def _computed(where: Texts, texts: Texts, best: int) -> NoPlace | None:
    """A size that the script computes from others, where no place is named more exactly."""
    for rank in range(min(best + 1, len(SIZE_NAMES) - 2)):
        for file, text in where:
            for name in dict.fromkeys(bound_names(text.tree, assigned=True)):
                computed = computed_as(file, text, name) if rank_of(name) == rank else None
                if computed is not None:
                    steps, leaves = computed
                    return NoPlace(computed=steps, settings=_as_options(leaves, texts))
    return None


def _as_options(leaves: Sequence[str], texts: Texts) -> tuple[str, ...]:
    """Names of settings, as options where they are some."""
    flags = {
        flag.lstrip("-").replace("-", "_"): flag
        for option in all_options(texts)
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


def _likeliest_first(place: SizePlace) -> tuple[bool, int]:
    line = place.source.place.line if place.source.place is not None else 0
    return rank_of(place.name) is None, line


def computed_as(
    file: str, text: ScriptText, name: str
) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    """How `name` is computed, step by step, and the settings that it comes from at last.

    `None` where it is no product or quotient of several settings, or one of a setting of its own
    name.
    """
    steps: list[str] = []
    leaves: list[str] = []
    _follow(file, text, name, steps, leaves)
    if not steps or name.lower() in {leaf.lower() for leaf in leaves}:
        return None
    return tuple(steps), tuple(dict.fromkeys(leaves))


def _follow(file: str, text: ScriptText, name: str, steps: list[str], leaves: list[str]) -> None:
    """Collects the steps that lead to a name."""
    found = _computation(text, name) if len(steps) < MOST_COMPUTATIONS else None
    if found is None:
        leaves.append(name)
        return
    node, names = found
    steps.append(f"{name} = {text.segment(_bare(node))} ({file}:{node.lineno})")
    for each in names:
        if each == name:
            leaves.append(name)
        else:
            _follow(file, text, each, steps, leaves)


def _computation(text: ScriptText, name: str) -> tuple[ast.expr, tuple[str, ...]] | None:
    """The value that is assigned to a name, and the settings in it, where it computes with them."""
    for node in ast.walk(text.tree):
        targets = node.targets if isinstance(node, ast.Assign) else ()
        if not any(target_name(target) == name for target in targets):
            continue
        value = _bare(node.value) if isinstance(node, ast.Assign) else None
        if isinstance(value, ast.BinOp) and isinstance(value.op, _ARITHMETIC):
            names = _names(value)
            if names:
                return value, tuple(dict.fromkeys(names))
    return None


def _bare(node: ast.expr) -> ast.expr:
    """Without `int(...)` around it."""
    while isinstance(node, ast.Call) and target_name(node.func) in _ROUNDING and node.args:
        node = node.args[0]
    return node


def _names(node: ast.expr) -> list[str]:
    """The settings in an expression of numbers and settings alone; else none."""
    node = _bare(node)
    if isinstance(node, ast.BinOp):
        left, right = _names(node.left), _names(node.right)
        numbers = [isinstance(_bare(side), ast.Constant) for side in (node.left, node.right)]
        whole = (left or numbers[0]) and (right or numbers[1])
        return left + right if whole else []
    name = name_of(node) if isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)) else None
    return [] if name is None else [name]
