"""A process that has imported torch once; commands, and their workers, are forks of it.

Most of a short command's time is the import of torch, once for each process. Tests that look at
what a command finds, and not at how its processes start, are spared that. Started by preloaded.py
as a program of its own: it starts no thread and computes nothing, so that a fork of it is sound.
Its arguments are the channel's descriptor and modules to import beside torch.

    driver --- {"argv", "what", "cwd", "env", "spares"}, ----> server
                               and 4 descriptors
           <------ {"pid"}, then {"pid", "code"} ----------     fork: a command, launcher or script
                                                                  fork: its worker
                                                                    fork: a spare (spares.py)
                                                                  fork: torch's launcher
                                                                    fork: a rank, again a command
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import io
import json
import os
import random
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from pathlib import Path

from spares import Spares

MOST_BYTES = 1 << 20
STARTERS = (
    "probes.process.worker_launch",
    "session.devices.local_engine",
    "session.workers.launcher",
)
"""Modules that start Python."""
LAUNCHER = "torch.distributed.run"
FORK_SAFE = ("jemalloc_bg_thd",)
"""Threads of libraries that see to forks: pyarrow's allocator starts this one."""
_left = {}
_exit = os._exit  # a worker watches the one of the module


def serve(channel):
    """Forks a command for each message until the other end is closed."""
    awake, wake = os.pipe()
    for end in (awake, wake):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the commands
    while True:
        ready, _, _ = select.select([channel, awake], [], [])
        if awake in ready:
            os.read(awake, 4096)
            _tell_of_ends(channel)
        if channel in ready:
            message, descriptors, _, _ = socket.recv_fds(channel, MOST_BYTES, 4)
            if not message:
                return
            pid = _fork()
            if not pid:
                channel.close()
                signal.set_wakeup_fd(-1)
                _run(_command, json.loads(message), descriptors)
            for descriptor in descriptors:
                os.close(descriptor)
            channel.send(json.dumps({"pid": pid}).encode())


def _tell_of_ends(channel):
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        code = os.waitstatus_to_exitcode(status)
        channel.send(json.dumps({"pid": pid, "code": code}).encode())


def _fork():
    """A fork that leads a session of its own before its parent goes on, as `subprocess` has it."""
    ready, tell = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(ready)
        os.setsid()
        os.close(tell)
        return 0
    os.close(tell)
    os.read(ready, 1)
    os.close(ready)
    return pid


def _run(function, *arguments):
    """The rest of a fork's life, with Python's own exit codes."""
    code = 0
    try:
        function(*arguments)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            sys.stderr.write(f"{end.code}\n")
    except BaseException:  # noqa: BLE001  as the interpreter does
        traceback.print_exc()
        code = 1
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        _exit(code)


def _command(message, descriptors):
    """`python -m batchadvisor ...`, or a script, in this process."""
    *streams, note = descriptors
    _begin(streams, message["env"])
    os.set_inheritable(note, False)
    os.chdir(message["cwd"])
    sys.argv = message["argv"]
    os.write(note, f"{os.getpid()}\n".encode())
    if message["what"] == "script":
        _script()
    elif message["what"] == "launcher":
        _launcher(note)
    else:
        sys.path[:] = [message["cwd"], *sys.path]
        _batchadvisor(note, message["spares"])


def _script():
    """What the script leaves lives on: a process group whose end waits for the rest would hang."""
    sys.path[:] = [str(Path(sys.argv[0]).parent), *sys.path]
    _left.update(runpy.run_path(sys.argv[0], run_name="__main__"))


def _launcher(note):
    """torchrun, which forks where it would start Python."""
    ranks = "torch.distributed.elastic.multiprocessing.subprocess_handler.subprocess_handler"
    importlib.import_module(ranks).Popen = _Forks(note).Popen
    importlib.import_module(LAUNCHER).main()


def _batchadvisor(note, num_spares=0):
    """The command line, which forks where it would start Python."""
    forks = _Forks(note, num_spares)
    for module in STARTERS:
        importlib.import_module(f"batchadvisor.{module}").subprocess = forks
    importlib.import_module("batchadvisor.cli").main()


def _begin(streams, environment):
    """What `exec` would have made new: streams, variables, signals, random numbers."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    for stream in set(streams) - {0, 1, 2}:
        os.close(stream)
    os.environ.clear()
    os.environ.update(environment)
    for number in range(1, signal.NSIG):
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.unraisablehook = sys.__unraisablehook__
    direct = (1, 2) if environment.get("PYTHONUNBUFFERED") else (2,)
    sys.stdin, sys.stdout, sys.stderr = (
        io.TextIOWrapper(
            os.fdopen(number, mode, buffering=0 if number in direct else -1, closefd=False),
            encoding="utf-8",
            errors="backslashreplace" if number == 2 else "strict",
            line_buffering=number == 2,
            write_through=number in direct,
        )
        for number, mode in enumerate(("rb", "wb", "wb"))
    )
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr
    tempfile.tempdir = None
    random.seed()


class _Forks:
    """Stands in for `subprocess` where a process of Python is started.

    Args:
        note: where each writes its number, which is that of its session.
        num_spares: of each worker.
    """

    DEVNULL = subprocess.DEVNULL
    PIPE = subprocess.PIPE
    TimeoutExpired = subprocess.TimeoutExpired

    def __init__(self, note, num_spares=0):
        self._note = note
        self._num_spares = num_spares

    def Popen(  # noqa: N802
        self, args, *, env, start_new_session, stdin=None, stdout=None, stderr=None, pass_fds=(),
        cwd=None, preexec_fn=None,
    ):  # fmt: skip
        assert start_new_session
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        read, write = os.pipe() if stderr == subprocess.PIPE else (None, None)
        pid = _fork()
        if not pid:
            os.write(self._note, f"{os.getpid()}\n".encode())
            if cwd is not None:
                os.chdir(cwd)
            if preexec_fn is not None:
                preexec_fn()
            if pass_fds:
                assert stdout == stderr
                _run(_worker, stdin, stdout.fileno(), pass_fds, env, self._num_spares)
            nothing = os.open(os.devnull, os.O_RDWR)
            errors = os.dup(stderr.fileno()) if hasattr(stderr, "fileno") else write
            given = zip((stdin, stdout, stderr), (nothing, nothing, errors), strict=True)
            streams = [number if way is None else end for number, (way, end) in enumerate(given)]
            _run(_module, args, streams, self._note, env)
        if write is not None:
            os.close(write)
        return _process(pid, args, None if read is None else os.fdopen(read, "rb"))


def _module(command, streams, note, environment):
    """`python -m MODULE ...`, or `python SCRIPT ...`, in this process."""
    _begin(streams, environment)
    _close_but(note)
    if "-m" not in command:
        sys.argv = [word for word in command[1:] if word != "-u"]
        _script()
        return
    sys.argv = [*command[command.index("-m") + 1 :]]
    if sys.argv[0] == "batchadvisor":
        _batchadvisor(note)
        return
    assert sys.argv[0] == LAUNCHER
    _launcher(note)


def _close_but(*ends):
    """Lets go of what is above the standard streams, but these.

    The numbers stay taken: an object of the parent's that closes its own later must not hit a new
    file.
    """
    nothing = os.open(os.devnull, os.O_RDWR)
    numbers = [int(entry.name) for entry in Path("/proc/self/fd").iterdir()]
    for number in numbers:
        if number > 2 and number not in (*ends, nothing):
            with contextlib.suppress(OSError):  # the listing's own is closed by now
                os.fstat(number)
                os.dup2(nothing, number, inheritable=False)


def _worker(terminal, log, ends, environment, num_spares):
    """`worker/main.py` in this process, which holds no file of its parent's."""
    _begin((os.dup(terminal), log, os.dup(log)), environment)
    _close_but(*ends)
    sys.path[:] = [entry for entry in sys.path[1:] if entry]
    sys.argv = ["-c"]
    if num_spares:
        Spares(num_spares, (_close_but, _begin, _run)).take_over()
    importlib.import_module("batchadvisor.probes.worker.main").main(*ends)


def _process(pid, command, stderr=None):
    """The fork as `subprocess` knows its children: it polls, waits, and is signalled the same."""
    process = subprocess.Popen.__new__(subprocess.Popen)
    process.__dict__.update(
        pid=pid, args=command, returncode=None, stdin=None, stdout=None, stderr=stderr,
        _child_created=True, _waitpid_lock=threading.Lock(), _sigint_wait_secs=0.25,
    )  # fmt: skip
    return process


def _import_what_commands_import(others):
    for name in (
        "batchadvisor.cli.run",
        "batchadvisor.session.run",
        "batchadvisor.probes.worker.main",
        "torch",
        LAUNCHER,
        "torch.distributed.elastic.multiprocessing.subprocess_handler",
        "torch.utils.data",
        "sympy",
        "torch._dynamo",
    ):
        importlib.import_module(name)
    for name in others:
        with contextlib.suppress(ImportError):  # a script that needs it says so
            importlib.import_module(name)
    importlib.import_module("batchadvisor.probes.worker.main").import_ahead()
    # batchadvisor waits for the import of Keras: its first file is executed anew, the others stay.
    sys.modules.pop("keras", None)
    tasks = [(task / "comm").read_text().strip() for task in Path("/proc/self/task").iterdir()]
    own = [name for name in tasks if name not in FORK_SAFE]
    assert len(own) == 1, f"a fork has none of the threads {own} but one, and what they hold"


if __name__ == "__main__":
    sys.path.pop(0)  # the folder of this file
    _import_what_commands_import(sys.argv[2:])
    gc.collect()
    gc.freeze()  # looks through all live objects see those of the forks; these pages stay shared
    serve(socket.socket(fileno=int(sys.argv[1])))
