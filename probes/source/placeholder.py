"""`{batch_size}` in a script's arguments, and the option that it belongs to.

Pure: reads source text, imports nothing of the script's. The supervisor uses it to fill in sizes
and to propose a command, the worker to say what stands where.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

import msgspec

from ...records import BatchSizeSource
from .named_size import NoPlace, Script, SizePlace, find_named, find_size
from .script_options import PLACEHOLDER

MOST_LISTED = 6
"""Places that a sentence names."""


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


def proposal(script: Script, *, forced: bool = False) -> str:
    """Proposes the very command to type for a script that cannot be steered.

    Args:
        forced: the script has a loader that looks steerable; `--template` is needed.
    """
    options: tuple[str, ...] = ("--template",) if forced else ()
    place = find_size(script)
    name, arguments = "NAME", script.arguments
    if isinstance(place, SizePlace):
        name, arguments = place.name, place.arguments or arguments
    elif place.computed:
        return f"{computed_text(script.name, place)} Change these by hand."
    elif place.several:
        return several_text(place.several)
    if not has_placeholder(arguments):
        options = (*options, "--set", f"{name}={PLACEHOLDER}")
    whole = command(script.name, arguments, module=script.module, options=options)
    if isinstance(place, SizePlace):
        return f"Start it once for each size: {whole}   (one process each)."
    return (
        "Nothing in it is named like a batch size. Name the number or the option that sets it: "
        f"{whole}."
    )


def computed_text(script: str, place: NoPlace) -> str:
    """Says that a size is computed from others, and how."""
    return (
        f"{script} computes its batch size from other settings: {'; '.join(place.computed)}. "
        f"{_listed(place.settings, 'and')} set it together, and no single option does."
    )


def several_text(places: Sequence[SizePlace]) -> str:
    """Says that several places may set the size, and what to type."""
    listed = ", ".join(place.text for place in places[:MOST_LISTED])
    more = ", ..." if len(places) > MOST_LISTED else ""
    return f"Name the one that sets it with --set NAME={PLACEHOLDER}: {listed}{more}."


def _listed(words: Sequence[str], last: str) -> str:
    return f" {last} ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))


def source_of(
    script: str, arguments: Sequence[str], *, module: bool = False
) -> tuple[int | None, BatchSizeSource | None]:
    """The script's own size, where its text says one, and the place that sets it."""
    flag = flag_of_placeholder(arguments)
    if flag is None:
        return None, None
    place = find_named(Script(script, without_placeholder(arguments), module), flag)
    if not isinstance(place, SizePlace) or place.number is None:
        return None, None
    option = place.source.option or flag
    return place.number, msgspec.structs.replace(place.source, option=option)


def flag_of_placeholder(arguments: Sequence[str]) -> str | None:
    """`--batch-size` of `--batch-size {batch_size}` and of `--batch-size={batch_size}`."""
    for position, argument in enumerate(arguments):
        if argument == PLACEHOLDER and position and arguments[position - 1].startswith("-"):
            return arguments[position - 1]
        flag, equals, value = argument.partition("=")
        if equals and PLACEHOLDER in value:
            return flag
    return None
