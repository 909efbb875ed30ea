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
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ..advisor.measured.noise_scale import noise_interval
from ..errors import BatchAdvisorError, RunError, UsageError
from ..probes.devices.neighbours import Surroundings
from ..records import Cause, Fault, Goal, NoiseScale, Profile, RunRecord, RunState, ScriptInfo
from ..session.recording.event_files import EventStore
from ..session.recording.store import RunStore
from . import trials_from_counts
from .creep_watch import CreepWatch
from .device_times import Pacer
from .devices import DeviceReadings, MemoryProbe
from .event_buffer import EventBuffer
from .loop_info import Facts, versions
from .memory_look import MemoryLook
from .options import Options, folder_of, keep_earlier, script
from .saver import News, Saver
from .step_counter import NEVER, WARMUP_STEPS, Core
from .windows import Windows

if TYPE_CHECKING:
    from ..probes.windows.gradient_norms import NoiseMeter

FIRST_SAVE_S = 1.0
LONGEST_SAVE_S = 60.0
PERIOD_GROWTH = 1.5
SAVE_COST_FACTOR = 1000
"""A save may cost this part of the time until the next one, but for `LONGEST_SAVE_S`."""
SAVE_RETRY_S = 1.0
LAST_PIECES_S = 10.0
"""How long to wait for a device that still finishes its last steps."""


class Recorder:
    """Everything about one run that stands on disk.

    Args:
        options: of the callback.
        facts: of the loop; the adapter may go on filling them in until the first step.
        say: tells the user something, once.
        on_first_step: called with the recorder when the first step is over and the facts are whole.
        probe: of a framework without torch.
    """

    def __init__(
        self,
        options: Options,
        facts: Facts,
        *,
        say: Callable[[str], None],
        on_first_step: Callable[[Recorder], None],
        probe: MemoryProbe | None = None,
    ) -> None:
        self.options = options
        self.facts = facts
        self.root = folder_of(options, facts.world_size)
        self.folder = self.root if facts.rank == 0 else self.root / f"rank-{facts.rank:04d}"
        follows = options.scalars and facts.rank == 0
        self.store = _store(EventStore if follows else RunStore, self.folder)
        self._saver = Saver(self.store, self.folder)
        self.core = Core(self, stated=options.batch_size)
        self.readings = DeviceReadings(probe)
        self.buffer = EventBuffer(self.core)
        self.windows: Windows | None = None
        self.no_windows = "no step was made"
        self.noise: Any = None
        self.memory = MemoryLook(self.folder, history=options.memory_history, say=say)
        self.creep: CreepWatch | None = None
        self.doubts: list[str] = []
        self._surroundings: Surroundings | None = None
        self._causes: tuple[Cause, ...] = ()
        self._say = say
        self._on_first_step = on_first_step
        self._setup_s = 0.0
        self._period_s = FIRST_SAVE_S
        self._profiles: dict[int, Profile] = {}
        self._started_at = datetime.now(timezone.utc).isoformat(timespec="seconds")
        self._started_s = time.monotonic()
        self.updated: Callable[[], None] | None = None

    def begin(self) -> None:
        """The run begins: a record stands on disk from now on."""
        self.buffer.on_run_begin()
        try:
            self.store.save(self.record("running"))
        except RunError as error:  # its remedy is that of `run`
            raise UsageError(error.what, "Choose another folder with logdir=.") from error

    # at boundaries -----------------------------------------------------------------------------

    def _first_step(self) -> None:
        """The loop is known now: its device, its sizes, its tail."""
        self._setup_s = time.monotonic() - self._started_s
        self._on_first_step(self)
        timeline = self.readings.connect(self.facts)
        if timeline is not None:
            self.core.pacer = Pacer(timeline, self.core.book_piece)
        self.readings.start_counters()
        held = self.readings.held()
        if held is not None:
            self.creep = CreepWatch(*held)
            self.core.look_step = WARMUP_STEPS
        torch = sys.modules.get("torch")
        self._surroundings = Surroundings(None if torch is None else torch.get_num_threads())

    def boundary(self, core: Core, now_ns: int) -> None:
        """Whatever is due. A failure of ours ends the watching, never the training."""
        try:
            self._due(core, now_ns)
        except Exception as error:  # noqa: BLE001
            core.due_ns = core.due_step = NEVER
            core.timing = True
            self._stop_watching()
            self._doubt(f"the callback stopped measuring: {type(error).__name__}: {error}")

    def _stop_watching(self) -> None:
        """Else a profiler that is open would record the rest of the training."""
        if self.windows is not None:
            self.windows.abandon("the callback stopped measuring in its profiled window")
        if self.noise is not None:
            self.noise.close()
        self.memory.finish()

    def look(self, core: Core) -> None:
        """Memory that is held between two steps; a failure to read it ends no training."""
        core.look_step = NEVER
        assert self.creep is not None
        with contextlib.suppress(OSError, RuntimeError, ValueError):
            core.look_step = self.creep.step(core.num_ended)
        core.due_step = min(core.due_step, self.creep.next_look)

    def pause(self, core: Core) -> None:
        """No profiler watches what is no training."""
        if self.windows is not None and self.windows.active:
            self.windows.pause(core.num_ended)
            core.timing = not self.windows.active
            core.due_step = self._next_step()

    def growth(self, core: Core) -> None:
        """Counts the peak of the process so far for the sizes so far."""
        self.readings.read_peak(core.sizes)

    def _due(self, core: Core, now_ns: int) -> None:
        if core.num_ended == 1:
            self._first_step()
        if self.creep is not None and core.num_ended >= self.creep.next_look:
            core.look_step = self.creep.boundary(core.num_ended)
        if self.noise is not None:
            self.noise.boundary(core.num_ended, core.step_size, even=core.was_even)
        windows = self.windows
        if windows is not None:
            due = core.num_ended >= windows.next_step and not windows.active
            if due and self.readings.leaves_no_room():
                windows.skip("left out: the memory is too nearly full for the profiler's own")
            windows.boundary(core.num_ended, core.step_size)
            core.timing = not windows.active
        if core.num_ended >= self.memory.next_step and core.timing:
            self.memory.boundary(core.num_ended)
        if now_ns >= core.due_ns:
            core.due_ns = now_ns + int(1e9 * self.save())
        core.due_step = self._next_step()

    def _next_step(self) -> int:
        due = self.memory.next_step
        if self.windows is not None:
            due = min(due, self.windows.next_step)
        if self.creep is not None:
            due = min(due, self.creep.next_look)
        return due if self.noise is None else min(due, self.noise.next_step)

    def save(self) -> float:
        """Reads the counters and has the record written; a full disk does not end a training.

        Returns:
            Seconds until the next one.
        """
        self._tell_of_problems()
        if self._saver.busy:
            return SAVE_RETRY_S
        began_s = time.monotonic()
        self.readings.read(self.core.sizes)
        self._saver.begin(self._news(self.record("running")))
        if self.updated is not None:
            self.updated()
        cost_s = time.monotonic() - began_s + self._saver.cost_s
        period_s = self._period_s
        self._period_s = min(LONGEST_SAVE_S, period_s * PERIOD_GROWTH)
        return min(LONGEST_SAVE_S, max(period_s, SAVE_COST_FACTOR * cost_s))

    def _tell_of_problems(self) -> None:
        problem = self._saver.new_problem()
        if problem:
            self._doubt(f"the record could not be written: {problem}")
        problem = self._saver.new_event_problem()
        if problem:
            self._say(f"event files for TensorBoard: {problem}")

    def _news(self, record: RunRecord) -> News:
        """The record, one real step, and the means since the last save as scalars."""
        core = self.core
        steps, total_ns, total_wait_ns, num_samples = core.recent
        if core.last is None or not steps:
            return News(record)
        core.recent[:] = [0, 0, 0, 0]
        step_ns, wait_ns, samples, size = core.last
        sizes = [kind.batch_size for kind in trials_from_counts.regular_kinds(core)]
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
            # The host may wait longer than a device behind it takes for what was queued before.
            "batchadvisor/input wait (%)": min(100.0, 100 * total_wait_ns / total_ns),
        }
        peak = self.readings.peaks.get(max(core.sizes))
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
        self.memory.finish()
        try:
            self.readings.read(self.core.sizes)
        except RuntimeError as error:  # after an assertion of a kernel a device tells nothing more
            why = trials_from_counts.fault_of(error).detail
            self._doubt(f"the memory could not be read at the end: {why}")
        self.readings.stop()
        self._causes = self._taken_by()
        self._saver.wait()  # it reads what is packed now
        self._read_traces()
        record = self.record(state, reason, faults=faults, tail_size=tail_size)
        self._saver.write(self._news(record))
        self._tell_of_problems()
        return record

    def _taken_by(self) -> tuple[Cause, ...]:
        """What took time from the loop since its first step."""
        if self._surroundings is None:
            return ()
        # Other ranks are no strangers: what started this one started them.
        own = (os.getppid(),) if self.facts.world_size > 1 else ()
        return tuple(
            cause
            for cause in self._surroundings.causes(own)
            # A core that has waited for its device meanwhile is slow for that.
            if cause.kind != "frequency"
        )

    def left(self) -> RunRecord:
        """What is known, written, where `finish` failed: else the record says that it runs."""
        record = self.record("failed", "the record was not finished")
        with contextlib.suppress(BatchAdvisorError):
            self.store.save(record)
        return record

    def _let_go(self) -> None:
        """Also where the last record could not be made: another run may want the folder."""
        # A loop that goes on afterwards is none of ours, and its record is written.
        self.core.due_ns = self.core.due_step = self.core.look_step = NEVER
        self._saver.close()
        self.store.close()
        self.readings.stop()
        if self.noise is not None:
            self.noise.close()

    def _read_traces(self) -> None:
        """Repairs, packs and reads the traces; a second or so each, so it waits for the end."""
        from ..session.recording.traces import with_profile

        windows = self.windows.profiles if self.windows is not None else {}
        for trial in trials_from_counts.trials_of(
            self.core, peaks={}, profiles=windows, no_profile="", counters=None
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
        core, windows = self.core, self.windows
        unread = {"*": "its trace is read when the run is over"}
        profiles = dict(self._profiles)
        for size, window in (windows.profiles if windows is not None else {}).items():
            if size not in profiles:
                profiles[size] = msgspec.structs.replace(self._placed(window), unavailable=unread)
        no_profile = windows.reason if windows is not None else self.no_windows
        noise, reasons = noise_scale_of(self.noise, wanted=self.options.noise_scale)
        return RunRecord(
            state=state,
            started_at=self._started_at,
            command=tuple(sys.argv),
            script=ScriptInfo(path=script(), arguments=tuple(sys.argv[1:])),
            goal=Goal(margin=self.options.margin, profile=self.options.profile),
            versions=versions(),
            device=self.readings.device,
            discovery=trials_from_counts.discovery_of(core, self.facts, self._setup_s),
            distribution=trials_from_counts.distribution_of(self.facts),
            explained=self.memory.explained(),
            trials=trials_from_counts.trials_of(
                core,
                peaks=self.readings.peaks,
                profiles=profiles,
                no_profile=no_profile,
                counters=self.readings.counters,
                window_step_s=windows.step_s if windows is not None else None,
                no_wait=self.facts.reasons.get("input_wait_s", ""),
                tail_error=faults[0].detail if faults else "",
                tail_size=tail_size,
                tokens=self.facts.tokens,
                causes=self._causes,
            ),
            faults=faults,
            doubts=(*self.doubts, *trials_from_counts.as_stated(core, self.options.batch_size)),
            stop_reason=reason,
            num_workers_started=1,
            elapsed_s=time.monotonic() - self._started_s,
            observed=trials_from_counts.observed_of(
                core,
                self.facts,
                profiled=tuple(windows.began) if windows is not None else (),
                held_bytes=self.readings.held_bytes,
                creep=self.creep.creep if self.creep is not None else None,
                noise=noise,
                reasons=reasons,
            ),
        )

    def _doubt(self, text: str) -> None:
        if text not in self.doubts:
            self.doubts.append(text)
            self._say(text)


def _store(kind: type[RunStore], folder: Path) -> RunStore:
    """The run's folder, locked; the record of an earlier run in it stays.

    Raises:
        UsageError: it cannot be had, with a way out that a callback has.
    """
    try:
        store = kind(folder)
    except UsageError as error:
        remedy = "Choose another folder with logdir=."
        if isinstance(error.__cause__, BlockingIOError):
            remedy = (
                "Wait for it, or choose another folder with logdir=. Ranks have folders of their "
                "own where each begins the callback after init_process_group."
            )
        raise UsageError(error.what, remedy) from error.__cause__
    keep_earlier(folder)
    return store


# The noise scale of a watched training, or why there is none.


def noise_scale_of(
    meter: NoiseMeter | None, *, wanted: bool
) -> tuple[NoiseScale | None, dict[str, str]]:
    """The scale as it stands now, else the reason. Waits for the device.

    Args:
        meter: of the gradients, where the loop has some of torch.
        wanted: whether the user asked for it.
    """
    if meter is None:
        reason = "this loop has no gradients of torch" if wanted else "noise_scale=False"
        return None, {"noise_scale": reason}
    if meter.unavailable:
        return None, {"noise_scale": meter.unavailable}
    try:
        pairs = meter.found()
    except RuntimeError as error:  # a device that failed gives back no values
        return None, {"noise_scale": f"the norms could not be read: {type(error).__name__}"}
    if pairs is None:
        return None, {
            "noise_scale": "no step had two gradients of equal size: accumulation or several "
            "ranks are needed"
        }
    large = pairs.small_batch * pairs.multiple
    interval = noise_interval(pairs.squares, pairs.small_batch, large)
    if isinstance(interval, str):
        return None, {"noise_scale": interval}
    low, high = interval
    noise = NoiseScale(
        source="ranks" if meter.ranks == pairs.multiple else "accumulation",
        small_batch=pairs.small_batch,
        large_batch=large,
        num_measured=len(pairs.squares),
        first_step=pairs.first_step,
        last_step=pairs.last_step,
        low=low,
        high=high,
        unavailable={} if high is not None else {"high": "the noise leaves a lower bound only"},
    )
    return noise, {}
