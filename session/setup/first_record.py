"""The folder of a run and the record that it begins with."""

from __future__ import annotations

import os
import tempfile
import time
from datetime import datetime, timezone
from pathlib import Path

import msgspec

from ...errors import UsageError
from ...probes.devices.host import machine
from ...records import RunRecord, ScriptInfo
from ..recording.event_files import EventStore
from ..recording.store import DEVICES, RECORD
from .options import RunOptions, check_same_script, digest_of, run_folder

AGAIN = ("interrupted", "wrong_size")
"""Outcomes of trials that a resumed run makes again."""


def first_record(options: RunOptions, resumed: RunRecord | None) -> RunRecord:
    """The record before anything is measured, with what a resumed run measured so far."""
    if resumed is not None:
        # A trial that was cut short is run again, and one whose size did not arrive shows again
        # where the run has to go on; the rest stands.
        kept = tuple(trial for trial in resumed.trials if trial.outcome not in AGAIN)
        return msgspec.structs.replace(
            resumed, state="running", goal=options.goal, trials=kept, stop_reason=""
        )
    return RunRecord(
        state="running",
        started_at=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        command=options.command,
        script=ScriptInfo(
            path=options.script, arguments=options.typed_words[1:], digest=digest_of(options)
        ),
        goal=options.goal,
        machine=machine(),
    )


def store_of(options: RunOptions, resumed: RunRecord | None, *, keep: bool) -> EventStore:
    """The run's folder; one that is not kept needs no working folder that can be written."""
    folder = folder_of(options, resumed)
    try:
        return EventStore(folder)
    except UsageError:
        if keep or options.output is not None:
            raise
        return EventStore(Path(tempfile.gettempdir()) / f"batchadvisor-{os.getpid()}-{folder.name}")


def folder_of(options: RunOptions, resumed: RunRecord | None) -> Path:
    """Where the run's files go.

    Raises:
        UsageError: the folder holds another run, or what shall be resumed is no run of the script.
    """
    if options.resume is not None and resumed is not None:
        if resumed.observed is not None:
            msg = f"{options.resume} is the record of a callback, not of a run."
            raise UsageError(msg, "Only a run can be resumed; start one without --resume.")
        check_same_script(options, resumed)
        return options.resume if options.resume.is_dir() else options.resume.parent
    if options.output is None:
        return run_folder(options.script, time.strftime("%Y%m%d-%H%M%S"))
    # What cannot be asked is said later.
    if any(os.path.exists(options.output / name) for name in (RECORD, DEVICES)):  # noqa: PTH110
        msg = f"{options.output} holds a run already."
        raise UsageError(msg, "Choose another folder, or continue the run with --resume.")
    return options.output
