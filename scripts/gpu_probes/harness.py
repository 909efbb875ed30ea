"""What the probes of `scripts/gpu-check` share: a finding that survives whatever happens.

A probe asks one question, prints one JSON object and exits with 0, also where the machine refuses:

    probe, question     which one, in a sentence
    answer              the measured answer in a sentence, or `unavailable: ` and the reason
    contradicts         whether it speaks against one of `assumptions`; null where none was judged
    assumptions         constants of the product, with what was measured of each
    numbers             raw numbers, units in their names
    unavailable, errors what could not be measured, texts as they were raised
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
FINDING = "finding.json"
NO_CUDA = "unavailable: no CUDA device"
LIMIT_S = 120.0
"""Of a probe that was given no limit."""
JUDGE_S = 7.0
"""Kept back to end a child that hangs, and to judge what was measured."""
TEXT_CHARACTERS = 1500
"""Of an error text, so many are kept."""


class TimeIsUpError(BaseException):
    """The probe's time is over, or somebody ended it; what was measured stays."""


class Finding:
    """What a probe found so far; every change goes to disk.

    Args:
        probe: its name.
        question: that it answers.
        device: `cuda` or `cpu`.
        folder: for the finding and what belongs to it; `None` writes nothing.
    """

    def __init__(self, probe: str, question: str, device: str, folder: Path | None = None) -> None:
        self.probe, self.question, self.device, self.folder = probe, question, device, folder
        self.answer = ""
        self.assumptions: list[dict[str, Any]] = []
        self.numbers: dict[str, Any] = {}
        self.unavailable: dict[str, str] = {}
        self.errors: list[dict[str, str]] = []
        self._began_s = time.monotonic()
        self._writing = threading.Lock()

    def keep(self, **numbers: Any) -> None:
        """Raw numbers, by names that hold their units."""
        self.numbers |= numbers
        self.save()

    def assume(self, constant: str, value: Any, holds: bool | None, measured: str) -> None:
        """Sets what was measured beside a constant of the product.

        Args:
            constant: where it stands: `file.py: NAME`.
            value: of it.
            holds: `None` where the measurement does not decide it.
            measured: in words.
        """
        self.assumptions.append(
            {"constant": constant, "value": value, "holds": holds, "measured": measured}
        )
        self.save()

    @contextlib.contextmanager
    def attempt(self, where: str) -> Iterator[None]:
        """A failure inside becomes an error text; the probe goes on after it."""
        try:
            yield
        except Exception as error:  # noqa: BLE001  whatever the machine refuses is an answer
            self.fail(where, error)

    def fail(self, where: str, error: BaseException) -> None:
        """Keeps an error's own words."""
        self.errors.append({"where": where, **raised(error)})
        self.save()

    def lack(self, where: str, reason: str) -> None:
        """Something that could not be measured, and why."""
        self.unavailable[where] = reason
        self.save()

    def data(self) -> dict[str, Any]:
        """As it is printed."""
        judged = [entry["holds"] for entry in self.assumptions if entry["holds"] is not None]
        return {
            "probe": self.probe,
            "question": self.question,
            "device": self.device,
            "answer": self.answer or self._no_answer(),
            "contradicts": not all(judged) if judged else None,
            "assumptions": self.assumptions,
            "numbers": self.numbers,
            "unavailable": self.unavailable,
            "errors": self.errors,
            "took_s": round(time.monotonic() - self._began_s, 2),
        }

    def save(self) -> dict[str, Any]:
        """The finding on disk, whole or not at all; returns what was written."""
        data = self.data()
        if self.folder is None:
            return data
        self.folder.mkdir(parents=True, exist_ok=True)
        draft = self.folder / f".{FINDING}.{os.getpid()}"
        with self._writing:
            draft.write_text(json.dumps(data, indent=1) + "\n")
            draft.replace(self.folder / FINDING)
        return data

    def _no_answer(self) -> str:
        reasons = [*self.unavailable.values(), *(entry["text"] for entry in self.errors)]
        first = next((line for text in reasons for line in text.splitlines() if line), "")
        return f"unavailable: {first or 'the probe did not get that far'}"


def raised(error: BaseException) -> dict[str, str]:
    """Type, module and words of an exception."""
    kind = type(error)
    return {"type": kind.__name__, "module": kind.__module__, "text": str(error)[:TEXT_CHARACTERS]}


Probe = Callable[[Finding, argparse.Namespace], None]


def main(
    probe: Probe,
    question: str,
    *,
    needs_cuda: bool = False,
    options: Callable[[argparse.ArgumentParser], None] | None = None,
    arguments: Sequence[str] | None = None,
) -> int:
    """The command line of a probe.

    Args:
        probe: measures, and fills the finding; gets the options, and with them `ends_s` on the
            monotonic clock and `folder` for files.
        question: that it answers.
        needs_cuda: without a CUDA device it is not called.
        options: adds the probe's own.
        arguments: of the command line; those of the process by default.
    """
    name = Path(sys.modules[probe.__module__].__file__ or probe.__module__).stem
    parser = argparse.ArgumentParser(description=question)
    parser.add_argument("--device", choices=("auto", "cuda", "cpu"), default="auto")
    parser.add_argument("--limit", type=float, default=LIMIT_S, help="seconds for the probe")
    parser.add_argument("--out", type=Path, help="folder for finding.json and recordings")
    if options is not None:
        options(parser)
    given = parser.parse_args(arguments)
    given.ends_s = time.monotonic() + given.limit
    finding = Finding(name, question, given.device, given.out)
    scratch = tempfile.TemporaryDirectory(prefix="gpu-probe-", ignore_cleanup_errors=True)
    given.folder = given.out or Path(scratch.name)
    try:
        _arm(given.limit)
        finding.device = given.device = chosen_device(given.device)
        if needs_cuda and given.device != "cuda":
            finding.answer = NO_CUDA
        else:
            probe(finding, given)
    except TimeIsUpError as error:
        finding.fail("the whole probe", error)
    except Exception as error:  # noqa: BLE001  a probe never fails its part
        finding.fail("the whole probe", error)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        scratch.cleanup()
    print(json.dumps(finding.save()), flush=True)
    return 0


def _arm(limit_s: float) -> None:
    def over(number: int, _: Any) -> None:
        why = f"the time of {limit_s:g} s was over" if number == signal.SIGALRM else "it was ended"
        raise TimeIsUpError(why)

    signal.signal(signal.SIGALRM, over)
    signal.signal(signal.SIGTERM, over)
    signal.setitimer(signal.ITIMER_REAL, limit_s)


def chosen_device(wanted: str) -> str:
    """`cuda` where torch sees a device and nobody asked for the CPU.

    Raises:
        RuntimeError: CUDA was asked for and is not there.
    """
    if wanted != "cpu":
        import torch

        if torch.cuda.is_available():
            return "cuda"
        if wanted == "cuda":
            raise RuntimeError("no CUDA device")
    # Threads that wait for each other are slow beside other work; children inherit this.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    return "cpu"


def synchronize(device: str) -> None:
    """Waits for the device."""
    if device == "cuda":
        import torch

        torch.cuda.synchronize()


def left_s(given: argparse.Namespace) -> float:
    """Seconds that the probe still has, less what it needs to judge what it found."""
    return float(given.ends_s - time.monotonic()) - JUDGE_S


def child(
    words: Sequence[str],
    limit_s: float,
    *,
    environment: dict[str, str] | None = None,
    log: Path | None = None,
) -> dict[str, Any]:
    """Runs Python with these words and reads the JSON object that it prints, last or all alone.

    Returns:
        The object; where there is none `error`, with the exit code and the end of its stderr.
    """
    if limit_s <= 0:
        return {"error": "not started: the probe's time is over"}
    process = subprocess.Popen(
        [sys.executable, *words],
        cwd=ROOT,
        env={**os.environ, **(environment or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        out, err = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        out, err = _end(process)
        return {"error": f"ended after {limit_s:.0f} s", "stderr": err[-TEXT_CHARACTERS:]}
    except BaseException:  # our own time is over: the child must not outlive us
        _end(process)
        raise
    if log is not None:
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text(out[-20_000:] + err[-20_000:])
    for text in (out, (out.strip().splitlines() or [""])[-1]):
        with contextlib.suppress(json.JSONDecodeError):
            answer = json.loads(text)
            if isinstance(answer, dict):
                return answer
    code = process.returncode
    return {"error": f"exit code {code}", "exit_code": code, "stderr": err[-TEXT_CHARACTERS:]}


def product_run(words: Sequence[str], folder: Path, limit_s: float) -> dict[str, Any]:
    """What `batchadvisor run --json` prints: record, advice.

    Args:
        words: options, the script and its arguments.
        folder: of the run.
        limit_s: it is ended then, with all its workers.

    Raises:
        RuntimeError: it gave no record.
    """
    command = ["-m", "batchadvisor", "run", "-q", "--json", "-o", str(folder), *words]
    said = child(command, limit_s)
    if "record" not in said:
        raise RuntimeError(f"run gave no record: {json.dumps(said)[:800]}")
    return said


def _end(process: subprocess.Popen[str]) -> tuple[str, str]:
    """Ends a child and all that it started in its session."""
    for number, patience_s in ((signal.SIGTERM, 3.0), (signal.SIGKILL, 2.0)):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.communicate(timeout=patience_s)
    return "", ""


def percent(value: float, digits: int = 1) -> str:
    """A share as signed percent: `+1.2 %`."""
    return f"{100 * value:+.{digits}f} %"
