"""Whole runs: the real session, search, trial runner, windows and sampler on a virtual GPU.

What stands in is the thin edge: the process of the script, `torch.cuda`, the profiler, the kernel's
counters of this process, the clock.
"""

import os

import msgspec
import torch
from batchadvisor.probes.devices.gpus_in_use import MemoryLimit
from batchadvisor.probes.doors.protocols import FoundLoop
from batchadvisor.probes.nvml.sampler import NvmlSampler
from batchadvisor.probes.process.endings import over
from batchadvisor.probes.process.faults import is_out_of_memory, memory_is_short
from batchadvisor.probes.process.messages import Found, Progress, Raised, Result
from batchadvisor.probes.process.orders import RunTrial, decode_to_worker
from batchadvisor.probes.windows.interleaved_window import TurnsWindow
from batchadvisor.probes.windows.step_evidence import Reading
from batchadvisor.probes.windows.window import Window
from batchadvisor.probes.worker import trial_task
from batchadvisor.probes.worker.trial_runner import TrialRunner
from batchadvisor.records import Goal, Profile
from batchadvisor.reports.terminal.progress import NullDisplay
from batchadvisor.session import run as running
from batchadvisor.session.recording.store import RunStore
from batchadvisor.session.run import Run
from batchadvisor.session.setup import first_record
from batchadvisor.session.setup.options import RunOptions
from batchadvisor.session.workers import gpu_watch as counting
from batchadvisor.session.workers.worker_pool import WorkerPool

from ..on_paper import discovery_of, loader_of
from .allocator import MIB
from .script import Loop
from .tape import Tape
from .torch_cuda import install

SETUP_MS = 3000.0
UUID = "00000000-1111-2222-3333-444444444444"
"""As the stand-in for NVML calls its first GPU."""


class Parked(BaseException):
    """The worker waits for its next order."""


class Line:
    """Both ends of the pipe; what goes through it is encoded as between two processes."""

    def __init__(self, on_progress):
        self.orders = []
        self.found = None
        self.result = None
        self._on_progress = on_progress

    def send(self, message):
        message = msgspec.json.decode(msgspec.json.encode(message), type=type(message))
        if isinstance(message, Progress):
            self._on_progress(message)
        elif isinstance(message, Found):
            self.found = message
        elif isinstance(message, Result):
            self.result = message

    def receive_line(self):
        if not self.orders:
            raise Parked
        decode_to_worker(self.orders[0])
        return self.orders.pop()


class Door:
    """The door to the planted loop, which makes steps of its present size."""

    def __init__(self, size):
        self.size = size

    def report_to(self, listener):
        pass

    def ask(self, batch_size):
        self.size = batch_size

    resize = ask

    batches = None

    def parameters(self):
        return []


class Profiler:
    """Stands in for torch.profiler: the trace is what the machine takes down."""

    def __init__(self, gpu, blocks, path, folder, schedule):
        self._gpu, self._path, self._folder = gpu, path, folder
        self._before, self._active = sum(schedule[:2]), schedule[2]
        self._tape = Tape(blocks)
        self._num_steps = 0

    def start(self):
        self._gpu.clock.pass_ms(800)  # the first start of CUPTI
        self._gpu.tape = self._tape  # warm-up steps are taken down and left out
        self._mark()

    def step(self):
        self._num_steps += 1
        self._mark()
        return self._num_steps == self._before + self._active

    def finish(self):
        self._gpu.synchronize()
        self.abandon()
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._tape.write(self._path)
        return Profile(trace=str(self._path.relative_to(self._folder)), num_steps=self._active)

    def abandon(self):
        self._gpu.tape = None

    def _mark(self):
        if self._num_steps >= self._before:
            last = self._num_steps == self._before + self._active
            self._tape.step(self._gpu.clock.now_ns, last=last)


class Evidence:
    """The kernel's counters of this process: the virtual host is disturbed by nobody."""

    def __init__(self, **_):
        self.unavailable = {}

    def renew(self):
        pass

    def read(self):
        return Reading({1: 0}, 0.0, None, 0, 0.0, 0.0, 0)

    def close(self):
        pass


class Quiet:
    """Nothing happens around a trial."""

    def __init__(self, _):
        pass

    def causes(self, _):
        return ()


class Store(RunStore):
    """A run's folder without event files, which ask for advice after every trial."""

    problem = ""


class Worker:
    """Stands in for a worker process: the real trial runner and a planted loop, in this one."""

    versions = None
    distribution = None

    def __init__(self, machine, order, on_progress):
        self.order = order
        self.pid = os.getpid()
        self.files = []
        self._machine = machine
        self._line = Line(on_progress)
        self._loop = None
        self._door = Door(machine.script.native)
        self._runner = TrialRunner(self._line, order, self._door, touched=tuple)  # type: ignore[arg-type]
        self._hold = lambda: None
        if order.memory_limit_bytes is not None:
            self._hold = MemoryLimit(order.memory_limit_bytes).hold

    def discover(self, _until_s=None):
        """Three steps of the script's own size, or smaller ones."""
        machine, clock = self._machine, self._machine.gpu.clock
        script = machine.script
        size = min(script.native, self.order.batch_cap or script.native)
        began_ns = clock.now_ns
        clock.pass_ms(SETUP_MS)
        step_ns = 0
        try:
            self._loop = Loop(script, machine.gpu)
            self._hold()
            for _ in range(3):
                fetched_ns = clock.now_ns
                self._loop.fetch(size)
                self._loop.step(size)
                step_ns = clock.now_ns - fetched_ns
        except RuntimeError as error:
            raise self._gone(error) from None
        discovery = discovery_of(
            native=script.native,
            loader=loader_of(1_000_000, batch_size=script.native),
            setup_s=(clock.now_ns - began_ns) / 1e9,
            native_step_s=step_ns / 1e9,
        )
        loop = FoundLoop(discovery=discovery, device=torch.device("cuda:0"))
        self._until_parked(lambda: self._runner.found(loop))
        assert self._line.found is not None
        return self._line.found.discovery, self._line.found.device

    @property
    def in_use(self):
        return () if self._line.found is None else self._line.found.in_use

    def takes(self, kind):
        return kind is RunTrial

    def ask(self, order, until_s=None):
        del until_s
        self._line.orders.append(msgspec.json.encode(order))
        self._line.result = None
        try:
            self._until_parked(self._trial)
        except RuntimeError as error:
            raise self._gone(error) from None
        assert self._line.result is not None
        return self._line.result

    def _trial(self):
        loop, machine = self._loop, self._machine
        assert loop is not None
        self._runner.next_task()
        while True:
            size = self._door.size
            machine.before_step()
            wait_s = loop.fetch(size)
            self._runner.arrived(size, "shape", wait_s, primary=True)
            loop.step(size)
            self._runner.boundary()

    def _gone(self, error):
        refused = is_out_of_memory(error, short=memory_is_short())
        kind = type(error).__name__
        return over(Raised(kind=kind, text=str(error), traceback="", out_of_memory=refused))

    def was_stopped(self):
        return False

    def end(self):
        self._machine.gpu.new_process()

    @staticmethod
    def _until_parked(act):
        try:
            act()
        except Parked:
            return


class Machine:
    """A virtual GPU in the place of the real one, for one run after the other.

    Args:
        at: what happens around the script, by second of the virtual clock, once each.
    """

    def __init__(self, gpu, script, patch, stub, *, uuid=UUID, at=None):
        self.gpu, self.script = gpu, script
        self._at = dict(sorted((at or {}).items()))
        install(gpu, patch, uuid=uuid)
        drive(stub, gpu)
        for window in (Window, TurnsWindow):
            patch.setitem(window.__init__.__kwdefaults__, "clock", lambda: gpu.clock() / 1e9)
        patch.setattr(trial_task, "EvidenceReader", Evidence)
        patch.setattr(trial_task, "Surroundings", Quiet)
        patch.setattr(trial_task, "TraceProfiler", self._profiler)
        patch.setattr(counting, "NvmlSampler", sampler_on(gpu.clock))
        patch.setattr(running, "workers_for", self._workers)
        patch.setattr(first_record, "EventStore", Store)
        patch.setattr(os, "fsync", lambda _: None)

    def before_step(self):
        """What was planted for a time that has come."""
        while self._at and next(iter(self._at)) * 1e9 <= self.gpu.clock.now_ns:
            self._at.pop(next(iter(self._at)))(self.gpu)

    def run(self, folder, *, limit_bytes=None, **goal):
        """A whole run of the script, with a limit as of `--memory-limit`."""
        (folder / "train.py").write_text("")
        options = RunOptions(
            script=str(folder / "train.py"),
            goal=Goal(**goal),
            memory_limit_bytes=limit_bytes,
            output=folder / "out",
        )
        with Run(options, NullDisplay()) as run:
            return run.search()

    def _profiler(self, path, folder, _, schedule, *, with_stack):
        return Profiler(self.gpu, self.script.blocks, path, folder, schedule)

    def _workers(self, options, **known):
        machine = self

        class VirtualWorkers(WorkerPool):
            may_stand_by = False

            def spawn(self, **changes):
                number = self._writer.record.num_workers_started
                self._writer.change(num_workers_started=number + 1)
                worker = Worker(machine, self._order(number, **changes), self._on_progress)
                self.current = worker
                return worker

        return VirtualWorkers(options, **known)


def timed(record):
    """Trials that timed one size."""
    return [trial for trial in record.trials if trial.ran and trial.step_s is not None]


def drive(stub, gpu, index=0):
    """From now on the stand-in answers what the machine is at the moment of the question."""

    def tell():
        now_ns, supply = gpu.clock.now_ns, gpu.supply
        phase = supply.phase(now_ns)
        own_bytes = gpu.reserved_bytes
        values = {
            "energy_mj": supply.told_mj(now_ns),
            "power_mw": supply.told_mw(now_ns),
            "utilization_pct": supply.told_pct(now_ns),
            "sm_mhz": phase.mhz,
            "throttle": phase.bits if supply.is_busy(now_ns) else 0x1,
            "total_mib": gpu.capacity_bytes // MIB,
            "used_mib": (gpu.other_bytes + own_bytes) // MIB,
            "own_mib": own_bytes // MIB,
            "pid": os.getpid(),
            "others": int(gpu.has_neighbour),
        }
        for name, value in values.items():
            stub[f"{index}.{name}"] = value

    stub.refresh(tell)


def sampler_on(clock):
    """The real sampler on the virtual clock: what its thread does is done as that time passes."""

    class Sampler(NvmlSampler):
        def __init__(self, gpu, pids=None, **options):
            super().__init__(gpu, pids, clock=lambda: clock() / 1e9, **options)

        def _begin_sampling(self):
            self._slow_due_s = self._clock()
            clock.every(self._period_s, self._turn)

        def _end_sampling(self):
            clock.forget(self._turn)

        def _turn(self):
            self._sample(self._clock())

    return Sampler
