"""What the supervisor and its worker say to each other: JSON lines over two inherited pipes."""

from __future__ import annotations

from typing import Literal

import msgspec

from ...records import (
    DeviceInfo,
    Discovery,
    Door,
    DoorTraits,
    FakeTrial,
    FileTouched,
    LoaderInfo,
    LossCheck,
    OrderTrial,
    Parallelism,
    RankPairs,
    Trial,
    TrialRequest,
    Variant,
    Versions,
    traits_of,
)
from ..devices.gpu_in_use import GpuInUse

Phase = Literal[
    "starting", "discovering", "warming up", "timing", "counting", "profiling", "fitting"
]


class Message(msgspec.Struct, frozen=True, tag=True):
    """Base of all messages."""


# supervisor to worker ------------------------------------------------------------------------


class Lockstep(msgspec.Struct, frozen=True, kw_only=True):
    """How the script of one rank finds the coordinator that keeps all ranks in step.

    Attributes:
        host, port, token: where the leading rank's supervisor listens, and the job's secret.
        generation: of the children; every restart makes a new one.
    """

    rank: int
    world_size: int
    host: str
    port: int
    token: str
    generation: int


class WorkOrder(Message, frozen=True, kw_only=True):
    """The first message: what to run and how.

    Attributes:
        memory_limit_bytes: what the user allows on the device.
        data_limit_bytes: what the kernel shall allow this process; only where the device is
            the CPU.
        scratch_folder: for temporary files, removed at the end.
        batch_cap: batches before discovery are cut to this size, for scripts whose own size
            does not fit.
        door: how the sizes reach the script; see records.Door.
        template: the arguments with their placeholder, `arguments` holds them filled in.
        batch_size: the size that was filled in.
        forced: the template was insisted on, whatever could be steered.
        lockstep: where the script is one rank of several.
        cores: the cores that it may use; empty for all.
        paced: it is stopped and continued, for a share of the time.
        silence_s: after so long without a sign of life it is taken for hung.
        large_fake: parameters of a large model are fake, and so is all that is done with them.
        ahead: only a preparation: import what every worker imports, say so, and await the order
            that counts.
    """

    script: str
    arguments: tuple[str, ...]
    module: bool
    worker: int
    device: str
    memory_limit_bytes: int | None
    data_limit_bytes: int | None
    run_folder: str
    scratch_folder: str
    loader: int | None
    batch_cap: int | None
    profile_schedule: tuple[int, int, int]
    with_stack: bool
    door: Door = "loader"
    template: tuple[str, ...] = ()
    batch_size: int | None = None
    worst_case: bool = False
    forced: bool = False
    lockstep: Lockstep | None = None
    cores: tuple[int, ...] = ()
    paced: bool = False
    silence_s: float = 60.0
    large_fake: bool = False
    ahead: bool = False

    @property
    def traits(self) -> DoorTraits:
        """What follows from the door."""
        return traits_of(self.door)


class RunTrial(Message, frozen=True, kw_only=True):
    """Run one size.

    Attributes:
        precision: relative half-width of the median's interval at which timing stops.
        min_sample_s: shorter steps are averaged in groups.
        min_time_s: timing goes on for at least so long.
        brief: the script has few steps to give.
        time_limit_s: timing stops after this long once it has the fewest samples.
        deadline_s: the whole trial ends after this long, with what it has by then.
    """

    request: TrialRequest
    ordinal: int
    precision: float
    min_sample_s: float = 0.0
    min_time_s: float = 0.0
    brief: bool = False
    time_limit_s: float
    deadline_s: float | None = None


class RunPairs(Message, frozen=True, kw_only=True):
    """Run steps with and without gradient synchronisation in turn.

    Attributes:
        time_limit_s: no further pair after this long.
    """

    batch_size: int
    time_limit_s: float


class RunOrders(Message, frozen=True, kw_only=True):
    """Make steps on the same samples as they are drawn and in batches of like length, in turn.

    Attributes:
        batch_size: of each batch.
        num_batches: of each order, at most.
        time_limit_s: no further step after this long.
    """

    batch_size: int
    num_batches: int
    time_limit_s: float


class RunLoss(Message, frozen=True, kw_only=True):
    """Make the steps that show how the loss reduces a batch; only `RunFake` can follow.

    Attributes:
        batch_size: of the batch that is halved.
        time_limit_s: no further step after this long.
    """

    batch_size: int
    time_limit_s: float


class RunRecorded(Message, frozen=True, kw_only=True):
    """Make some steps and have torch record the memory of the last, on CUDA.

    Attributes:
        path: of the snapshot that it leaves.
    """

    batch_size: int
    path: str


class RunFake(Message, frozen=True, kw_only=True):
    """Make steps on fake tensors; only such orders can follow.

    Attributes:
        variant: what is changed of them.
    """

    batch_size: int
    variant: Variant


class GoOn(Message, frozen=True):
    """To a process that the script started and that trained nothing: end as you would alone."""


# worker to supervisor ------------------------------------------------------------------------


class Ready(Message, frozen=True):
    """Everything is imported; the order is awaited."""


class Hello(Message, frozen=True, kw_only=True):
    """torch is imported, the script starts now."""

    versions: Versions


class Found(Message, frozen=True, kw_only=True):
    """The training loop is known and waits at a step boundary.

    Attributes:
        in_use: empty on other devices than GPUs.
    """

    discovery: Discovery
    device: DeviceInfo
    parallelism: Parallelism | None = None
    in_use: tuple[GpuInUse, ...] = ()


class Spawning(Message, frozen=True, kw_only=True):
    """The script is about to start ranks; a WorkOrder with their way to us is awaited.

    Attributes:
        own_rank: which of them this process is; `None` where it only waits for them.
    """

    world_size: int
    own_rank: int | None = None


class PairsResult(Message, frozen=True, kw_only=True):
    """The paired steps are made."""

    pairs: RankPairs


class FakeResult(Message, frozen=True, kw_only=True):
    """The steps on fake tensors are made, or cannot be for this reason.

    Attributes:
        requests: of memory, in the last step: bytes for a tensor that began to live, those that
            lived before first; -n for the end of the n-th of them, counted from 1.
        blocks: see `Estimate`.
        change: what the variant changed, `24 Linear`; empty if there is nothing to say.
    """

    trial: FakeTrial | None = None
    requests: tuple[int, ...] = ()
    blocks: str = ""
    change: str = ""
    reason: str = ""


class OrdersResult(Message, frozen=True, kw_only=True):
    """The steps in both orders are made, or cannot be."""

    orders: OrderTrial


class RecordedResult(Message, frozen=True, kw_only=True):
    """A step was recorded, or was not for this reason."""

    reason: str = ""


class LossResult(Message, frozen=True, kw_only=True):
    """The steps on a batch and on its halves are made, or cannot be."""

    check: LossCheck


class Progress(Message, frozen=True, kw_only=True):
    """A sign of life.

    Attributes:
        timed_until_s: `time.monotonic()` when the timed steps ended, the device waited for; with
            the first message after them. All processes of a machine share that clock.
    """

    phase: Phase
    batch_size: int | None = None
    num_steps: int = 0
    step_s: float | None = None
    timed_until_s: float | None = None


class StepSample(msgspec.Struct, frozen=True, kw_only=True):
    """One timed step as `Trial.step_s` means it; where several were timed together, their mean.

    Attributes:
        lost_s: seconds that it lost to something outside the script; 0 for a clean step.
        delay_s, stolen_s, throttled_s, switches, thread_s, process_s, stops: what was counted
            meanwhile; see windows/step_evidence.py.
    """

    step_s: float
    input_wait_s: float
    num_samples: int
    lost_s: float | None = None
    delay_s: float | None = None
    stolen_s: float | None = None
    throttled_s: float | None = None
    switches: float | None = None
    thread_s: float | None = None
    process_s: float | None = None
    stops: float | None = None


class Result(Message, frozen=True, kw_only=True):
    """A trial is complete."""

    trial: Trial
    steps: tuple[StepSample, ...] = ()


class Raised(Message, frozen=True, kw_only=True):
    """The script raised; it is over.

    Attributes:
        traceback: the script's own, without our frames.
        out_of_memory: whether the exception means that memory was refused.
        peak_bytes: the most that the process had on the device by then, if it can be told.
        empty: a loader that was to feed the training and gave it no batch.
    """

    kind: str
    text: str
    traceback: str
    out_of_memory: bool
    num_steps: int = 0
    peak_bytes: int | None = None
    empty: LoaderInfo | None = None


class Ended(Message, frozen=True, kw_only=True):
    """The script finished by itself.

    Attributes:
        exit_code: of its `SystemExit`, 0 without one.
        num_steps: optimizer steps seen in all.
        num_fetches: batches fetched with gradients enabled.
        empty: a loader that was to feed the training and gave it no batch.
    """

    exit_code: int
    num_steps: int
    num_fetches: int
    num_loaders: int
    empty: LoaderInfo | None = None


class CannotSteer(Message, frozen=True, kw_only=True):
    """Steps or batches were seen, but not in a way that can be steered.

    Attributes:
        usage: an option asked for what the script does not have.
        door: the one that would serve this script; its command is the remedy.
    """

    reason: str
    remedy: str
    usage: bool = False
    door: Door | None = None


class Touched(Message, frozen=True, kw_only=True):
    """Files that the script opened for writing since the last message of this kind."""

    files: tuple[FileTouched, ...]


FromWorker = (
    Ready
    | Hello
    | Found
    | Spawning
    | Progress
    | Result
    | PairsResult
    | LossResult
    | OrdersResult
    | FakeResult
    | RecordedResult
    | Raised
    | Ended
    | CannotSteer
    | Touched
)
ToWorker = WorkOrder | RunTrial | RunPairs | RunLoss | RunOrders | RunRecorded | RunFake | GoOn


_from_worker: msgspec.json.Decoder[FromWorker] = msgspec.json.Decoder(FromWorker)
_to_worker: msgspec.json.Decoder[ToWorker] = msgspec.json.Decoder(ToWorker)


def decode_from_worker(line: bytes) -> FromWorker | None:
    """The message in a line, or `None` when the line is not one of ours."""
    try:
        return _from_worker.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def decode_to_worker(line: bytes) -> ToWorker:
    """The message in a line from the supervisor."""
    return _to_worker.decode(line)
