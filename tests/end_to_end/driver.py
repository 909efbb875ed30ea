"""Runs the real command in a process of its own, and looks at what it says and what it leaves."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

import msgspec
from batchadvisor.errors import BatchAdvisorError
from batchadvisor.probes.nvml.gpus import devices
from batchadvisor.records import Advice, Discovery, RunRecord
from batchadvisor.session.recording.store import read_record

from .preloaded import TORCH, Forked

SCRIPTS = Path(__file__).parents[1] / "scripts"
EXAMPLES = Path(__file__).parents[2] / "examples"
LIMIT_S = 240
ON_CPU = ("--device", "cpu") if devices() else ()
"""These tests are about the CPU; where there is no GPU, the tool has to see that by itself."""
KEPT = ("too noisy", "worse", "no gain")
"""Standings under which a script keeps its own size: noise or a comparison speaks against others.

On a busy machine either may be the answer, to any script.
"""
TORCHRUN_LEAVES = "torchelastic_"
"""How a folder begins that torchrun, started by the user, makes for its logs and leaves."""
BUDGET, BUDGET_OF_SIZES = "25s", "14s"
"""Of a run that states none, and of one whose sizes are given.

Beside other tests every window is noisy, and a run would measure again until its own budget, of two
minutes, is used up: a test that needs that long says so.
"""
MARK = "BATCHADVISOR_TEST_MARK"
"""A variable that every process of one command inherits: by it they are found in /proc."""


@dataclass(repr=False)
class Result:
    """One finished command.

    Attributes:
        folder: the working folder.
        left: processes, shared memory and temporary files that outlived the command.
    """

    command: tuple[str, ...]
    folder: Path
    code: int
    stdout: str
    stderr: str
    left: list[str]

    def __repr__(self):
        words = " ".join(map(str, self.command))
        return f"<{words}: exit code {self.code}\n{self.stdout}\n{self.stderr}\nleft: {self.left}>"

    @functools.cached_property
    def answer(self):
        """The JSON on standard output."""
        return json.loads(self.stdout)

    @functools.cached_property
    def run_folder(self):
        """The folder of the run, wherever it is."""
        if "-o" in self.command:
            return self.folder / self.command[self.command.index("-o") + 1]
        (folder,) = (self.folder / "batchadvisor-runs").iterdir()
        return folder

    @functools.cached_property
    def record(self) -> RunRecord:
        """The record on disk; where JSON was printed as well, both must say the same."""
        record = read_record(self.run_folder)
        if "--json" in self.command and self.stdout:
            assert msgspec.convert(self.answer["record"], RunRecord, str_keys=True) == record
        return record

    @functools.cached_property
    def advice(self) -> Advice:
        return msgspec.convert(self.answer["advice"], Advice)

    @functools.cached_property
    def discovery(self) -> Discovery:
        """What `--dry-run --json` found."""
        return msgspec.convert(self.answer["discovery"], Discovery)

    @property
    def searched(self):
        """The trials of the search, in order."""
        return [trial for trial in self.record.trials if trial.purpose == "search"]

    @property
    def findings(self):
        """The findings of the advice by their rule."""
        return {finding.rule: finding for finding in self.advice.findings}

    def finding(self, rule):
        """The only finding of a rule."""
        (found,) = (finding for finding in self.advice.findings if finding.rule == rule)
        return found

    @property
    def log(self):
        return (self.run_folder / "script.log").read_text()

    @property
    def error(self):
        """The one error on standard error, its remedy included."""
        lines = [line for line in self.stderr.splitlines() if line.startswith("Error: ")]
        assert len(lines) == 1, self
        return lines[0].removeprefix("Error: ")

    def assert_refused(self):
        """Wrong use: exit code 2, what, why and what to do in one line, no traceback."""
        assert self.code == 2, self
        assert self.error, self
        assert "Traceback" not in self.stderr, self
        assert self.stdout == "", self
        assert self.left == [], self


class Started:
    """A command that runs.

    Attributes:
        temporary: its TMPDIR, of its own and empty at first.
    """

    def __init__(self, arguments, folder, launcher=(), variables=(), *, preloaded=None, spares=0):
        self._arguments = tuple(map(str, arguments))
        self._folder = folder
        self._mark = uuid.uuid4().hex
        # Not below pytest's own folder: names of sockets in it must stay short.
        self.temporary = Path(tempfile.mkdtemp(prefix="e2e-"))
        self._shared_memory = _shared_memory()
        verb, *others = self._arguments
        words = (verb, *_added(verb, others), *others)
        # One thread: several programs on few cores make steps of several threads very slow.
        variables = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "TMPDIR": str(self.temporary),
            MARK: self._mark,
            **dict(variables),
        }
        if preloaded is not None:
            assert not launcher
            where = {"cwd": folder, "env": variables}
            self.process = Forked(words, **where, preload=preloaded, spares=spares)
            return
        start = map(str, launcher or (sys.executable,))
        self.process = subprocess.Popen(
            [*start, "-m", "batchadvisor", *words], cwd=folder, env=variables,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, start_new_session=True,
        )  # fmt: skip

    def wait_for(self, condition, what):
        """Polls until `condition()` is true; its errors count as not yet."""
        deadline = time.monotonic() + LIMIT_S
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError, BatchAdvisorError):
                if condition():
                    return
            if self.process.poll() is not None:
                raise AssertionError(f"ended before {what}: {self.finish()}")
            time.sleep(0.02)
        self.process.kill()
        raise AssertionError(f"never happened: {what}: {self.finish()}")

    def press_ctrl_c(self):
        """SIGINT for the whole foreground group, as a terminal sends it."""
        os.killpg(self.process.pid, signal.SIGINT)

    def processes(self):
        """Living processes of this command, by their mark."""
        return _marked(self._mark, getattr(self.process, "sessions", set()))

    def finish(self, *, killed=False, limit_s=LIMIT_S):
        """Waits for the end.

        Args:
            killed: it had no chance to remove its temporary folder.
        """
        try:
            stdout, stderr = self.process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            raise
        left = self._left(temporary=not killed)
        shutil.rmtree(self.temporary)
        code = self.process.returncode
        return Result(self._arguments, self._folder, code, stdout, stderr, left)

    def _left(self, *, temporary):
        deadline = time.monotonic() + 30
        lasting = None
        while True:
            leftovers = [f"process {process}" for process in self.processes()]
            # What nobody has open any more, from the end of the processes on: other programs, and
            # tests that run at the same time, may make segments at any time and take them away.
            new = _shared_memory() - self._shared_memory
            new = new - _held() if new else new
            if not leftovers:
                lasting = new if lasting is None else lasting & new
            leftovers += [
                f"shared memory {name}" for name in sorted(new if lasting is None else lasting)
            ]
            if temporary:
                names = [path.name for path in self.temporary.iterdir()]
                leftovers += [
                    f"temporary {name}" for name in names if not name.startswith(TORCHRUN_LEAVES)
                ]
            if not leftovers or time.monotonic() > deadline:
                return leftovers
            time.sleep(0.05)


def _added(verb, others):
    """Options that a test leaves to the driver."""
    if verb != "run":
        return ()
    device = () if "--device" in others else ON_CPU
    if "--budget" in others or "--resume" in others:
        return device
    return (*device, "--budget", BUDGET_OF_SIZES if "--sizes" in others else BUDGET)


def start(*arguments, folder, launcher=(), variables=(), preloaded=False, preload=TORCH, spares=0):
    """Starts `batchadvisor ARGUMENTS` in `folder`.

    Args:
        launcher: what starts it, up to before `-m batchadvisor`; plain Python if not given.
        variables: beside the usual ones.
        preloaded: its processes are forks of one that has torch, for tests that do not look at how
            processes start; see preload_server.py.
        preload: what that one has (`preloaded.Preload`).
        spares: how many ranks of those that the script starts are forks too; see spares.py.
    """
    given = preload if preloaded else None
    return Started(arguments, folder, launcher, variables, preloaded=given, spares=spares)


def run(*arguments, folder, **given):
    """Runs `batchadvisor ARGUMENTS` in `folder` to its end; see `start`."""
    return start(*arguments, folder=folder, **given).finish()


run_preloaded = functools.partial(run, preloaded=True)
"""Runs a command whose start is not what a test looks at: torch was imported before."""


def run_well(*arguments, folder, **given):
    """As `run_preloaded`, of a command that ends well and leaves nothing."""
    done = run_preloaded(*arguments, folder=folder, **given)
    assert done.code == 0, done
    assert done.left == [], done
    return done


def listing(folder):
    """Every file and folder below `folder` with its content."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
    }


def line_of(script, text):
    """Number of the one line of a script that holds `text`."""
    lines = Path(script).read_text().splitlines()
    (number,) = (number for number, line in enumerate(lines, 1) if text in line)
    return number


_CHANGE = r"(?P<file>\S.*?):(?P<line>\d+)  (?P<before>.+?) → (?P<after>.+?)(   |; |$)"


def changed_line(change):
    """File, line, text before and text after of an advice's change."""
    match = re.match(_CHANGE, change)
    assert match is not None, change
    return Path(match["file"]), int(match["line"]), match["before"], match["after"]


def _marked(mark, sessions):
    """Living processes that were started with the mark, or belong to one of the sessions."""
    processes = []
    wanted = f"{MARK}={mark}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            state, _, _, session = (
                (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()[:4]
            )
            if state == "Z":  # it is over, and nobody has asked for its exit code yet
                continue
            marked = wanted in (folder / "environ").read_bytes().split(b"\0")
            if int(session) in sessions or marked:
                words = (folder / "cmdline").read_bytes().split(b"\0")
                processes.append(f"{folder.name} {b' '.join(words)[:200]!r}")
    return processes


def _shared_memory():
    try:
        return {path.name for path in Path("/dev/shm").iterdir()}
    except OSError:
        return set()


def _held():
    """Names in /dev/shm that a living process has mapped or open."""
    names = set()
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            for line in (folder / "maps").read_text(errors="surrogateescape").splitlines():
                _, there, name = line.partition("/dev/shm/")
                if there:
                    names.add(name)
        with contextlib.suppress(OSError):
            for link in (folder / "fd").iterdir():
                with contextlib.suppress(OSError):
                    _, there, name = str(link.readlink()).partition("/dev/shm/")
                    if there:
                        names.add(name)
    return names
