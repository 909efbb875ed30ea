"""Scalars in a TensorBoard event file, written without TensorFlow."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping
from pathlib import Path


class ScalarFile:
    """One event file of one run.

    Args:
        folder: TensorBoard shows it as a run.
    """

    def __init__(self, folder: Path) -> None:
        # TensorBoard's own EventFileWriter imports all of TensorFlow where that is installed.
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.record_writer import (
            RecordWriter,
        )

        self._event, self._summary = Event, Summary
        name = f"events.out.tfevents.{int(time.time())}.{socket.gethostname()}.{os.getpid()}"
        self._file = (folder / f"{name}.batchadvisor").open("wb")
        self._writer = RecordWriter(self._file)
        self._write(Event(wall_time=time.time(), file_version="brain.Event:2"))

    def add(self, step: int, values: Mapping[str, float]) -> None:
        """Values at one step, by tag."""
        summary = self._summary(
            value=[
                self._summary.Value(tag=tag, simple_value=value) for tag, value in values.items()
            ]
        )
        self._write(self._event(wall_time=time.time(), step=step, summary=summary))

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    def _write(self, event: object) -> None:
        self._writer.write(event.SerializeToString())  # type: ignore[attr-defined]
        self._file.flush()
