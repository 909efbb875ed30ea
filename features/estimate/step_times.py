"""Bounds of step times on GPUs that are not here, and the real run that calibrates them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ...errors import RunError, UsageError
from ...probes.process.messages import FakeResult
from ...records import OpWork, RunRecord, Variant
from ...session.recording.store import read_record
from ...session.setup.options import RunOptions, digest_of
from .fit.gpu_specs import SPECS, specs_of
from .fit.roofline import Works, calibrated, step_bound, work_at
from .records import Calibration, Forecast, StepBound

NOT_COUNTED = "no operation of its steps was counted"


class StepTimes:
    """Collects the operations of fake steps, and says how long they take at least.

    Args:
        gpus: names and memory in bytes.
        own: batch size of the script.
        record: of a run on a real GPU, if there is one.
    """

    def __init__(self, gpus: Sequence[tuple[str, int]], own: int, record: RunRecord | None) -> None:
        self._gpus = gpus
        self._own = own
        self._record = record
        self._works: dict[str, dict[int, Sequence[OpWork]]] = {}
        self._why_not: dict[str, str] = {}

    def note(self, variant: Variant, size: int, made: FakeResult) -> None:
        """A step was made."""
        if made.work:
            self._works.setdefault(variant.name, {})[size] = made.work
        elif made.no_work:
            self._why_not[variant.name] = made.no_work

    def are_alike(self, variant: Variant, other: Variant, size: int) -> bool:
        """Whether steps of two variants do the same work; the first then counts as the second."""
        own, others = self._works.get(variant.name, {}), self._works.get(other.name, {})
        alike = size in own and own[size] == others.get(size)
        if alike:
            self._works[variant.name] = others
        return alike

    def bounds(self, forecasts: Sequence[Forecast]) -> tuple[StepBound, ...]:
        """Bounds at the script's own size and the largest that fits, as written and under bf16."""
        bounds = []
        for each in forecasts:
            name = each.variant.name
            if each.variant not in (Variant(), Variant(bf16=True)):
                continue
            for gpu in each.gpus:
                largest = gpu.low or gpu.high
                for size in dict.fromkeys((self._own, largest) if largest else (self._own,)):
                    work = self._work(name, size)
                    bounds.append(step_bound(gpu.name, specs_of(gpu.name), name, size, work))
        return tuple(bounds)

    def calibration(self, written: Forecast) -> Calibration | None:
        """Calibrates by the run on a real GPU.

        Raises:
            RunError: the run timed none of the sizes that were looked at.
        """
        if self._record is None or self._record.device is None:
            return None
        specs = specs_of(self._record.device.name)
        assert specs is not None  # as `calibration_record` saw
        name = written.variant.name
        largest = [(gpu.name, specs_of(gpu.name), gpu.low or gpu.high) for gpu in written.gpus]
        why_not = self._why_not.get(name, "")
        works = {} if why_not else self._works.get(name, {})
        answer = calibrated(specs, _timed(self._record), works, largest)
        if isinstance(answer, str):
            raise RunError(
                f"--calibrate: the run says nothing of these steps: {why_not or answer}.",
                "Leave --calibrate out, or name a run with sizes from 2 on.",
            )
        return answer

    def _work(self, name: str, size: int) -> Sequence[OpWork] | str:
        works: Works = self._works.get(name, {})
        if name in self._why_not or not works:
            return self._why_not.get(name, NOT_COUNTED)
        return work_at(works, size)


def calibration_record(path: Path, options: RunOptions) -> RunRecord:
    """The record of a run of the script on one GPU of the table.

    Raises:
        UsageError: it is no such record.
    """
    record = read_record(path)
    script, device = record.script, record.device
    own = digest_of(options)
    same = Path(script.path).name == Path(options.script).name and (
        None in (own, script.digest) or own == script.digest
    )
    if not same or script.arguments != options.typed_words[1:]:
        raise UsageError(
            f"--calibrate: {path} is a run of another script, of another text of it, or with other "
            f"arguments: {' '.join((script.path, *script.arguments))}.",
            "Name a run of this script as it is now, with the same arguments.",
        )
    if device is None or device.kind != "cuda":
        what = "no device" if device is None else f"a {device.kind.upper()}"
        raise UsageError(
            f"--calibrate: {path} is a run on {what}.",
            "Only a run on one real GPU tells how far steps are off their bound.",
        )
    if record.distribution is not None and record.distribution.world_size > 1:
        raise UsageError(
            f"--calibrate: {path} is a run on {record.distribution.world_size} ranks.",
            "Name a run on one GPU.",
        )
    if specs_of(device.name) is None:
        names = ", ".join(specs.name for specs in SPECS.values())
        raise UsageError(
            f"--calibrate: the table has no bandwidth of {device.name}.", f"It has {names}."
        )
    if not _timed(record):
        raise UsageError(
            f"--calibrate: {path} has no timed steps.", "Name a run that measured some sizes."
        )
    return record


def _timed(record: RunRecord) -> dict[int, float]:
    """Seconds of an optimizer step by batch size, the last trial of each."""
    return {
        trial.batch_size: trial.step_s.median
        for trial in record.trials
        if trial.outcome == "ok" and trial.kind == "timed" and trial.step_s is not None
    }
