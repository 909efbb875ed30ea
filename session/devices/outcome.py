"""The result of a run on several devices: answers by device, checks against twins."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import msgspec

from ...advisor.advise import advise
from ...advisor.measured.measurements import Measurements
from ...advisor.measured.trials import pooled
from ...advisor.split.allocation import plan_split
from ...advisor.split.twins import compare
from ...errors import BatchAdvisorError, UsageError
from ...records import Advice, DevicesRecord, Goal, RunRecord, SplitPlan, Spread, TwinCheck
from ...records.plausible import implausible
from ...spread import ratio_of
from ..recording.store import DEVICES, read_record


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a run on several devices.

    Attributes:
        answers: record and advice by the name of the device, where there are any.
        global_batch: samples of all devices in a step that are to be split; `None` for the sum of
            the recommended sizes.
    """

    record: DevicesRecord
    folder: Path
    answers: dict[str, tuple[RunRecord, Advice]]
    global_batch: int | None = None

    @property
    def recommends(self) -> bool:
        """Whether there is a size to use on any device."""
        return any(advice.recommended is not None for _, advice in self.answers.values())

    @property
    def split(self) -> SplitPlan | str:
        """One global batch over all devices, or the reason why there is no plan."""
        return plan_split(self.record, self.answers, self.global_batch)

    def under(self, goal_of: Callable[[Goal], Goal], *, global_batch: int | None = None) -> Outcome:
        """Returns the answers for the same measurements under another goal.

        Args:
            goal_of: the goal to ask, given that of a device's run.
            global_batch: what to split over the devices.
        """
        answers = {
            name: (record, advise(record, goal_of(record.goal)))
            for name, (record, _) in self.answers.items()
        }
        return msgspec.structs.replace(self, answers=answers, global_batch=global_batch)


def read_devices(folder: Path) -> Outcome | None:
    """A stored run on several devices, `None` if the folder holds none.

    Raises:
        UsageError: it holds a number that nothing can have measured.
    """
    try:
        data = (folder / DEVICES).read_bytes()
        record = msgspec.json.decode(data, type=DevicesRecord)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    wrong = implausible(record)
    if wrong is not None:
        msg = f"{folder / DEVICES} is not a record: {wrong}, and nothing can have measured that."
        raise UsageError(msg, "Name the folder of a device in it.")
    answers = {}
    for device in record.devices:
        with contextlib.suppress(BatchAdvisorError):
            own = read_record(folder / device.folder)
            answers[device.device] = (own, advise(own))
    return Outcome(record=record, folder=folder, answers=answers)


def answer_of(folder: Path) -> tuple[RunRecord, Advice] | None:
    """Record and advice of a device's run, `None` where nothing was measured."""
    try:
        record = read_record(folder)
    except BatchAdvisorError:
        return None
    return (record, advise(record)) if Measurements.of(record).ran else None


def last_error(log: Path) -> str:
    """The last error in what a run said; empty where there is none."""
    with contextlib.suppress(OSError):
        lines = log.read_text("utf-8", "replace").splitlines()
        return next((line for line in reversed(lines) if line.startswith("Error: ")), "")
    return ""


def speed_at(record: RunRecord, size: int) -> Spread | None:
    """Samples per second at a size; `None` where it was not timed.

    Those of the confirmation ran one after the other in a warm process: they alone count, where its
    time was not over before it had any.
    """
    ran = Measurements.of(record).ran
    trials = [each for each in ran if each.batch_size == size and each.samples_per_s is not None]
    again = [trial for trial in trials if trial.purpose == "confirm"]
    return pooled(again or trials, "samples_per_s")


def twin_check(
    twin: str, size: int, speed: Spread | None, reference: Spread | None, folder: str
) -> TwinCheck:
    """How the speed of a device at a size compares with that of its twin.

    Args:
        speed, reference: samples per second of the device and its twin, where the size was timed.
        folder: of the device's run.
    """
    if speed is None or reference is None:
        return TwinCheck(
            twin=twin,
            batch_size=size,
            samples_per_s=speed,
            twin_samples_per_s=reference,
            verdict="cannot tell",
            folder=folder,
            unavailable={"ratio": "the size was not timed on both"},
        )
    ratio = ratio_of(speed, reference)
    return TwinCheck(
        twin=twin,
        batch_size=size,
        samples_per_s=speed,
        twin_samples_per_s=reference,
        ratio=ratio,
        verdict=compare(ratio),
        folder=folder,
    )
