"""Forks that a worker has ready before its script begins: they become the ranks that it starts.

A script that starts its ranks itself starts Python, once for each rank of each worker, and torch is
imported there again. Tests that do not look at that start give their command spares: children of
the worker that have torch and nothing of the script. What `multiprocessing` and `subprocess` would
have executed is told to one of them, with the descriptors that it would have had:

    multiprocessing, spawned     the code after `-c`, as it stands
    a program of a steered rank  the start-up hook of batchadvisor, and what that executes in turn

Everything else, and what finds no spare any more, is started as ever. For preload_server.py, which
is a program of its own; so without the package.
"""

from __future__ import annotations

import fcntl
import inspect
import json
import os
import socket
import subprocess
import sys
from multiprocessing import util
from pathlib import Path

MOST_BYTES = 1 << 20
MOST_DESCRIPTORS = 16
HOOK = "sitecustomize.py"
CHILD = "--multiprocessing-fork"
"""Stands at the end of what multiprocessing executes."""


class Spares:
    """Those of this process, its children.

    Args:
        number: how many.
        life: what a spare needs of preload_server.py: `_close_but`, `_begin` and `_run`.
    """

    def __init__(self, number, life):
        self._waiting = []
        for _ in range(number):
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            pid = os.fork()
            if not pid:
                _wait(theirs, *life)
            theirs.close()
            self._waiting.append((ours, pid))
        self._pid = os.getpid()

    def take_over(self):
        """From now on they are what this process starts, where it would start Python."""
        spawn = util.spawnv_passfds
        execute = subprocess.Popen._execute_child
        parts = inspect.signature(execute)

        def spawnv_passfds(path, args, passfds):
            if not self._ready() or args[-1] != CHILD:
                return spawn(path, args, passfds)
            given = {0: 0, 1: 1, 2: 2, **{int(number): int(number) for number in passfds}}
            return self._start({"words": args, "env": {**os.environ}}, given)

        def execute_child(process, *how):
            part = parts.bind(process, *how).arguments
            args, env = part["args"], part["env"]
            special = part["shell"] or part["pass_fds"] or part["start_new_session"] or part["cwd"]
            if not self._ready() or special or not _is_rank(args, env):
                execute(process, *how)
                return
            ends = enumerate(part[name] for name in ("p2cread", "c2pwrite", "errwrite"))
            given = {number: number if end == -1 else end for number, end in ends}
            process.pid = self._start({"words": args, "env": env}, given)
            process._child_created = True
            pipes = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
            process._close_pipe_fds(*(part[name] for name in pipes))

        util.spawnv_passfds = spawnv_passfds
        subprocess.Popen._execute_child = execute_child

    def _ready(self):
        return self._waiting and os.getpid() == self._pid

    def _start(self, order, given):
        channel, pid = self._waiting.pop()
        order = {**order, "cwd": str(Path.cwd()), "numbers": list(given)}
        with channel:
            message = json.dumps(order, default=os.fsdecode)
            socket.send_fds(channel, [message.encode()], list(given.values()))
        return pid


def _is_rank(args, env):
    """Whether a command is Python's, and its environment has the start-up hook of a rank."""
    if isinstance(args, (str, bytes)) or len(args) < 2 or args[0] != sys.executable:
        return False
    return env is not None and _hook(env) is not None


def _hook(env):
    folder = Path(env.get("PYTHONPATH", "").split(os.pathsep)[0])
    return folder / HOOK if folder.name == "start_hook" else None


def _wait(channel, close_but, begin, run):
    """The life of a spare; it ends with whoever could have told it something."""
    close_but(channel.fileno())
    message, given, _, _ = socket.recv_fds(channel, MOST_BYTES, MOST_DESCRIPTORS)
    if not message:
        os._exit(0)
    order = json.loads(message)
    beyond = max(order["numbers"]) + 1
    held = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, beyond) for end in given]
    channel.close()
    for end in given:
        os.close(end)
    for end, number in zip(held, order["numbers"], strict=True):
        os.dup2(end, number, inheritable=False)
        os.close(end)
    os.chdir(order["cwd"])
    run(_become, order["words"], order["env"], begin)


def _become(words, environment, begin):
    begin((0, 1, 2), environment)
    entries = [entry for entry in environment.get("PYTHONPATH", "").split(os.pathsep) if entry]
    sys.path[:0] = ["", *entries]
    if words[-1] == CHILD:
        sys.argv = ["-c", CHILD]
        exec(words[-2], {"__name__": "__main__"})
        return
    sys.argv, sys.orig_argv = words[1:], words
    os.execv = _execute
    hook = _hook(environment)
    code = compile(hook.read_text(), str(hook), "exec")
    exec(code, {"__name__": hook.stem, "__file__": str(hook)})


def _execute(_, words):
    """What the hook does in place of the program: `python -c CODE ...`."""
    place = words.index("-c")
    sys.argv = ["-c", *words[place + 2 :]]
    exec(words[place + 1], {"__name__": "__main__"})
    sys.exit()
