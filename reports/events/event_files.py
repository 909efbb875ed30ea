"""The event files of one TensorBoard run: grown while it is measured, made clean when it is over.

TensorBoard reads files in the order of their names, goes on where it stopped, forgets nothing, and
where its current file is deleted it waits for ever. So values are only appended, to a file of this
process; and when the run is over a last file holds each value once, while those before it keep what
is never written twice. A record that was cut (a kill, a full disk) is left out by TensorBoard, and
the next process begins a file of its own.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

PREFIX = "events.out.tfevents."
SUFFIX = ".batchadvisor"
"""Ends the names of our event files: others in the folder are left alone."""
Value = tuple[int, Any]
"""A step and a `Summary.Value`."""


class EventRun:
    """One run in TensorBoard.

    Args:
        folder: is made when something is written.
        kept: tags whose values are written once and stay where they are.
    """

    def __init__(self, folder: Path, kept: Sequence[str] = ()) -> None:
        self.folder = folder
        self._kept = frozenset(kept)
        self._live: Path | None = None

    def exists(self) -> bool:
        """Whether there are files of ours, of this process or an earlier one."""
        return any(self.folder.glob(f"{PREFIX}*{SUFFIX}"))

    def append(self, wall_s: float, values: Sequence[Value]) -> None:
        """Adds values to this process's file.

        Raises:
            OSError: they cannot be written.
        """
        if not values:
            return
        begins = self._live is None
        if self._live is None:
            self._live = self._free(wall_s)
        data = _records(wall_s, values, header=begins)
        with self._live.open("ab") as file:
            file.write(data)

    def finish(self, wall_s: float, values: Sequence[Value]) -> None:
        """Writes the last file; of earlier ones of ours only the kept tags stay.

        Raises:
            OSError: it cannot be written; what was there stays.
        """
        earlier = sorted(self.folder.glob(f"{PREFIX}*{SUFFIX}"))
        path = self._free(wall_s)
        draft = self.folder / f".draft-{SUFFIX}"
        shorter = self.folder / f".shorter-{SUFFIX}"
        try:
            draft.write_bytes(_records(wall_s, values, header=True))
            for file in earlier:
                # Before the new file is there: a file behind TensorBoard's place must not change.
                data = file.read_bytes()
                left = self._left(data)
                if left != data:
                    shorter.write_bytes(left)
                    shorter.replace(file)
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)
            shorter.unlink(missing_ok=True)
        self._live = None

    def _left(self, data: bytes) -> bytes:
        from tensorboard.compat.proto import event_pb2

        kept = []
        for record in _split(data):
            event = event_pb2.Event.FromString(record[12:-4])
            if event.file_version or {value.tag for value in event.summary.value} & self._kept:
                kept.append(record)
        return b"".join(kept)

    def _free(self, wall_s: float) -> Path:
        """A name after all others of ours."""
        self.folder.mkdir(parents=True, exist_ok=True)
        last = max((path.name for path in self.folder.glob(f"{PREFIX}*{SUFFIX}")), default="")
        wall_s = max(wall_s, _time_of(last) + 1e-5)
        while (name := f"{PREFIX}{wall_s:017.6f}{SUFFIX}") <= last:
            wall_s += 1
        return self.folder / name


def _time_of(name: str) -> float:
    try:
        return float(name.removeprefix(PREFIX).removesuffix(SUFFIX))
    except ValueError:
        return 0.0


def _records(wall_s: float, values: Sequence[Value], *, header: bool) -> bytes:
    """Events as TensorBoard's record format has them, to be written in one piece."""
    from tensorboard.compat.proto import event_pb2, summary_pb2
    from tensorboard.summary.writer.record_writer import RecordWriter

    file = io.BytesIO()
    writer = RecordWriter(file)
    if header:
        first = event_pb2.Event(wall_time=wall_s, file_version="brain.Event:2")
        writer.write(first.SerializeToString())
    for step, value in values:
        summary = summary_pb2.Summary(value=[value])
        event = event_pb2.Event(wall_time=wall_s, step=step, summary=summary)
        writer.write(event.SerializeToString())
    return file.getvalue()


def _split(data: bytes) -> Iterator[bytes]:
    """Whole records: a length of 8 bytes, its checksum of 4, the event, its checksum of 4."""
    at = 0
    while at + 16 <= len(data):
        (length,) = struct.unpack_from("<Q", data, at)
        end = at + 16 + length
        if end > len(data):
            return
        yield data[at:end]
        at = end
