"""One end of the two pipes between the supervisor and its worker: JSON lines."""

from __future__ import annotations

import contextlib
import json
import os
import select
import threading
import time

import msgspec

from .messages import Message


class ChannelClosedError(Exception):
    """The other side is gone."""


class Channel:
    """One end of the two pipes.

    Only the process that made it may write: forked data workers inherit the descriptors.

    Args:
        terminal: our end of the other side's terminal, which lasts as long.
    """

    def __init__(self, read_fd: int, write_fd: int, *, terminal: int | None = None) -> None:
        self._read_fd = read_fd
        self._write_fd = write_fd
        self._open = [read_fd, write_fd, *([] if terminal is None else [terminal])]
        self._pid = os.getpid()
        self._buffer = bytearray()
        self._lock = threading.Lock()
        self._encoder = msgspec.json.Encoder()

    def send(self, message: Message) -> None:
        """Writes one line; does nothing in a forked child.

        Raises:
            ChannelClosedError: the reader is gone.
        """
        if os.getpid() != self._pid:
            return
        line = memoryview(self._encode(message) + b"\n")
        with self._lock:
            try:
                while line:
                    line = line[os.write(self._write_fd, line) :]
            except OSError as error:
                raise ChannelClosedError from error

    def _encode(self, message: Message) -> bytes:
        try:
            return self._encoder.encode(message)
        except UnicodeEncodeError:  # file names and messages of the script may be any bytes
            plain = msgspec.to_builtins(message)
            return json.dumps(plain, ensure_ascii=False).encode("utf-8", "replace")

    def receive_line(self, timeout_s: float | None = None) -> bytes | None:
        """The next line without its end, or `None` after `timeout_s`.

        Raises:
            ChannelClosedError: the writer is gone.
        """
        if os.getpid() != self._pid:  # a fork of the script that trains on: not ours to steer
            raise ChannelClosedError
        end = None if timeout_s is None else time.monotonic() + timeout_s
        while (cut := self._buffer.find(b"\n")) < 0:
            left = None if end is None else max(0.0, end - time.monotonic())
            ready, _, _ = select.select([self._read_fd], [], [], left)
            if not ready:
                return None
            data = os.read(self._read_fd, 1 << 16)
            if not data:
                raise ChannelClosedError
            self._buffer += data
        line = bytes(self._buffer[:cut])
        del self._buffer[: cut + 1]
        return line

    def close(self) -> None:
        """Closes the descriptors; once, since others may get their numbers."""
        while self._open:
            with contextlib.suppress(OSError):
                os.close(self._open.pop())
