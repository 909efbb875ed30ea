"""Finds the line that sets how many micro-batches an optimizer step takes."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from pathlib import Path

from ...records import BatchSizeSource, SourceLine
from .outside import Outside, source_outside
from .script_options import declared_options
from .script_text import ScriptText

ACCUMULATION_NAMES = (
    "gradient_accumulation_steps",
    "accumulate_grad_batches",
    "grad_accumulation_steps",
    "grad_accum_steps",
    "gradient_accumulation_iters",
    "accumulation_steps",
    "accum_steps",
    "accum_iter",
    "grad_accum",
    "accumulate",
)
"""Names that trainers and scripts give the number of accumulated batches."""


def find_accumulation_source(
    micro_batches: int,
    arguments: tuple[str, ...] = (),
    settings: Sequence[tuple[Path, str]] = (),
    files: Sequence[str] = (),
) -> BatchSizeSource | None:
    """A place with one of the usual names and this very number; `None` where there is none.

    Args:
        micro_batches: for an optimizer step, as counted in the running loop.
        arguments: the script's command line.
        settings: the settings files that it has opened, see outside.py.
        files: of the user's code.
    """
    names = [(name,) for name in ACCUMULATION_NAMES]
    outside = Outside(arguments, tuple(settings))
    source = source_outside(outside, names, micro_batches, None, None)
    if source is not None and source.template:
        return source
    for file in files:
        text = ScriptText.of(SourceLine(file=file, line=1))
        if text is None:
            continue
        written = text.text.replace("-", "_")  # as options spell it; most scripts have none
        for name in ACCUMULATION_NAMES:
            source = _in_text(text, file, name, micro_batches) if name in written else None
            if source is not None:
                return source
    return None


def _in_text(text: ScriptText, file: str, name: str, number: int) -> BatchSizeSource | None:
    """The default of an option, or a binding of the name."""
    places: list[tuple[ast.expr, ast.AST, str | None]] = [
        (declared.default.value, declared.default, max(declared.flags, key=len))
        for declared in declared_options(text.tree)
        if declared.default is not None and declared.fills(name)
    ]
    places += [(value, holder, None) for value, holder in text.bindings(name)]
    for value, holder, option in places:
        if isinstance(value, ast.Constant) and type(value.value) is int and value.value == number:
            before, template = text.marked(value, holder, name)
            place = SourceLine(file=file, line=value.lineno)
            return BatchSizeSource(place=place, before=before, template=template, option=option)
    return None
