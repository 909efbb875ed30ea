"""The change that an answer names, as a unified diff. No file is edited here."""

from __future__ import annotations

import difflib
import hashlib
import os
import re
from collections.abc import Sequence
from pathlib import Path

from ..advisor.explain.change import following_numbers
from ..probes.source.replaced import Replacement, replacement_at
from ..records import Advice, RunRecord
from .edit import replacement_of_size

NO_NEWLINE = "\\ No newline at end of file\n"
NOT_CHECKED = "unchecked"
_QUOTED = re.compile(r'[\x00-\x1f"\\]')
"""Characters for which git would write a path in another way."""


class NoDiffError(Exception):
    """There is no diff; the text says why."""


def change_diff(record: RunRecord, advice: Advice, context: int = 3) -> str:
    """The change to the recommended size as `git apply` takes it.

    Paths begin at the root of the git repository around a file, else at the working folder.

    Args:
        context: lines around the change.

    Raises:
        NoDiffError: nothing is to be changed, its place is not known or not in a file, more has to
            change than this number, nobody saw the script take the size from there, or the file is
            not what it was.
    """
    replacements = _replacements(record, advice)
    files = dict.fromkeys(each.file for each in replacements)
    return "".join(
        _diff(Path(file), [each for each in replacements if each.file == file], context)
        for file in files
    )


def _replacements(record: RunRecord, advice: Advice) -> list[Replacement]:
    discovery, edit, choice = record.discovery, record.edit, advice.recommended
    if discovery is None or choice is None:
        raise NoDiffError("no size is recommended")
    if advice.change == "nothing to change":
        raise NoDiffError("nothing to change")
    size, own, source = choice.batch_size, discovery.native_batch_size, discovery.primary.source
    if source is None:
        where = "the size is an argument" if discovery.traits.size_is_argument else "unknown place"
        raise NoDiffError(f"{where}: {advice.change}")
    if source.place is None or source.before.startswith(("-", source.option or "-")):
        raise NoDiffError(f"the size was typed: {advice.change}")
    micro_batches = None if advice.training is None else advice.training.micro_batches
    other_steps = micro_batches not in (None, discovery.micro_batches)
    if other_steps or following_numbers(discovery, size, micro_batches):
        raise NoDiffError(f"more than one number has to change: {advice.change}")
    if edit is None or edit.size != size or not edit.did:
        check = advice.change_check or NOT_CHECKED
        raise NoDiffError(
            f"{check}: the script was not started so" if check == NOT_CHECKED else check
        )
    file = source.place.file
    if _changed_since(record, file):
        raise NoDiffError(f"{file} has changed since the run, or is not here")
    found = [replacement_of_size(source, own, size)]
    if edit.also is not None:
        found.append(replacement_at(edit.also, own, size))
    known = [each for each in found if each is not None]
    if len(known) < len(found):
        raise NoDiffError(f"nothing tells which number of the line it is: {advice.change}")
    return known


def _changed_since(record: RunRecord, file: str) -> bool:
    """Whether a file is missing, or is the script and another text than the one that was run."""
    try:
        data = Path(file).read_bytes()
    except OSError:
        return True
    same = os.path.realpath(file) == os.path.realpath(record.script.path)
    digest = record.script.digest
    return same and digest is not None and digest != hashlib.sha256(data).hexdigest()[:16]


def _diff(file: Path, replacements: Sequence[Replacement], context: int) -> str:
    try:
        lines = file.read_bytes().splitlines(keepends=True)
        before = [line.decode() for line in lines]
        for each in sorted(replacements, key=lambda one: (one.line, one.column), reverse=True):
            if each.line != each.end_line:
                raise NoDiffError(f"the number of {file}:{each.line} takes several lines")
            line = lines[each.line - 1]
            number = str(each.number).encode()
            lines[each.line - 1] = line[: each.column] + number + line[each.end_column :]
        after = [line.decode() for line in lines]
    except (OSError, UnicodeDecodeError) as error:
        raise NoDiffError(f"cannot read {file}: {error}") from error
    name = _name(file)
    end = "\t" if " " in name else ""
    shown = difflib.unified_diff(
        before, after, f"a/{name}{end}", f"b/{name}{end}", n=context, lineterm="\n"
    )
    return "".join(line if line.endswith("\n") else f"{line}\n{NO_NEWLINE}" for line in shown)


def _name(file: Path) -> str:
    """The path of a file from the root of its repository, else from the working folder."""
    path = Path(os.path.abspath(file))  # noqa: PTH100  links stay as the user named them
    root = next((each for each in path.parents if (each / ".git").exists()), Path.cwd())
    try:
        name = path.relative_to(root).as_posix()
    except ValueError:
        raise NoDiffError(f"{file} is outside the working folder") from None
    if _QUOTED.search(name):
        raise NoDiffError(f"git writes the path of {file} in another way")
    return name
