"""Commands as forks of one process that has torch already; see preload_server.py."""

from __future__ import annotations

import atexit
import functools
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

LAUNCHER = "torch.distributed.run"
SERVER = Path(__file__).with_name("preload_server.py")
VARIABLES = (("OMP_NUM_THREADS", "1"),)
"""Read by libraries when torch is loaded: a fork cannot have others."""


@dataclass(frozen=True)
class Preload:
    """What the process has that forks.

    Attributes:
        modules: imported after torch.
        variables: names and values, for libraries that read them when they are loaded.
    """

    modules: tuple[str, ...] = ()
    variables: tuple[tuple[str, str], ...] = ()


TORCH = Preload()


class Forked:
    """A command that runs, with what a test needs of `subprocess.Popen`.

    Args:
        script: is run in place of batchadvisor; `LAUNCHER` for torchrun, whose ranks are forks too.
        preload: of the process that it is a fork of.
        spares: how many forks each worker has ready for the ranks that its script starts.

    Attributes:
        sessions: the sessions that it and its workers lead, as far as they have begun.
    """

    def __init__(self, arguments, *, cwd, env, script=None, preload=TORCH, spares=0):
        ends = [os.pipe() for _ in range(3)]  # output, errors, notes of processes
        given = [os.open(os.devnull, os.O_RDONLY), *(write for _, write in ends)]
        argv = [str(script or "batchadvisor"), *map(str, arguments)]
        what = "command" if script is None else "launcher" if script == LAUNCHER else "script"
        order = {"argv": argv, "what": what, "cwd": str(cwd), "env": env, "spares": spares}
        self._server = _server(preload)
        self.pid = self._server.start(order, given)
        for descriptor in given:
            os.close(descriptor)
        self.returncode = None
        self._texts = ["", "", ""]
        self._readers = [
            threading.Thread(target=self._read, args=(place, read), daemon=True)
            for place, (read, _) in enumerate(ends)
        ]
        for reader in self._readers:
            reader.start()

    @property
    def sessions(self):
        return {int(line) for line in self._texts[2].split()}

    def poll(self):
        if self.returncode is None:
            self.returncode = self._server.code_of(self.pid)
        return self.returncode

    def kill(self):
        os.kill(self.pid, signal.SIGKILL)

    def communicate(self, timeout):
        """Waits for its end; output and errors as text.

        Raises:
            subprocess.TimeoutExpired: it did not end.
        """
        deadline = time.monotonic() + timeout
        while self.poll() is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(str(self.pid), timeout)
            time.sleep(0.01)
        for reader in self._readers:
            reader.join(max(0.0, deadline - time.monotonic()))
            if reader.is_alive():  # somebody holds the stream open
                raise subprocess.TimeoutExpired(str(self.pid), timeout)
        return self._texts[0], self._texts[1]

    def _read(self, place, descriptor):
        with os.fdopen(descriptor, "rb", buffering=0) as stream:
            text = b""
            while piece := stream.read(65536):
                text += piece
                self._texts[place] = text.decode(errors="replace")


def run_code(code, *arguments, folder, limit_s=120):
    """`python -c CODE ARGUMENTS` as a fork that has torch; exit code, output and errors.

    Args:
        folder: its working folder, which gets a file with the code.
    """
    script = folder / "code.py"
    script.write_text(code)
    process = Forked(arguments, script=script, cwd=folder, env=dict(os.environ))
    try:
        output, errors = process.communicate(limit_s)
    finally:
        if process.poll() is None:
            process.kill()
    return process.returncode, output, errors


class _Server:
    """The process that forks, started when it is first needed."""

    def __init__(self, preload):
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, str(SERVER), str(theirs.fileno()), *preload.modules],
                pass_fds=(theirs.fileno(),),
                env={**os.environ, **dict(VARIABLES), **dict(preload.variables)},
                stdin=subprocess.DEVNULL,
            )
        self._lock = threading.Lock()
        self._codes = {}
        atexit.register(self.close)

    def start(self, order, descriptors):
        with self._lock:
            socket.send_fds(self._channel, [json.dumps(order).encode()], list(descriptors))
            while True:
                message = self._next()
                if "code" not in message:
                    self._codes.pop(message["pid"], None)  # of an older process of this number
                    return message["pid"]

    def code_of(self, pid):
        with self._lock:
            while pid not in self._codes:
                try:
                    self._next(socket.MSG_DONTWAIT)
                except BlockingIOError:
                    return None
            return self._codes.pop(pid)

    def close(self):
        self._channel.close()
        self._process.wait()

    def _next(self, flags=0):
        data = self._channel.recv(65536, flags)
        assert data, "the server of preloaded commands is over"
        message = json.loads(data)
        if "code" in message:
            self._codes[message["pid"]] = message["code"]
        return message


_starts = threading.Lock()


def _server(preload):
    with _starts:  # commands start in several threads, and two servers know half of them each
        return _only_server(preload)


@functools.cache
def _only_server(preload):
    return _Server(preload)
