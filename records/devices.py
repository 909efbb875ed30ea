"""A run on several devices: one record a device, and this one beside them."""

from __future__ import annotations

from typing import Literal

from .base import SCHEMA_VERSION, Record, Spread


class TwinCheck(Record, frozen=True, kw_only=True):
    """A device against another of the same model, at one size, measured at the same time.

    Attributes:
        twin: the device that was probed in full.
        samples_per_s, twin_samples_per_s: of this device and of the twin.
        ratio: the first over the second, with the interval that both intervals allow.
        verdict: `equal` also where a difference is too small to matter.
        folder: of this device's run at that size.
    """

    twin: str
    batch_size: int
    samples_per_s: Spread | None = None
    twin_samples_per_s: Spread | None = None
    ratio: Spread | None = None
    verdict: Literal["equal", "weak", "strong", "cannot tell"]
    folder: str = ""
    unavailable: dict[str, str] = {}


class DeviceRun(Record, frozen=True, kw_only=True):
    """One device of a run on several.

    Attributes:
        device: its name: `cuda-0`, `cpu-1-at-0.4`; unique in the run.
        model: devices with the same text are twins.
        folder: of its record, relative to this one's; that of its twin where it has none itself.
        twin_of: the device whose record it shares.
        check: how it compares with its twin.
        exit_code: of its run; `None` where there was none.
        error: what it said when it failed.
    """

    device: str
    model: str
    folder: str = ""
    twin_of: str | None = None
    check: TwinCheck | None = None
    exit_code: int | None = None
    error: str = ""


class DevicesRecord(Record, frozen=True, kw_only=True):
    """All devices of one run: what `devices.json` holds."""

    schema_version: str = SCHEMA_VERSION
    state: Literal["running", "finished", "interrupted", "failed"]
    started_at: str
    command: tuple[str, ...]
    devices: tuple[DeviceRun, ...] = ()
