"""Messages of a worker to its supervisor: JSON lines over an inherited pipe. Orders: orders.py.

Ranks under supervisors of their own answer with the same messages over TCP.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from ...records import (
    DeviceInfo,
    Discovery,
    Door,
    FakeTrial,
    FileTouched,
    LivedBefore,
    LoaderInfo,
    OpWork,
    Parallelism,
    RankPairs,
    Trial,
    Versions,
)
from ..devices.gpu_in_use import GpuInUse

Phase = Literal[
    "starting", "discovering", "warming up", "timing", "counting", "profiling", "fitting"
]


class Message(msgspec.Struct, frozen=True, tag=True):
    """Base of all messages."""


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
    """The paired steps are made, on each of these ranks."""

    ranks: tuple[RankPairs, ...]


class FakeResult(Message, frozen=True, kw_only=True):
    """The steps on fake tensors are made, or cannot be for this reason.

    Attributes:
        requests: of memory, in the last step: bytes for a tensor that began to live, those that
            lived before first; -n for the end of the n-th of them, counted from 1.
        lived: what lived before it.
        eager: CUDA would load all kernels at its start, in this process; see `forecast`.
        blocks: see `Estimate`.
        change: what the variant changed, `24 Linear`; empty if there is nothing to say.
        evaluation_bytes: the most that lived at once between two epochs; 0 where no batch came.
        evaluated: the batch that was fed last then, in words.
        work: operations of the last step; empty where nobody counts them.
        no_work: why they are not known.
    """

    trial: FakeTrial | None = None
    requests: tuple[int, ...] = ()
    lived: LivedBefore = LivedBefore()
    eager: bool = False
    work: tuple[OpWork, ...] = ()
    no_work: str = ""
    blocks: str = ""
    change: str = ""
    evaluation_bytes: int = 0
    evaluated: str = ""
    reason: str = ""


class RecordedResult(Message, frozen=True, kw_only=True):
    """A step was recorded, or was not for this reason."""

    reason: str = ""


class Answered(Message, frozen=True, kw_only=True):
    """What the guest of this process said, or why it could not."""

    text: str = ""
    reason: str = ""


class Progress(Message, frozen=True, kw_only=True):
    """A sign of life.

    Attributes:
        timed_until_s: `time.monotonic()` when the timed steps ended, the device waited for; then
            it says nothing else. All processes of a machine share that clock.
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
        delay_s, stolen_s, throttled_s, switches, thread_s, process_s, stops, outside_s,
            faults, collected_s, collections: what was counted meanwhile; see
            windows/step_evidence.py.
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
    outside_s: float | None = None
    faults: float | None = None
    collected_s: float = 0.0
    collections: float = 0


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
        just_past_epoch: its loader had just gone on beyond `len(loader)` batches, or as many as
            several epochs have.
        is_new_size: no step had been made at the size that was asked of that loader.
        is_altered: whether the script had got what it does not get alone: batches, which may be
            cut, or parameters without contents.
        largest_tensor: shape of the largest tensor that the frames of the exception held.
        aside: the loader whose batch was worked on, if not one that is steered.
        without_loader: no DataLoader was made by then, and no Keras was there to feed it.
    """

    kind: str
    text: str
    traceback: str
    out_of_memory: bool
    num_steps: int = 0
    peak_bytes: int | None = None
    empty: LoaderInfo | None = None
    just_past_epoch: bool = False
    is_new_size: bool = False
    is_altered: bool = False
    largest_tensor: tuple[int, ...] = ()
    aside: str = ""
    without_loader: bool = False


class Ended(Message, frozen=True, kw_only=True):
    """The script finished by itself.

    Attributes:
        exit_code: of its `SystemExit`, 0 without one.
        num_steps: optimizer steps seen in all.
        num_fetches: batches fetched with gradients enabled.
        empty: a loader that was to feed the training and gave it no batch.
        left: the loader that it went on to, in words; empty where it is over.
    """

    exit_code: int
    num_steps: int
    num_fetches: int
    num_loaders: int
    empty: LoaderInfo | None = None
    left: str = ""


class CannotSteer(Message, frozen=True, kw_only=True):
    """Steps or batches were seen, but not in a way that can be steered.

    Attributes:
        usage: an option asked for what the script does not have.
        door: the one that would serve this script; its command is the remedy.
        whole: what is said where every step trained on the same tensors; empty where not.
        repeated: what every step trained on, in a clause; empty where that differs.
        unwritten: the call that leaves the batch size to a library's default; empty without one.
        settings, files: settings files that the script opened, and files of the user's code, as a
            person would type them; where another door may serve.
    """

    reason: str
    remedy: str
    usage: bool = False
    door: Door | None = None
    whole: str = ""
    repeated: str = ""
    unwritten: str = ""
    settings: tuple[str, ...] = ()
    files: tuple[str, ...] = ()


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
    | FakeResult
    | RecordedResult
    | Answered
    | Raised
    | Ended
    | CannotSteer
    | Touched
)


_from_worker: msgspec.json.Decoder[FromWorker] = msgspec.json.Decoder(FromWorker)


def decode_from_worker(line: bytes) -> FromWorker | None:
    """The message in a line, or `None` when the line is not one of ours."""
    try:
        return _from_worker.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
