"""Changes to the text of the script, as a unified diff. No file is edited here."""

from __future__ import annotations

import ast
import codecs
import difflib
import hashlib
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ..advisor.explain.change import following_numbers
from ..probes.source.named_size import replacement_of_size
from ..probes.source.replaced import Replacement, replacement_at
from ..records import Advice, RunRecord

NO_NEWLINE = "\\ No newline at end of file\n"
NOT_CHECKED = "unchecked"
_QUOTED = re.compile(r'[\x00-\x1f"\\]')
"""Characters for which git would write a path in another way."""


class NoDiffError(Exception):
    """There is no diff; the text says why."""


class Edit(NamedTuple):
    """Other text in a place of a file; at the same place twice it is put in between.

    Attributes:
        file: its path.
        line, column, end_line, end_column: what is replaced, as the syntax tree counts: lines from
            1, columns are bytes.
        text: what stands there instead.
    """

    file: str
    line: int
    column: int
    end_line: int
    end_column: int
    text: str


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
    return diff_of(edits_of_size(record, advice), context)


def diff_of(edits: Sequence[Edit], context: int = 3) -> str:
    """Edits of files as `git apply` takes them.

    Raises:
        NoDiffError: a file cannot be read, or is no Python any more, or lies elsewhere.
    """
    files = dict.fromkeys(each.file for each in edits)
    return "".join(
        _diff(Path(file), [each for each in edits if each.file == file], context) for file in files
    )


def edits_of_size(record: RunRecord, advice: Advice) -> list[Edit]:
    """The edits that give the script its recommended size.

    Raises:
        NoDiffError: as above.
    """
    return [
        Edit(each.file, each.line, each.column, each.end_line, each.end_column, str(each.number))
        for each in _replacements(record, advice)
    ]


def _replacements(record: RunRecord, advice: Advice) -> list[Replacement]:
    discovery, edit, choice = record.discovery, record.edit, advice.recommended
    if discovery is None or choice is None:
        raise NoDiffError("no size is recommended")
    if advice.change == "nothing to change":
        raise NoDiffError("nothing to change")
    size, own, source = choice.batch_size, discovery.native_batch_size, discovery.primary.source
    if source is None:
        where = "unknown place"
        if discovery.traits.size_is_argument:
            where = "the size is an argument"
        elif discovery.shared is not None:
            where = "ranks share the number that is written there"
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


def _diff(file: Path, edits: Sequence[Edit], context: int) -> str:
    try:
        data = file.read_bytes()
        before, after = _lines(data), _lines(edited(data, edits))
    except (OSError, UnicodeDecodeError) as error:
        raise NoDiffError(f"cannot read {file}: {error}") from error
    if file.suffix == ".py" and not _is_python("".join(after).encode()):
        raise NoDiffError(f"{file} would not be Python any more")
    name = _name(file)
    end = "\t" if " " in name else ""
    shown = difflib.unified_diff(
        before, after, f"a/{name}{end}", f"b/{name}{end}", n=context, lineterm="\n"
    )
    return "".join(line if line.endswith("\n") else f"{line}\n{NO_NEWLINE}" for line in shown)


def edited(data: bytes, edits: Sequence[Edit]) -> bytes:
    """The text of a file with other text in these places.

    Raises:
        NoDiffError: two of them meet.
    """
    starts = [0]
    for line in data.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    if data.startswith(codecs.BOM_UTF8):  # not in the columns of the first line
        starts[0] = len(codecs.BOM_UTF8)
    places = [
        (starts[each.line - 1] + each.column, starts[each.end_line - 1] + each.end_column, each)
        for each in edits
    ]
    reached = len(data)
    for begin, end, each in sorted(places, key=lambda place: place[:2], reverse=True):
        if end > reached:
            raise NoDiffError(f"two changes meet at {each.file}:{each.line}")
        data = data[:begin] + each.text.encode() + data[end:]
        reached = begin
    return data


def _lines(data: bytes) -> list[str]:
    return [line.decode() for line in data.splitlines(keepends=True)]


def _is_python(data: bytes) -> bool:
    try:
        ast.parse(data)
    except (SyntaxError, ValueError):
        return False
    return True


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
