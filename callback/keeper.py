"""Keeps the record of a watched loop on disk, and does all that is too slow for a step.

The core calls at boundaries between two steps when something is due; what is done there belongs to
no step. The record is saved at growing distances, in a thread of its own and at least once a
minute, so that a process that is killed leaves what was known a minute before.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any

import msgspec

from ..records import (
    Counters,
    DeviceInfo,
    Fault,
    Goal,
    Memory,
    Profile,
    RunRecord,
    RunState,
    ScriptInfo,
)
from ..session.events import EventStore
from ..session.store import RunStore
from . import ledger
from .core import NEVER, Core
from .devices import HostProbe, MemoryProbe, TorchProbe, nvml_sampler, rank_share
from .facts import Facts, versions
from .noise_scale import noise_scale_of
from .options import Options, folder_of, keep_earlier, script
from .saver import News, Saver
from .stretches import Pacer
from .tape import Tape
from .windows import Windows

FIRST_SAVE_S = 1.0
LONGEST_SAVE_S = 60.0
GROWTH = 1.5
COST_SHARE = 1000
"""A save may cost this part of the time until the next one, but for `LONGEST_SAVE_S`."""
SAVE_RETRY_S = 1.0
LAST_PIECES_S = 10.0
"""So long a device is followed that still works on the steps of a training that is over."""
PROFILER_ROOM = 0.95
"""A peak above this share of the capacity leaves no room for the profiler's own memory."""


class Keeper:
    """Everything about one run that stands on disk.

    Args:
        options: of the callback.
        facts: of the loop; the adapter may go on filling them in until the first step.
        say: tells the user something, once.
        on_first_step: called with the keeper when the first step is over and the facts are whole.
        probe: of a framework without torch.
    """

    def __init__(
        self,
        options: Options,
        facts: Facts,
        *,
        say: Callable[[str], None],
        on_first_step: Callable[[Keeper], None],
        probe: MemoryProbe | None = None,
    ) -> None:
        self.options = options
        self.facts = facts
        self.root = folder_of(options, facts.world_size)
        self.folder = self.root if facts.rank == 0 else self.root / f"rank-{facts.rank:04d}"
        follows = options.scalars and facts.rank == 0
        self.store = (EventStore if follows else RunStore)(self.folder)
        keep_earlier(self.folder)
        self._saver = Saver(self.store, self.folder)
        self.core = Core(self)
        self.tape = Tape(self.core)
        self.windows: Windows | None = None
        self.no_windows = "no step was made"
        self.noise: Any = None
        self.doubts: list[str] = []
        self._say = say
        self._on_first_step = on_first_step
        self._probe = probe
        self._device: DeviceInfo | None = None
        self._sampler: Any = None
        self._counters: Counters | None = None
        self._peaks: dict[int, Memory] = {}
        self._held_bytes: int | None = None
        self._setup_s = 0.0
        self._period_s = FIRST_SAVE_S
        self._profiles: dict[int, Profile] = {}
        self._started_at = datetime.now(timezone.utc).isoformat(timespec="seconds")
        self._started_s = time.monotonic()
        self.updated: Callable[[], None] | None = None

    def begin(self) -> None:
        """The run begins: a record stands on disk from now on."""
        self.tape.on_run_begin()
        self.store.save(self.record("running"))  # here a folder that cannot be written is refused

    # at boundaries -----------------------------------------------------------------------------

    def _first_step(self) -> None:
        """The loop is known now: its device, its sizes, its tail."""
        self._setup_s = time.monotonic() - self._started_s
        self._on_first_step(self)
        if self._probe is None:
            self._probe = TorchProbe(self.facts.device) if self.facts.device else HostProbe()
        self._device = rank_share(self._probe.info(), self.facts.local_world_size)
        timeline = self._probe.timeline()
        if timeline is not None:
            self.core.pacer = Pacer(timeline, self.core.book_piece)
        self._sampler = nvml_sampler(self._device)
        if self._sampler is not None:
            self._sampler.begin()

    def boundary(self, core: Core, now_ns: int) -> None:
        """Whatever is due. A failure of ours ends the watching, never the training."""
        try:
            self._due(core, now_ns)
        except Exception as error:  # noqa: BLE001
            core.due_ns = core.due_step = NEVER
            core.timing = True
            self._doubt(f"the callback stopped measuring: {type(error).__name__}: {error}")

    def growth(self, core: Core) -> None:
        """What the process has used so far belongs to the sizes so far."""
        if self._probe is not None and core.sizes:
            with contextlib.suppress(Exception):  # a peak less ends no training
                self._peaks[max(core.sizes)] = self._probe.read_memory()

    def _due(self, core: Core, now_ns: int) -> None:
        if core.num_ended == 1:
            self._first_step()
        if self.noise is not None:
            self.noise.boundary(core.num_ended, core.step_size, even=core.was_even)
        windows = self.windows
        if windows is not None:
            if core.num_ended >= windows.next_step and not windows.active and self._too_full():
                windows.skip("left out: the memory is too nearly full for the profiler's own")
            windows.boundary(core.num_ended, core.step_size)
            core.timing = not windows.active
        if now_ns >= core.due_ns:
            core.due_ns = now_ns + int(1e9 * self.save())
        core.due_step = self._next_step()

    def _next_step(self) -> int:
        due = NEVER if self.windows is None else self.windows.next_step
        return due if self.noise is None else min(due, self.noise.next_step)

    def _too_full(self) -> bool:
        if self._device is None or self._probe is None or self._device.kind == "cpu":
            return False
        return self._probe.read_memory().peak_bytes > PROFILER_ROOM * self._device.capacity_bytes

    def save(self) -> float:
        """Reads the counters and has the record written; a full disk does not end a training.

        Returns:
            Seconds until the next one.
        """
        self._tell_of_problems()
        if self._saver.busy:
            return SAVE_RETRY_S
        began_s = time.monotonic()
        self._measure()
        self._saver.begin(self._news(self.record("running")))
        if self.updated is not None:
            self.updated()
        cost_s = time.monotonic() - began_s + self._saver.cost_s
        period_s = self._period_s
        self._period_s = min(LONGEST_SAVE_S, period_s * GROWTH)
        return min(LONGEST_SAVE_S, max(period_s, COST_SHARE * cost_s))

    def _tell_of_problems(self) -> None:
        problem = self._saver.new_problem()
        if problem:
            self._doubt(f"the record could not be written: {problem}")
        problem = self._saver.new_event_problem()
        if problem:
            self._say(f"event files for TensorBoard: {problem}")

    def _measure(self) -> None:
        core, probe = self.core, self._probe
        if probe is None:
            return
        self._held_bytes = probe.held_bytes()
        if core.sizes:
            # The peak of the whole process: it belongs to the largest size that it has seen.
            self._peaks[max(core.sizes)] = probe.read_memory()
        if self._sampler is not None:
            self._counters = self._sampler.end()
            self._sampler.begin(steady_s=1.0)

    def _news(self, record: RunRecord) -> News:
        """The record, one real step, and the means since the last save as scalars."""
        core = self.core
        steps, total_ns, total_wait_ns, num_samples = core.recent
        if core.last is None or not steps:
            return News(record)
        core.recent[:] = [0, 0, 0, 0]
        step_ns, wait_ns, samples, size = core.last
        sizes = [one.batch_size for one in ledger.regular_kinds(core)]
        row = {
            "trial": sizes.index(size) if size in sizes else None,
            "step": core.num_ended,
            "step_s": step_ns / 1e9,
            "input_wait_s": wait_ns / 1e9,
            "num_samples": samples,
        }
        values = {
            "batchadvisor/samples per second": num_samples / total_ns * 1e9,
            "batchadvisor/step time (s)": total_ns / steps / 1e9,
            "batchadvisor/input wait (%)": 100 * total_wait_ns / total_ns,
        }
        peak = self._peaks.get(max(core.sizes))
        if peak is not None:
            values["batchadvisor/peak memory (GiB)"] = peak.peak_bytes / 2**30
        rows = [row] if size in sizes else []
        return News(record, rows, core.num_ended, values if self.options.scalars else {})

    # the end -----------------------------------------------------------------------------------

    def finish(
        self,
        state: RunState,
        reason: str,
        *,
        faults: tuple[Fault, ...] = (),
        tail_size: int | None = None,
    ) -> RunRecord:
        """Stops everything that runs, reads the traces, writes the last record.

        Args:
            faults: that ended the loop.
            tail_size: the usual size of the epoch, where its short end ran into them.
        """
        try:
            return self._finished(state, reason, faults=faults, tail_size=tail_size)
        finally:
            self._let_go()

    def _finished(
        self, state: RunState, reason: str, *, faults: tuple[Fault, ...], tail_size: int | None
    ) -> RunRecord:
        if self.windows is not None:
            self.windows.abandon("the run was over before its profiled window was")
            self.core.timing = True
        pacer = self.core.pacer
        if pacer is not None:
            # After a failure the device may wait for other ranks for ever.
            alone = state == "failed" and self.facts.world_size == 1
            pacer.follow(LAST_PIECES_S if state == "finished" or alone else 0.0)
            if pacer.problem:
                why = pacer.problem
                self._doubt(f"steps were timed only until the device's clock failed: {why}")
        self._measure()
        if self._sampler is not None:
            self._counters = self._sampler.stop()
            self._sampler = None
        self._saver.wait()  # it reads what is packed now
        self._read_traces()
        record = self.record(state, reason, faults=faults, tail_size=tail_size)
        self._saver.write(self._news(record))
        self._tell_of_problems()
        return record

    def _let_go(self) -> None:
        """Also where the last record could not be made: another run may want the folder."""
        self._saver.close()
        self.store.close()
        if self._sampler is not None:
            self._sampler.stop()
        if self.noise is not None:
            self.noise.close()
        self._sampler = None

    def _read_traces(self) -> None:
        """Repairs, packs and reads the traces; a second or so each, so it waits for the end."""
        from ..session.traces import with_profile

        found = self.windows.found if self.windows is not None else {}
        for trial in ledger.trials_of(
            self.core, peaks={}, profiles=found, no_profile="", counters=None
        ):
            if trial.profile is not None:
                read = with_profile(trial, self.root).profile
                if read is not None:
                    self._profiles[trial.batch_size] = self._placed(read)

    def _placed(self, profile: Profile) -> Profile:
        """The profile with its trace's path as seen from the record's own folder."""
        if profile.trace is None:
            return profile
        path = os.path.relpath(self.root / profile.trace, self.folder)
        return msgspec.structs.replace(profile, trace=path)

    # the record --------------------------------------------------------------------------------

    def record(
        self,
        state: RunState,
        reason: str = "",
        *,
        faults: tuple[Fault, ...] = (),
        tail_size: int | None = None,
    ) -> RunRecord:
        """The record as it stands now."""
        core = self.core
        windows = self.windows
        unread = "its trace is read when the run is over"
        profiles = dict(self._profiles)
        for size, one in (windows.found if windows is not None else {}).items():
            if size not in profiles:
                placed = self._placed(one)
                profiles[size] = msgspec.structs.replace(placed, unavailable={"*": unread})
        no_profile = windows.reason if windows is not None else self.no_windows
        noise, reasons = noise_scale_of(self.noise, wanted=self.options.noise_scale)
        return RunRecord(
            state=state,
            started_at=self._started_at,
            command=tuple(sys.argv),
            script=ScriptInfo(path=script(), arguments=tuple(sys.argv[1:])),
            goal=Goal(margin=self.options.margin, profile=self.options.profile),
            versions=versions(),
            device=self._device,
            discovery=ledger.discovery_of(core, self.facts, self._setup_s),
            distribution=ledger.distribution_of(self.facts),
            trials=ledger.trials_of(
                core,
                peaks=self._peaks,
                profiles=profiles,
                no_profile=no_profile,
                counters=self._counters,
                window_step_s=windows.step_s if windows is not None else None,
                no_wait=self.facts.reasons.get("input_wait_s", ""),
                tail_error=faults[0].detail if faults else "",
                tail_size=tail_size,
            ),
            faults=faults,
            doubts=tuple(self.doubts),
            stop_reason=reason,
            num_workers_started=1,
            elapsed_s=time.monotonic() - self._started_s,
            observed=ledger.observed_of(
                core,
                self.facts,
                profiled=tuple(windows.began) if windows is not None else (),
                held_bytes=self._held_bytes,
                noise=noise,
                reasons=reasons,
            ),
        )

    def _doubt(self, text: str) -> None:
        if text not in self.doubts:
            self.doubts.append(text)
            self._say(text)
