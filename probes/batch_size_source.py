"""Finds the line of the script that sets the batch size, from its syntax tree.

The number may stand in the call itself, in a constant, in a default of an option, a parameter or
a dataclass field, or in a dictionary. What cannot be followed is named by the call alone.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..records import BatchSizeSource, SourceLine
from .call_site import source_text

_KEYWORDS = ("batch_size", "batch_sampler")
_SETTINGS = ("per_device_train_batch_size", "train_batch_size", "batch_size")
"""What trainers that make the loader themselves call the size."""


def find_batch_size_source(
    place: SourceLine, batch_size: int | None, arguments: tuple[str, ...] = ()
) -> BatchSizeSource | None:
    """Where the size of the loader made at `place` is written.

    Args:
        place: the line on which the loader is made.
        batch_size: the size that it was made with.
        arguments: the script's command line, where an option may set it.
    """
    try:
        text = source_text(place)
        tree = ast.parse(text)
    except (OSError, SyntaxError, ValueError):
        return None
    return _Finder(tree, text, place, batch_size, arguments).find()


class _Finder:
    def __init__(
        self,
        tree: ast.Module,
        text: str,
        place: SourceLine,
        batch_size: int | None,
        arguments: tuple[str, ...],
    ) -> None:
        self._tree = tree
        self._text = text
        self._place = place
        self._size = batch_size
        self._arguments = arguments

    def find(self) -> BatchSizeSource | None:
        call = self._call()
        argument = _batch_size_argument(call) if call is not None else None
        if call is None or argument is None:
            return self._unpacked() or self._of_a_framework() or self._settings()
        holder = next((one for one in call.keywords if one.value is argument), None)
        name = "batch_size" if holder is None else holder.arg
        return self._behind(argument, holder or call) or BatchSizeSource(
            place=SourceLine(file=self._place.file, line=argument.lineno),
            before=f"{name}={self._segment(argument)}",
        )

    def _behind(self, argument: ast.expr, holder: ast.AST) -> BatchSizeSource | None:
        """The place of the number that an argument stands for."""
        if self._is_size(argument):
            return self._numbered(argument, holder)
        if isinstance(argument, ast.Call):
            return self._in_call(argument)
        name = _name_of(argument)
        return self._by_name(name) if name is not None else None

    def _unpacked(self) -> BatchSizeSource | None:
        """The size in a dictionary that the loader is made with: `DataLoader(ds, **settings)`."""
        for call in self._calls():
            for keyword in call.keywords:
                name = _name_of(keyword.value) if keyword.arg is None else None
                for value, _ in self._bindings(name) if name is not None else ():
                    entry = _batch_size_entry(value)
                    found = self._behind(*entry) if entry is not None else None
                    if found is not None:
                        return found
        return None

    def _settings(self) -> BatchSizeSource | None:
        """What the loader's call unpacks, where nothing shows the size in it: a file's content."""
        for call in self._calls():
            for keyword in call.keywords:
                if keyword.arg is None and (_target_name(call.func) or "").endswith("Loader"):
                    return BatchSizeSource(
                        place=self._at(keyword.value),
                        before=f"**{self._segment(keyword.value)}",
                    )
        return None

    def _of_a_framework(self) -> BatchSizeSource | None:
        """The setting of a trainer that makes the loader elsewhere, where one alone fits."""
        for name in _SETTINGS:
            given = _given(self._arguments, [f"--{name}"])
            if given is not None:
                return BatchSizeSource(
                    place=self._place, before=given[0], template=given[1], option=f"--{name}"
                )
            found = [
                (value, holder)
                for value, holder in self._bindings(name)
                if isinstance(holder, ast.keyword) and self._is_size(value)
            ]
            if len(found) == 1:
                return self._numbered(*found[0])
        return None

    def _call(self) -> ast.Call | None:
        """The innermost call on the line that takes a batch size, not one of another number."""
        return min(
            (one for one in self._calls() if _batch_size_argument(one) is not None),
            key=lambda one: (self._has_another(one), (one.end_lineno or 0) - one.lineno),
            default=None,
        )

    def _calls(self) -> Iterator[ast.Call]:
        """The calls on the line."""
        for node in ast.walk(self._tree):
            if not isinstance(node, ast.Call):
                continue
            if node.lineno <= self._place.line <= (node.end_lineno or node.lineno):
                yield node

    def _has_another(self, call: ast.Call) -> bool:
        """Whether the call makes batches of another size: two loaders may be made on one line."""
        argument = _batch_size_argument(call)
        return isinstance(argument, ast.Constant) and not self._is_size(argument)

    def _by_name(self, name: str) -> BatchSizeSource | None:
        """The one place that gives `name` this value; several are ambiguous, the first counts."""
        option = self._option(name)
        if option is not None:
            return option
        for node, holder in self._bindings(name):
            if self._is_size(node):
                return self._numbered(node, holder)
            if isinstance(node, ast.Call):  # a batch sampler that is made before the loader
                found = self._in_call(node)
                if found is not None:
                    return found
        return None

    def _in_call(self, call: ast.Call) -> BatchSizeSource | None:
        """The size as an argument of another call than the loader's."""
        inner = _batch_size_argument(call)
        return self._numbered(inner, call) if inner and self._is_size(inner) else None

    def _bindings(self, name: str) -> Iterator[tuple[ast.expr, ast.AST]]:
        for node in ast.walk(self._tree):
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    for value in _assigned(target, node.value, name):
                        yield value, node
            elif isinstance(node, ast.AnnAssign) and node.value is not None:
                if _target_name(node.target) == name:
                    yield node.value, node
            elif isinstance(node, ast.Dict):
                for key, value in zip(node.keys, node.values, strict=True):
                    if isinstance(key, ast.Constant) and key.value == name:
                        yield value, key
            elif isinstance(node, ast.Call):
                for keyword in node.keywords:
                    if keyword.arg == name:
                        yield keyword.value, keyword
            elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                yield from _defaults(node.args, name)

    def _option(self, name: str) -> BatchSizeSource | None:
        """The `add_argument` or click option behind `args.NAME`."""
        for node in ast.walk(self._tree):
            if not isinstance(node, ast.Call):
                continue
            flags = [
                one.value
                for one in node.args
                if isinstance(one, ast.Constant) and isinstance(one.value, str)
            ]
            long = [one for one in flags if one.startswith("-")]
            destination = next(
                (
                    one.value.value
                    for one in node.keywords
                    if one.arg == "dest" and isinstance(one.value, ast.Constant)
                ),
                None,
            )
            named = {one.lstrip("-").replace("-", "_") for one in long} | {destination}
            if not long or name not in named:
                continue
            flag = max(long, key=len)
            given = _given(self._arguments, long)
            if given is not None:
                return BatchSizeSource(
                    place=self._at(node), before=given[0], template=given[1], option=flag
                )
            default = next((one for one in node.keywords if one.arg == "default"), None)
            if default is not None and self._is_size(default.value):
                return self._numbered(default.value, default, option=flag)
            return BatchSizeSource(
                place=self._at(node), before=flag, template=f"{flag} {{}}", option=flag
            )
        return None

    def _numbered(
        self, number: ast.expr, holder: ast.AST, option: str | None = None
    ) -> BatchSizeSource:
        """The source text of `holder`, up to the number at least, with the number marked."""
        whole = self._segment(holder)
        # As the syntax tree counts: lines end at \n alone, columns are bytes.
        line = self._text.split("\n")[number.lineno - 1].encode()
        if getattr(holder, "lineno", 0) == getattr(holder, "end_lineno", 0) == number.end_lineno:
            ends = (getattr(holder, "end_col_offset", 0), number.end_col_offset or 0)
            whole = line[getattr(holder, "col_offset", 0) : max(ends)].decode()
        part = self._segment(number)
        start = (number.lineno, number.col_offset)
        holder_start = (getattr(holder, "lineno", 0), getattr(holder, "col_offset", 0))
        before, template = " ".join(whole.split()), ""
        if start[0] == holder_start[0] and "\n" not in whole and len(whole) <= 80:
            offset = len(line[holder_start[1] : start[1]].decode())
            template = (
                whole[:offset].replace("{", "{{").replace("}", "}}")
                + "{}"
                + whole[offset + len(part) :].replace("{", "{{").replace("}", "}}")
            )
        else:
            before, template = f"batch_size={part}", "batch_size={}"
        return BatchSizeSource(
            place=self._at(number), before=before, template=template, option=option
        )

    def _is_size(self, node: ast.expr) -> bool:
        return (
            isinstance(node, ast.Constant)
            and isinstance(node.value, int)
            and not isinstance(node.value, bool)
            and (self._size is None or node.value == self._size)
        )

    def _at(self, node: ast.AST) -> SourceLine:
        return SourceLine(file=self._place.file, line=getattr(node, "lineno", self._place.line))

    def _segment(self, node: ast.AST) -> str:
        return ast.get_source_segment(self._text, node) or ""


def _assigned(target: ast.expr, value: ast.expr, name: str) -> Iterator[ast.expr]:
    """What an assignment gives to `name`, alone or among others: `BATCH, EPOCHS = 32, 10`."""
    if _target_name(target) == name:
        yield value
    if not isinstance(target, ast.Tuple) or not isinstance(value, ast.Tuple):
        return
    if len(target.elts) == len(value.elts):  # else a starred name takes several
        for one, part in zip(target.elts, value.elts, strict=True):
            yield from _assigned(one, part, name)


def _defaults(arguments: ast.arguments, name: str) -> Iterator[tuple[ast.expr, ast.AST]]:
    """Defaults of the parameters called `name`."""
    named = [*arguments.posonlyargs, *arguments.args]
    pairs = [
        *zip(reversed(named), reversed(arguments.defaults), strict=False),
        *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True),
    ]
    for argument, default in pairs:
        if argument.arg == name and default is not None:
            yield default, argument


def _batch_size_argument(call: ast.Call) -> ast.expr | None:
    for wanted in _KEYWORDS:
        for keyword in call.keywords:
            if keyword.arg == wanted:
                return keyword.value
    name = _target_name(call.func) or ""
    if name.endswith("Loader") and len(call.args) >= 2:
        return call.args[1]
    if name.endswith("BatchSampler"):
        return next(
            (one for one in call.args if isinstance(one, ast.Constant)),
            call.args[1] if len(call.args) >= 2 else None,
        )
    return None


def _batch_size_entry(value: ast.expr) -> tuple[ast.expr, ast.AST] | None:
    """The size in a dictionary and what holds it: `{"batch_size": 32}` or `dict(batch_size=32)`."""
    if isinstance(value, ast.Dict):
        for key, one in zip(value.keys, value.values, strict=True):
            if isinstance(key, ast.Constant) and key.value == "batch_size":
                return one, key
    if isinstance(value, ast.Call):
        for keyword in value.keywords:
            if keyword.arg == "batch_size":
                return keyword.value, keyword
    return None


def _name_of(node: ast.expr) -> str | None:
    """The name by which an expression takes its value: `NAME`, `a.NAME` or `a["NAME"]`."""
    if isinstance(node, ast.Subscript):
        return str(node.slice.value) if isinstance(node.slice, ast.Constant) else None
    return _target_name(node)


def _target_name(node: ast.expr) -> str | None:
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else None


def _given(arguments: tuple[str, ...], flags: list[str]) -> tuple[str, str] | None:
    """The option as it was typed, and the same with `{}` for its value."""
    for position, word in enumerate(arguments):
        if word in flags and position + 1 < len(arguments):
            return f"{word} {arguments[position + 1]}", f"{word} {{}}"
        flag, equals, value = word.partition("=")
        if equals and flag in flags:
            return f"{flag}={value}", f"{flag}={{}}"
        letter = word[:2]
        if letter in flags and word[2:].isdecimal():  # `-b16`
            return word, f"{letter}{{}}"
    return None
