"""Slurm: a job for each GPU type, or inside an allocation a step. The folder must be shared.

A job is submitted with `sbatch --wait`, so that it is known when it ends even if nobody answers
`squeue`. A step is an `srun`: the allocation has its GPUs already.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from ....errors import RunError, UsageError
from ....probes.process.interrupts import held_back
from ....session.devices.engine import Probe, Standing
from ....session.setup.options_handed_over import hand_over
from .gpu_types import GpuType
from .names import slugs

JOB_ID = "SLURM_JOB_ID"
"""Variable of the environment inside an allocation."""
COMMAND_S = 60.0
"""Slurm's own commands get so long to answer."""
FIRST_LOOK_S, LAST_LOOK_S = 0.5, 10.0
"""`squeue` is asked rarely, and more rarely the longer it takes: it loads the controller."""
_GRES = re.compile(r"gpu(:[\w.+-]+?)?(:[1-9]\d*)?")
_LISTED = re.compile(r"\bgpu(?::([\w.+-]*[A-Za-z_][\w.+-]*))?:(\d+)")
_WAITS = ("PENDING", "CONFIGURING", "REQUEUED", "SUSPENDED")
_RUNS = ("RUNNING", "COMPLETING", "STAGE_OUT", "SIGNALING")


class SlurmEngine:
    """Slurm's own commands.

    Args:
        gres: the types as `--gres` names them; empty for all that the cluster has.
        options: further options of `sbatch` and `srun`.
    """

    def __init__(self, gres: Sequence[str] = (), options: str = "") -> None:
        try:
            self._options = shlex.split(options)
        except ValueError as error:
            raise UsageError(f"--slurm-options: {error}.", "Quote it as a shell does.") from None
        wrong = next((text for text in gres if not _GRES.fullmatch(text)), None)
        if wrong is not None:
            msg = f"--gres {wrong!r} is no GPU of Slurm's."
            raise UsageError(msg, "Write gpu:TYPE:1; sinfo -o %G lists the types.")
        kinds: dict[str, str] = {}
        for text in gres:
            kind = text.removesuffix(":1")  # Slurm takes one where no number is given
            if kind in kinds:
                both = "twice" if text == kinds[kind] else f"twice, as {kinds[kind]} and as {text}"
                raise UsageError(f"--gres {kind} is given {both}.", "Give each type once.")
            kinds[kind] = text
        self._gres = tuple(gres)
        self._job = os.environ.get(JOB_ID)
        self._started: dict[str, _Started] = {}
        self._told: dict[str, Standing] = {}
        self._asked_s, self._period_s = -math.inf, FIRST_LOOK_S

    def types(self) -> tuple[GpuType, ...]:
        """Those asked for; without any, those of the allocation, or of the cluster."""
        missing = [name for name in ("sbatch", "srun", "squeue") if shutil.which(name) is None]
        if missing:
            msg = f"--engine slurm: there is no {missing[0]} on this machine."
            raise UsageError(msg, "Start it on a login node of the cluster, or inside a job.")
        requests = self._gres or self._listed()
        if not requests:
            if self._job is not None:
                msg = f"the allocation {self._job} has no GPU."
                raise UsageError(msg, "Ask salloc or sbatch for some with --gres.")
            msg = "this cluster has no GPUs: sinfo names none."
            raise UsageError(msg, "Name them with --gres gpu:TYPE:1, or run without --engine.")
        names = [request.removesuffix(":1").removeprefix("gpu:") for request in requests]
        return tuple(
            GpuType(name=name, request=request)
            for name, request in zip(slugs(names), requests, strict=True)
        )

    def start(self, probe: Probe) -> None:
        """Submits a job, or starts a step of the allocation.

        Raises:
            RunError: Slurm refuses it.
        """
        handed = probe.log.with_name(f".{probe.name}.options.json")
        variable = hand_over(probe.options, handed)
        words = [sys.executable, "-m", "batchadvisor", "run", "--", *probe.options.script_words]
        limit_s = math.ceil(probe.time_limit_s)
        folder = probe.log.parent.resolve()
        common = [
            *self._options,
            *("--nodes", "1", "--ntasks", "1", "--gres", probe.request),
            *("--job-name", self._name(probe.name), "--time", f"{limit_s // 60}:{limit_s % 60:02}"),
            *("--output", "/dev/null", "--error", _escaped(folder / probe.log.name)),
        ]
        if self._job is not None:
            environment = {**os.environ, **variable}
            command = ["srun", "--exact", *common, *words]
            started = _Started(_popen(command, environment, ""), handed, self._job)
        else:
            lines = [f"export {name}={shlex.quote(text)}" for name, text in variable.items()]
            script = "\n".join(["#!/bin/sh", *lines, f"exec {shlex.join(words)}", ""])
            command = ["sbatch", "--wait", "--parsable", "--no-requeue", *common]
            started = _Started(_popen(command, dict(os.environ), script), handed)
        self._started[probe.name] = started
        if self._job is None:
            assert started.process.stdout is not None
            with held_back():  # or there would be a job that nobody knows
                line = started.process.stdout.readline()
            started.job = line.strip().partition(";")[0]
            if not started.job:
                del self._started[probe.name]
                handed.unlink(missing_ok=True)
                raise RunError(f"sbatch refused {probe.request}: {started.last_words()}.")

    def look(self) -> Mapping[str, Standing]:
        """A process that has ended says most; `squeue` says the rest."""
        self._ask()
        return {name: self._standing(name, started) for name, started in self._started.items()}

    def cancel(self, names: Sequence[str]) -> None:
        """A job gets SIGTERM from `scancel`; so does a step, if there is one already."""
        steps = self._steps() if self._job is not None else {}
        for name in names:
            started = self._started.get(name)
            if started is None or started.process.poll() is not None:
                continue
            if self._job is None:
                _output(["scancel", started.job])
            elif name in steps:
                _output(["scancel", "--signal=TERM", steps[name]])
            else:
                started.process.terminate()

    def close(self) -> None:
        """Ends probes that still live: cancelled ones, or ones that nobody waits for."""
        for started in self._started.values():
            if started.process.poll() is None:
                if self._job is None:
                    _output(["scancel", started.job])
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(started.process.pid, signal.SIGKILL)
            started.process.wait()
            started.last_words()
            started.handed.unlink(missing_ok=True)

    # inside ----------------------------------------------------------------------------------

    def _name(self, name: str) -> str:
        return f"batchadvisor-{name}"

    def _listed(self) -> tuple[str, ...]:
        if self._job is not None:
            text = _output(["scontrol", "--details", "--oneliner", "show", "job", self._job])
            text = " ".join(re.findall(r"GRES=(\S+)", text))
        else:
            done = _run(["sinfo", "--noheader", "-o", "%G"])
            if done.returncode:
                msg = f"Slurm does not answer: {_said(done.stderr)}."
                raise UsageError(msg, "Ask it yourself: sinfo.")
            text = done.stdout
        return tuple(dict.fromkeys(requests_in(text)))

    def _standing(self, name: str, started: _Started) -> Standing:
        told = self._told.get(name, Standing(state="waiting"))
        code = started.process.poll()
        if told.state == "ended" or code is None:
            return told
        words = started.last_words()
        never_ran = self._job is not None and "Unable to create step" in words
        error = words if code and (never_ran or not started.ran) else ""
        return Standing(state="ended", exit_code=code, error=error or told.error)

    def _ask(self) -> None:
        now_s = time.monotonic()
        if now_s < self._asked_s + self._period_s:
            return
        self._asked_s, self._period_s = now_s, min(1.5 * self._period_s, LAST_LOOK_S)
        if self._job is not None:
            steps = self._steps()
            for name, step in steps.items():
                if name in self._started:
                    self._started[name].ran = True
                    self._told[name] = Standing(state="running", detail=f"as step {step}")
            return
        jobs = {started.job: name for name, started in self._started.items()}
        form = "JobID:|,State:|,Reason:|,NodeList:|,exit_code:"
        for line in _output(
            ["squeue", "--noheader", "--states", "all", "--jobs", ",".join(jobs), "-O", form]
        ).splitlines():
            job, state, reason, node, status = (*(part.strip() for part in line.split("|")), "")[:5]
            if job in jobs:
                name = jobs[job]
                self._told[name] = standing_of(job, state, reason, node, status)
                self._started[name].ran |= bool(node)

    def _steps(self) -> dict[str, str]:
        """The steps of the allocation that are ours, by the names of their probes."""
        assert self._job is not None
        text = _output(["squeue", "--steps", "--noheader", "--jobs", self._job, "-o", "%i %j"])
        pairs = (line.split(maxsplit=1) for line in text.splitlines())
        ids = {pair[1].strip(): pair[0] for pair in pairs if len(pair) == 2}
        return {name: ids[self._name(name)] for name in self._started if self._name(name) in ids}


class _Started:
    """A command of Slurm's that waits for a probe."""

    def __init__(self, process: subprocess.Popen[str], handed: Path, job: str = "") -> None:
        self.process = process
        self.handed = handed
        self.job = job
        self.ran = False
        self._words: str | None = None

    def last_words(self) -> str:
        """Why Slurm refused, in its own words; waits for the end of the process."""
        if self._words is None:
            self.process.wait()
            assert self.process.stderr is not None
            with self.process.stderr as stream:
                self._words = _said(stream.read())
            if self.process.stdout is not None:
                self.process.stdout.close()
        return self._words


def requests_in(text: str) -> list[str]:
    """A request for one GPU of each type in what `sinfo` or `scontrol` lists.

    >>> requests_in("gpu:a100:4(S:0-1),gpu:1g.20gb:7")
    ['gpu:a100:1', 'gpu:1g.20gb:1']
    >>> requests_in("gpu:2(IDX:0-1)"), requests_in("(null)")
    (['gpu:1'], [])
    """
    return [f"gpu:{kind}:1" if kind else "gpu:1" for kind, _ in _LISTED.findall(text)]


def standing_of(job: str, state: str, reason: str, node: str, status: str) -> Standing:
    """How a job stands by what `squeue` says of it.

    Args:
        status: as `wait` gives it: the exit code is in the high byte.

    >>> standing_of("7", "PENDING", "Resources", "", "0").detail
    'job 7, Resources'
    >>> standing_of("7", "NODE_FAIL", "NodeDown", "n1", "0").error
    'job 7 ended: NODE_FAIL (NodeDown)'
    >>> standing_of("7", "FAILED", "NonZeroExitCode", "n1", "256").exit_code
    1
    """
    if state in _WAITS:
        return Standing(state="waiting", detail=f"job {job}" + _reason(", ", reason))
    if state in _RUNS:
        return Standing(state="running", detail=f"job {job} on {node}")
    code = os.waitstatus_to_exitcode(int(status)) if status.isdecimal() else None
    error = ""
    if state not in ("COMPLETED", "FAILED") or (reason and reason != "NonZeroExitCode"):
        more = _reason(" (", reason)
        error = f"job {job} ended: {state}{more}{')' if more else ''}"
    return Standing(state="ended", exit_code=code, error="" if state == "COMPLETED" else error)


def _reason(before: str, reason: str) -> str:
    return f"{before}{reason}" if reason and reason != "None" else ""


def _escaped(path: Path) -> str:
    """Slurm puts values in the place of `%j` and its like."""
    return str(path).replace("%", "%%")


def _popen(
    command: Sequence[str], environment: dict[str, str], script: str
) -> subprocess.Popen[str]:
    with held_back():
        process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.PIPE if script else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,  # Ctrl-C is ours to pass on
        )
        if process.stdin is not None:
            with contextlib.suppress(BrokenPipeError), process.stdin as stream:
                stream.write(script)
    return process


def _run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=COMMAND_S,
            start_new_session=True,
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 1, "", f"no answer within {COMMAND_S:.0f} s")
    except OSError as error:
        return subprocess.CompletedProcess(command, 1, "", str(error))


def _output(command: Sequence[str]) -> str:
    """Output of a command; empty if it fails, for then nothing is known."""
    done = _run(command)
    return done.stdout if done.returncode == 0 else ""


def _said(text: str) -> str:
    """The last line of what a command of Slurm's complains of."""
    lines = [line for line in text.splitlines() if line.strip()]
    return re.sub(r"^(\w+: )(error: )?", "", lines[-1]).rstrip(".") if lines else "it said nothing"
