"""Makes an exported trace file valid JSON, in place.

torch up to 2.13 exports names with unescaped quotes (`with_stack=True`), and then no viewer opens
the file. Valid files are only read; a damaged one is rewritten beside itself and replaced in one
step, so that a crash leaves the old file.
"""

from __future__ import annotations

import gzip
import os
import shutil
import tempfile
from pathlib import Path
from typing import IO

from ...errors import UsageError
from .chunks import MOST_UNBROKEN, Chunks
from .damaged import ReadableEvents, find_events, is_valid

_BETWEEN = b",\n  "


def repair(path: Path | str) -> int:
    """Makes a trace file valid JSON.

    Strings are escaped, bare words such as `NaN` become `null`, an unfinished end is closed. An
    event of which no sense can be made is left out. A file that is valid stays as it is, byte for
    byte.

    Returns:
        The number of events that were mended or left out.

    Raises:
        UsageError: there is no such file, it is empty, it is no trace, or it is damaged and holds
            no readable event.
        OSError: the folder cannot be written to.
    """
    path = Path(path)
    if _copy(Chunks(path), None) is None:
        return 0
    chunks = Chunks(path)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    draft = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            if chunks.source.compressed:
                with gzip.GzipFile(fileobj=file, mode="wb", filename="", mtime=0) as zipped:
                    changed = _copy(chunks, zipped)
            else:
                changed = _copy(chunks, file)
        shutil.copymode(path, draft)
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    return changed or 0


def _copy(chunks: Chunks, target: IO[bytes] | gzip.GzipFile | None) -> int | None:
    """Writes the document, mended.

    Returns:
        The number of events that are changed; `None` if nothing at all is. Without a target it
        stops as soon as it knows that something is.
    """
    changed = 0
    clean = True
    separator = b""
    if target is not None:
        target.write(_header(chunks))
    for chunk in chunks:
        if is_valid(b"[" + chunk + b"]"):
            readable = ReadableEvents(events=[chunk] if chunk.strip() else [])
            listed = True
        else:
            readable = find_events(chunk, final=chunks.final or len(chunk) > MOST_UNBROKEN)
            listed = _is_list(chunk, readable)
        if readable.footer is not None:
            chunks.close(readable.footer)
        chunks.push_back(readable.left)
        changed += readable.num_mended + readable.num_lost
        clean = clean and listed and not changed
        if target is None and not clean:
            return changed
        if target is not None and readable.events:
            target.write(separator + _BETWEEN.join(readable.events))
            separator = _BETWEEN
    header, footer = _header(chunks), _footer(chunks)
    lost = changed or chunks.source.damage or chunks.footer is None
    if target is not None and not separator and lost:
        msg = f"{chunks.source.path} is damaged and holds no readable event."
        raise UsageError(msg, "Record it again.")
    clean = clean and not chunks.source.damage
    clean = clean and header == chunks.header and footer == chunks.footer
    if target is not None:
        target.write(b"]" + footer)
    return None if clean else changed


def _is_list(chunk: bytes, readable: ReadableEvents) -> bool:
    """Whether nothing but single commas is between the events of a chunk."""
    if readable.footer is not None:
        body = chunk[: len(chunk) - len(readable.footer)].removesuffix(b"]")
    else:
        body = chunk[: len(chunk) - len(readable.left)].rstrip().removesuffix(b",")
    return is_valid(b"[" + body + b"]")


def _header(chunks: Chunks) -> bytes:
    """The document before the list; where it is damaged, the least that makes a list of it."""
    header = chunks.header
    if chunks.bare_list or is_valid(header + b"]}"):
        return header
    return b'{"traceEvents": ['


def _footer(chunks: Chunks) -> bytes:
    """The document after the list; where it is damaged, its end alone."""
    footer = chunks.footer
    if chunks.bare_list:
        return footer if footer is not None and not footer.strip() else b"\n"
    if footer is not None and is_valid(b'{"traceEvents": []' + footer):
        return footer
    return b"}\n"
