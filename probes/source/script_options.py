"""The options that a script's text declares, and how they stand on a command line. Pure.

Some libraries make options of the fields of a class or of the parameters of a function.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from .script_text import ScriptText, default_of_field, number_of, numbers_at_the_top, target_name
from .size_names import SIZE_NAMES, best_rank, option_rank

PLACEHOLDER = "{batch_size}"
"""Stands in a command line for the size."""
DEEPEST_IMPORT = 3
"""Imports of imports that are followed, from the script on."""
_ABSL = "DEFINE_"
Texts = Sequence[tuple[str, ScriptText]]
"""The files of the user's code, the script itself first: their names and their texts."""
MOST_NESTED = 4
"""Dataclasses inside dataclasses that are followed."""
_Place = tuple[int, ast.expr | None, ast.AST]


class DeclaredOption(NamedTuple):
    """One `add_argument("--x", ...)`, click or typer option, or flag of absl.

    Attributes:
        flags: its spellings, in the order of the text.
    """

    call: ast.Call
    flags: tuple[str, ...]

    @property
    def destination(self) -> str | None:
        """The name that its `dest=` gives it."""
        keyword = self._keyword("dest")
        return (
            str(keyword.value.value)
            if keyword and isinstance(keyword.value, ast.Constant)
            else None
        )

    @property
    def default(self) -> ast.keyword | None:
        """Its `default=`."""
        return self._keyword("default")

    @property
    def default_value(self) -> ast.expr | None:
        """Its default, also where it goes without a name: absl's second argument, typer's first."""
        if self.default is not None:
            return self.default.value
        place = 1 if (target_name(self.call.func) or "").startswith(_ABSL) else 0
        given = self.call.args[place : place + 1]
        flag = given and isinstance(given[0], ast.Constant) and isinstance(given[0].value, str)
        return given[0] if given and not flag else None

    def fills(self, name: str) -> bool:
        """Whether the script reads its value as `args.NAME`."""
        names = {flag.lstrip("-").replace("-", "_") for flag in self.flags}
        return name in names or name == self.destination

    def _keyword(self, name: str) -> ast.keyword | None:
        return next((keyword for keyword in self.call.keywords if keyword.arg == name), None)


def declared_options(tree: ast.Module) -> Iterator[DeclaredOption]:
    """Every option that is declared in the text."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        words = [arg.value for arg in node.args if isinstance(arg, ast.Constant)]
        flags = tuple(word for word in words if isinstance(word, str) and word.startswith("-"))
        if (target_name(node.func) or "").startswith(_ABSL) and words:
            flags = (f"--{words[0]!s}",)
        if flags:
            yield DeclaredOption(node, flags)


def typed_option(arguments: Sequence[str], flags: Sequence[str]) -> tuple[str, str] | None:
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


def has_a_configurator(tree: ast.Module) -> bool:
    """Whether variables are overridden from the command line.

    By a file that the script executes, or by the script itself: `globals()[key] = value`.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id == "exec":
                return True
        elif (
            isinstance(node, ast.Subscript)
            and isinstance(node.ctx, ast.Store)
            and isinstance(node.value, ast.Call)
            and target_name(node.value.func) == "globals"
        ):
            return True
    return False


class Option(NamedTuple):
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

    def fills(self, name: str) -> bool:
        """Whether one of its flags is called so."""
        return any(flag.lstrip("-").replace("-", "_") == name for flag in self.flags)


def all_options(texts: Texts, words: Sequence[str] = ()) -> Iterator[Option]:
    """Every option, of whatever declares it.

    Args:
        words: of the command line, which may name files that override variables.
    """
    for file, text in texts:
        given = given_as_size(text.tree)
        for declared in declared_options(text.tree):
            rank = best_rank(declared.flags)
            if rank is None and any(map(declared.fills, given)):
                rank = len(SIZE_NAMES)
            value = _if_number(declared.default_value)
            yield Option(declared.flags, rank, file, value, declared.default or declared.call)
    for option in field_options([text.tree for _, text in texts]):
        file, value = texts[option.text][0], _if_number(option.value)
        yield Option((option.flag,), option_rank(option.flag), file, value, option.holder)
    yield from _overridden(texts, words)


def _overridden(texts: Texts, words: Sequence[str]) -> Iterator[Option]:
    """Variables of a script that takes them from its command line, after the files named there."""
    if not texts or not has_a_configurator(texts[0][1].tree):
        return
    last: dict[str, tuple[str, ast.expr, ast.AST]] = {}
    for file, text in texts:
        for name, value, holder in numbers_at_the_top(text.tree):
            if file == texts[0][0] or (file in words and name in last):
                last[name] = (file, value, holder)
    for name, (file, value, holder) in last.items():
        flag = f"--{name}"
        yield Option((flag,), option_rank(flag), file, value, holder, joined=True)


def _if_number(value: ast.expr | None) -> ast.expr | None:
    return value if number_of(value) is not None else None


def given_as_size(tree: ast.Module) -> set[str]:
    """NAME of `batch_size=args.NAME` and of `{"batch_size": args.NAME}`, the first of the text.

    Loaders that validate stand behind the one that trains, as a rule.
    """
    given = [
        value
        for node in ast.walk(tree)
        for name, value in _pairs(node)
        if name == "batch_size" and isinstance(value, ast.Attribute)
    ]
    first = min(given, key=lambda value: (value.lineno, value.col_offset), default=None)
    return set() if first is None else {first.attr}


def _pairs(node: ast.AST) -> list[tuple[str, ast.expr]]:
    """The keywords of a call and the items of a dictionary."""
    if isinstance(node, ast.Call):
        return [(each.arg, each.value) for each in node.keywords if each.arg is not None]
    if isinstance(node, ast.Dict):
        return [
            (str(key.value), value)
            for key, value in zip(node.keys, node.values, strict=True)
            if isinstance(key, ast.Constant)
        ]
    return []


def source_file(script: str, *, module: bool) -> str:
    """The source of a script, or of a module below the working folder; nothing is imported."""
    if not module:
        return script
    base = Path(*script.split("."))
    package = base / "__main__.py"
    return str(package if package.exists() else base.with_suffix(".py"))


def imported_files(script: str) -> tuple[str, ...]:
    """The files beside a script that its text imports, and those that they import."""
    found: dict[str, None] = {}
    left = [(Path(script), 0)]
    while left:
        path, depth = left.pop(0)
        try:
            tree = ast.parse(path.read_bytes())
        except (OSError, SyntaxError, ValueError):
            continue
        for name in _imported(tree) if depth < DEEPEST_IMPORT else ():
            for folder in dict.fromkeys((Path(script).parent, path.parent, Path())):
                base = folder.joinpath(*name.split("."))
                for file in (base.with_suffix(".py"), base / "__init__.py"):
                    if str(file) not in found and file.is_file():
                        found[str(file)] = None
                        left.append((file, depth + 1))
    return tuple(found)


def _imported(tree: ast.Module) -> Iterator[str]:
    """The modules that a text imports, and what may be modules among what it takes of them."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            if module:
                yield module
            yield from (f"{module}.{each.name}".lstrip(".") for each in node.names)


class FieldOption(NamedTuple):
    """One option of a library that reads a class or a function.

    Attributes:
        flag: as it is typed.
        text: which of the texts declares it.
        value: its default, `None` without one.
        holder: the field or the parameter.
    """

    flag: str
    text: int
    value: ast.expr | None
    holder: ast.AST


class _Style(NamedTuple):
    """How a library spells what it finds.

    Attributes:
        dashes: `--batch-size` for `batch_size`.
        dotted: a field of an inner class has the names of the outer ones before it.
    """

    dashes: bool
    dotted: bool


_STYLES = {
    "tyro.cli": _Style(dashes=True, dotted=True),
    "HfArgumentParser": _Style(dashes=False, dotted=False),
    "TrlParser": _Style(dashes=False, dotted=False),
    "simple_parsing.parse": _Style(dashes=False, dotted=False),
    "add_arguments": _Style(dashes=False, dotted=False),
    "fire.Fire": _Style(dashes=False, dotted=False),
    "Fire": _Style(dashes=False, dotted=False),
    "typer.run": _Style(dashes=True, dotted=False),
    "draccus.parse": _Style(dashes=False, dotted=True),
    "jsonargparse.CLI": _Style(dashes=False, dotted=True),
    "jsonargparse.auto_cli": _Style(dashes=False, dotted=True),
}
"""Styles by how the parsers are called, also where the name alone was imported."""


def field_options(trees: Sequence[ast.Module]) -> Iterator[FieldOption]:
    """The options of the classes and functions that are given to such a library in any text."""
    known = {
        node.name: (number, node)
        for number, tree in enumerate(trees)
        for node in ast.walk(tree)
        if isinstance(node, (ast.ClassDef, ast.FunctionDef))
    }
    for tree in trees:
        imported = _imported_names(tree)
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call):
                continue
            style = _style_of(node.func, imported)
            for name in _given(node) if style is not None else ():
                if style is not None and name in known:
                    yield from _options(name, known, style, ())


def _options(
    name: str,
    known: dict[str, tuple[int, ast.ClassDef | ast.FunctionDef]],
    style: _Style,
    path: tuple[str, ...],
) -> Iterator[FieldOption]:
    text, node = known[name]
    for base in node.bases if isinstance(node, ast.ClassDef) else ():
        if (target_name(base) or "") in known and len(path) < MOST_NESTED:
            yield from _options(target_name(base) or "", known, style, path)
    for field, kind, value, holder in _fields(node):
        inner = target_name(kind) if kind is not None else None
        if inner in known and inner != name and len(path) < MOST_NESTED:
            yield from _options(inner or "", known, style, (*path, field))
            continue
        words = (*path, field) if style.dotted else (field,)
        flag = ".".join(words)
        flag = flag.replace("_", "-") if style.dashes else flag
        yield FieldOption(f"--{flag}", text, value, holder)


def _fields(
    node: ast.ClassDef | ast.FunctionDef,
) -> Iterator[tuple[str, ast.expr | None, ast.expr | None, ast.AST]]:
    """The name, annotation, default and place of each."""
    if isinstance(node, ast.ClassDef):
        for each in node.body:
            if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
                value = None if each.value is None else default_of_field(each.value)
                yield each.target.id, each.annotation, value, each
        return
    named = [*node.args.posonlyargs, *node.args.args]
    without: list[ast.expr | None] = [None] * (len(named) - len(node.args.defaults))
    for argument, value in (
        *zip(named, (*without, *node.args.defaults), strict=True),
        *zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True),
    ):
        yield argument.arg, argument.annotation, value, argument


def _given(call: ast.Call) -> Iterator[str]:
    """The names of what a call is given: `cli(Args)`, `HfArgumentParser((ModelArgs, DataArgs))`."""
    given = [*call.args, *(keyword.value for keyword in call.keywords)]
    for value in given:
        for each in value.elts if isinstance(value, (ast.Tuple, ast.List)) else (value,):
            name = target_name(each)
            if name is not None:
                yield name


def _style_of(function: ast.expr, imported: dict[str, str]) -> _Style | None:
    name = target_name(function)
    if name is None:
        return None
    if isinstance(function, ast.Attribute):
        owner = target_name(function.value)
        whole = f"{imported.get(owner or '', owner)}.{name}"
    else:
        whole = imported.get(name, name)
    return _STYLES.get(whole) or _STYLES.get(whole.rpartition(".")[2])


def _imported_names(tree: ast.Module) -> dict[str, str]:
    """Full names of a file's imports: `tyro.cli` of `cli`, `simple_parsing` of `sp`."""
    names = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            for each in node.names:
                names[each.asname or each.name] = f"{node.module}.{each.name}"
        elif isinstance(node, ast.Import):
            for each in node.names:
                names[each.asname or each.name] = each.name
    return names
