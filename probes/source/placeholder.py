"""`{batch_size}` in a script's arguments, and the option that it belongs to.

Pure: reads source text, imports nothing of the script's. The supervisor uses it to fill in sizes
and to propose a command, the worker to say what stands where.
"""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from ...records import BatchSizeSource, SourceLine
from .script_options import DeclaredOption, declared_options

PLACEHOLDER = "{batch_size}"
_NAMED_LIKE_A_SIZE = re.compile(
    r"(per_device_|per_gpu_|micro_|mini_?)?(train_|training_)?(batch_?size|micro_?batch)"
    r"(_per_(gpu|device))?|bs|bsz|batch"
)


def has_placeholder(arguments: Sequence[str]) -> bool:
    """Whether a size can be filled in anywhere."""
    return any(PLACEHOLDER in argument for argument in arguments)


def filled(arguments: Sequence[str], size: int) -> tuple[str, ...]:
    """The arguments with `size` in place of every placeholder."""
    return tuple(argument.replace(PLACEHOLDER, str(size)) for argument in arguments)


def without_placeholder(arguments: Sequence[str]) -> tuple[str, ...]:
    """The arguments without those that hold a placeholder, and without the option before one."""
    kept: list[str] = []
    for argument in arguments:
        if PLACEHOLDER not in argument:
            kept.append(argument)
        elif argument == PLACEHOLDER and kept and kept[-1].startswith("-"):
            kept.pop()
    return tuple(kept)


def command(
    script: str, arguments: Sequence[str], *, module: bool = False, options: Sequence[str] = ()
) -> str:
    """`batchadvisor run ...` as a person would type it."""
    words = [*options, *(["-m"] if module else []), script, *arguments]
    # Braces mean nothing to a shell where they hold neither a comma nor two dots.
    return "batchadvisor run " + " ".join(
        word if re.fullmatch(r"[\w@%+=:,./{}-]+", word) else shlex.quote(word) for word in words
    )


def proposal(
    script: str, arguments: Sequence[str], *, module: bool = False, forced: bool = False
) -> str:
    """What to do about a script that cannot be steered: the very command to type.

    Args:
        forced: the script has a loader that looks steerable; `--template` is needed.
    """
    options = ("--template",) if forced else ()
    words = _given_option(arguments, _size_flags(script, module=module))
    flag = None if words is not None else _option_of(script, module=module)
    if words is None and flag is not None:
        words = (*arguments, *flag)
    known = words is not None
    if words is None:
        words = (*arguments, "--batch-size", PLACEHOLDER)
    whole = command(script, words, module=module, options=options)
    if known:
        return f"Start it once for each size: {whole}   (one process each)."
    return (
        "No option of the script was found that sets its batch size; with one, start it once for "
        f"each size: {whole}   (one process each)."
    )


def source_of(
    script: str, arguments: Sequence[str], *, module: bool = False
) -> tuple[int | None, BatchSizeSource | None]:
    """The script's own size, where its text says one, and the place that sets it."""
    flag = _flag_of_placeholder(arguments)
    script = source_file(script, module=module)
    tree = _tree(script)
    if tree is None or flag is None:
        return None, None
    name = flag.lstrip("-").replace("-", "_")
    for declared in declared_options(tree):
        if flag not in declared.flags and name != declared.destination:
            continue
        default = declared.default
        if default is not None and _is_size(default.value):
            default_value = default.value
            return _size(default_value), _source(
                script, default_value.lineno, "default", _size(default_value), flag
            )
    for assigned, value in _assignments(tree):
        if assigned == name:
            size = _size(value)
            return size, _source(script, value.lineno, name, size, flag, spaced=True)
    return None, None


def _source(
    script: str, line: int, name: str, size: int, flag: str, *, spaced: bool = False
) -> BatchSizeSource:
    equals = " = " if spaced else "="
    return BatchSizeSource(
        place=SourceLine(file=script, line=line),
        before=f"{name}{equals}{size}",
        template=f"{name}{equals}{{}}",
        option=flag,
    )


def _flag_of_placeholder(arguments: Sequence[str]) -> str | None:
    """`--batch-size` of `--batch-size {batch_size}` and of `--batch-size={batch_size}`."""
    for position, argument in enumerate(arguments):
        if argument == PLACEHOLDER and position and arguments[position - 1].startswith("-"):
            return arguments[position - 1]
        flag, equals, value = argument.partition("=")
        if equals and PLACEHOLDER in value:
            return flag
    return None


def _size_flags(script: str, *, module: bool) -> set[str]:
    """All spellings of the options of the script that are named like a batch size."""
    tree = _tree(source_file(script, module=module))
    sizes: set[str] = set()
    for declared in _size_options(tree) if tree is not None else ():
        sizes.update(declared.flags)
    return sizes


def _size_options(tree: ast.Module) -> list[DeclaredOption]:
    """The options that are named like a batch size, then those that the text gives to one."""
    declared = list(declared_options(tree))
    named = [each for each in declared if any(map(_is_named_like_a_size, each.flags))]
    given = _given_as_size(tree)
    others = [each for each in declared if each not in named and any(map(each.fills, given))]
    return named + others


def _given_as_size(tree: ast.Module) -> set[str]:
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


def _given_option(arguments: Sequence[str], known: set[str]) -> tuple[str, ...] | None:
    """The arguments with the value of the option that sets the batch size replaced."""
    words = list(arguments)
    for position, word in enumerate(words):
        flag, equals, value = word.partition("=")
        if flag not in known and not _is_named_like_a_size(flag):
            continue
        if equals and value.isdigit():
            words[position] = f"{flag}={PLACEHOLDER}"
            return tuple(words)
        if not equals and position + 1 < len(words) and words[position + 1].isdigit():
            words[position + 1] = PLACEHOLDER
            return tuple(words)
    return None


def _option_of(script: str, *, module: bool) -> tuple[str, ...] | None:
    """The words that set the batch size of the script, by an option of its own.

    Where a configurator overrides plain assignments, `--NAME=VALUE` is it.
    """
    tree = _tree(source_file(script, module=module))
    if tree is None:
        return None
    for declared in _size_options(tree):
        flags = sorted(declared.flags, key=len, reverse=True)
        return next(filter(_is_named_like_a_size, flags), flags[0]), PLACEHOLDER
    if not _has_a_configurator(tree):
        return None
    for name, _ in _assignments(tree):
        if _NAMED_LIKE_A_SIZE.fullmatch(name):
            return (f"--{name}={PLACEHOLDER}",)
    return None


def _assignments(tree: ast.Module) -> Iterator[tuple[str, ast.Constant]]:
    """`NAME = NUMBER` at the top of the script."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
            for target in node.targets:
                if isinstance(target, ast.Name) and _is_size(node.value):
                    yield target.id, node.value


def _has_a_configurator(tree: ast.Module) -> bool:
    """Whether variables are overridden from the command line.

    By a file that the script executes, or by the script itself: `globals()[key] = value`.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _is_name(node.func, "exec"):
            return True
        if (
            isinstance(node, ast.Subscript)
            and isinstance(node.ctx, ast.Store)
            and isinstance(node.value, ast.Call)
            and _is_name(node.value.func, "globals")
        ):
            return True
    return False


def _is_name(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _is_named_like_a_size(flag: str) -> bool:
    name = flag.lstrip("-").lower().replace("-", "_")
    return flag.startswith("-") and _NAMED_LIKE_A_SIZE.fullmatch(name) is not None


def _is_size(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) is int and node.value > 0


def _size(node: ast.expr) -> int:
    assert isinstance(node, ast.Constant)
    assert isinstance(node.value, int)
    return node.value


def source_file(script: str, *, module: bool) -> str:
    """The source of a script, or of a module below the working folder; nothing is imported."""
    if not module:
        return script
    base = Path(*script.split("."))
    package = base / "__main__.py"
    return str(package if package.exists() else base.with_suffix(".py"))


def _tree(script: str) -> ast.Module | None:
    try:
        return ast.parse(Path(script).read_bytes())
    except (OSError, SyntaxError, ValueError):
        return None
