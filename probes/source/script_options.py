"""The options that a script's text declares, and how they stand on a command line. Pure."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import NamedTuple


class DeclaredOption(NamedTuple):
    """One `add_argument("--x", ...)` or click option.

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
