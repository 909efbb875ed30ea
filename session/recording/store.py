"""A run's folder: `record.json`, `samples.jsonl`, `script.log`, `traces/`."""

from __future__ import annotations

import contextlib
import fcntl
import os
import weakref
from collections.abc import Sequence
from math import inf
from pathlib import Path
from typing import Any

import msgspec

from ...errors import RunError, UsageError
from ...records import SCHEMA_VERSION, RunRecord, Spread, Trial
from ...records.plausible import implausible

RECORD = "record.json"
SAMPLES = "samples.jsonl"
LOG = "script.log"
LOGS_OF_RANKS = "script-rank*.log"
"""Files beside it of what further ranks print."""
MEMORY_PAGE = "memory.html"
DEVICES = "devices.json"
"""File in the folder of a run on several devices, each of which has a run's folder below."""
TRACE_SUFFIXES = (".json", ".json.gz")
"""Endings of files that may be traces of torch.profiler."""
SET_ASIDE = ".before"
"""Ends the names of files that another part of the run may do without."""
TRACES = "traces"
"""Folder below a run's: a log directory for TensorBoard, one run per size."""


class RunStore:
    """Writes one run's folder.

    Args:
        folder: is made if it is missing.

    Raises:
        UsageError: the folder cannot be written.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._made: list[Path] = []
        self._new: list[Path] = []
        self._aside: list[Path] = []
        missing = folder
        try:
            while not missing.exists():
                self._made.append(missing)
                missing = missing.parent
            folder.mkdir(parents=True, exist_ok=True)
            probe = folder / f".writable-{os.getpid()}"
            probe.touch()
            probe.unlink()
        except OSError as error:
            self.discard()
            msg = f"cannot write into {folder}: {error.strerror or error}."
            remedy = "Choose another folder with --output."
            if os.path.isfile(self.record_path):  # noqa: PTH113  false where it cannot be asked
                remedy = "Make it writable: a run continues in its own folder."
            raise UsageError(msg, remedy) from error
        self._close = weakref.finalize(self, _unlock, self._alone(), os.getpid())
        paths = [folder / name for name in (RECORD, SAMPLES, LOG, MEMORY_PAGE)]
        self._new = [path for path in paths if not path.exists()]  # the folder may be the user's

    @property
    def record_path(self) -> Path:
        """Where the record is."""
        return self.folder / RECORD

    @property
    def log_path(self) -> Path:
        """Where everything that the script prints goes."""
        return self.folder / LOG

    def _alone(self) -> int | None:
        """Locks the folder itself, so that no file of a lock is left behind.

        Raises:
            UsageError: another run writes into it.
        """
        try:
            lock = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        except OSError:
            return None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(lock)
            self._made.clear()  # it belongs to the other
            msg = f"another run is writing into {self.folder}."
            raise UsageError(msg, "Wait for it, or choose another folder with --output.") from error
        except OSError:  # a file system without locks
            os.close(lock)
            return None
        return lock

    def close(self) -> None:
        """Lets others write into the folder."""
        self._close()

    def save(self, record: RunRecord) -> None:
        """Writes the record whole or not at all.

        Raises:
            RunError: it cannot be written; the one before stays.
        """
        data = msgspec.json.format(msgspec.json.encode(record), indent=1)
        try:
            write_whole(self.record_path, data + b"\n")
        except OSError as error:
            raise self._cannot_write(error) from error

    def append(self, rows: Sequence[Any]) -> None:
        """Adds lines to `samples.jsonl`; a cut last line of an earlier run does no harm.

        Raises:
            RunError: they cannot be written.
        """
        if not rows:
            return
        path = self.folder / SAMPLES
        lines = b"".join(msgspec.json.encode(row) + b"\n" for row in rows)
        try:
            with path.open("ab+") as file:
                if file.tell():
                    file.seek(-1, os.SEEK_END)
                    if file.read(1) != b"\n":
                        lines = b"\n" + lines
                file.write(lines)
        except OSError as error:
            raise self._cannot_write(error) from error

    def set_aside(self, trials: Sequence[Trial]) -> None:
        """Renames what all trials so far wrote besides the record: others begin anew."""
        for path in self._written_by(trials):
            with contextlib.suppress(OSError):
                self._aside.append(path.rename(path.with_name(path.name + SET_ASIDE)))

    def put_back(self, trials: Sequence[Trial]) -> None:
        """Takes what was set aside for what these trials wrote."""
        for path in self._written_by(trials):
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
        for path in self._aside:
            with contextlib.suppress(OSError):
                path.rename(path.with_name(path.name.removesuffix(SET_ASIDE)))
        self._aside.clear()

    def forget_aside(self) -> None:
        """Removes what was set aside."""
        for path in self._aside:
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
        self._aside.clear()

    def _written_by(self, trials: Sequence[Trial]) -> list[Path]:
        traces = [trial.profile.trace for trial in trials if trial.profile is not None]
        return [self.folder / name for name in (SAMPLES, *filter(None, traces))]

    def _cannot_write(self, error: OSError) -> RunError:
        what = f"cannot write into {self.folder}: {error.strerror or error}"
        if not self.record_path.exists():
            return RunError(f"{what}.", "Free some space, or choose another folder with --output.")
        return RunError(
            f"{what}; what was measured before is in its record.",
            f"Free some space, then continue with --resume {self.folder}.",
        )

    def discard(self) -> None:
        """Removes what this object made, when nothing was measured."""
        ranks = self.folder.glob(LOGS_OF_RANKS) if self.folder in self._made else ()
        for path in (*self._new, *ranks):
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
        for folder in self._made:
            try:
                folder.rmdir()
            except OSError:
                return


def write_whole(path: Path, data: bytes) -> None:
    """Writes a file whole or not at all; a link stays one, and what it leads to is written.

    Raises:
        OSError: it cannot be written; what was there before stays.
    """
    path = Path(os.path.realpath(path))
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with draft.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)
        raise


def write_output(path: Path, text: str) -> None:
    """Writes what a command was asked to write with `-o`, whole or not at all.

    Raises:
        RunError: it cannot be written; what was there before stays.
    """
    try:
        write_whole(path, text.encode())
    except OSError as error:
        msg = f"cannot write {path}: {error.strerror or error}."
        raise RunError(msg, "Name another file with -o.") from error


def _unlock(lock: int | None, pid: int) -> None:
    if lock is None:
        return
    if os.getpid() == pid:
        # Processes that were forked meanwhile, a loader's workers, hold the folder open too.
        with contextlib.suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_UN)
    os.close(lock)


def read_record(path: Path) -> RunRecord:
    """A record from its file or its folder.

    Raises:
        UsageError: there is none, or it is not one that this version reads.
    """
    try:
        file = path / RECORD if path.is_dir() else path
        data = file.read_bytes()
    except OSError as error:
        if os.path.isfile(path / DEVICES):  # noqa: PTH113  false where it cannot be asked
            msg = f"{path} is a run on several devices; this needs the record of one."
            raise UsageError(msg, "Name the folder of a device in it.") from error
        msg = f"cannot read a record from {path}: {error.strerror or error}."
        raise UsageError(msg, "Give a run's folder or its record.json.") from error
    try:
        version = msgspec.json.decode(data, type=_Version).schema_version
        if version.split(".")[0] != SCHEMA_VERSION.split(".", maxsplit=1)[0]:
            msg = f"{file} has schema {version}, this version reads {SCHEMA_VERSION}."
            raise UsageError(msg, "Use the version of batchadvisor that wrote it.")
        record = msgspec.json.decode(data, type=RunRecord)
        _check_times(record)
        wrong = implausible(record)
        if wrong is not None:
            raise msgspec.ValidationError(f"{wrong}, and nothing can have measured that")
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        msg = f"{file} is not a record: {error}."
        raise UsageError(msg, "Give a run's folder or its record.json.") from error
    return record


def _check_times(record: RunRecord) -> None:
    """Times that nothing takes, and rates without end, are no measurements.

    Raises:
        ValidationError: there is one.
    """
    for trial in record.trials:
        for name in ("step_s", "samples_per_s"):
            spread: Spread | None = getattr(trial, name)
            if spread is not None and not 0 < spread.low <= spread.median <= spread.high < inf:
                msg = f"trial {trial.ordinal}: `{name}` is no interval above 0 with a median in it"
                raise msgspec.ValidationError(msg)


def read_samples(folder: Path) -> list[dict[str, Any]]:
    """All whole lines of `samples.jsonl`; a cut one is left out."""
    try:
        lines = (folder / SAMPLES).read_bytes().splitlines()
    except OSError:
        return []
    rows: list[dict[str, Any]] = []
    for line in lines:
        try:
            rows.append(msgspec.json.decode(line, type=dict[str, Any]))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            continue
    return rows


class _Version(msgspec.Struct):
    schema_version: str
