"""Orders of the supervisor to its worker: JSON lines over an inherited pipe."""

from __future__ import annotations

from typing import Generic, TypeVar, get_args

import msgspec

from ...records import Door, DoorTraits, TrialRequest, Variant, traits_of
from ..source.named_size import SizePlace
from ..source.replaced import Replacement
from .messages import Answered, FakeResult, Message, PairsResult, RecordedResult, Result

AnswerT = TypeVar("AnswerT", bound=Message)


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


class Guest(msgspec.Struct, frozen=True, kw_only=True):
    """A module that joins the script in its process: `begin(argument)` is called before it starts,
    and `answer(question, context)` when the supervisor asks.

    Attributes:
        module: its whole name; a feature's, which nothing here imports otherwise.
        argument: what `begin` gets.
    """

    module: str
    argument: str


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
        place: that sets the size, where it was found in the script and not typed.
        forced: the template was insisted on, whatever could be steered.
        lockstep: where the script is one rank of several.
        cores: the cores that it may use; empty for all.
        paced: it is stopped and continued, for a share of the time.
        silence_s: after so long without a sign of life it is taken for hung.
        only_fakes: only steps on fake tensors are made, so that any loader will do.
        ends_epochs: loaders end their epochs where the script expects it.
        large_fake: parameters of a large model are fake, and so is all that is done with them.
        replacements: numbers that the user's source is compiled with; the files stay as they are.
        made: folders that the script made in an earlier process of the run.
        guest: a module that joins the script.
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
    place: SizePlace | None = None
    worst_case: bool = False
    forced: bool = False
    lockstep: Lockstep | None = None
    cores: tuple[int, ...] = ()
    paced: bool = False
    silence_s: float = 60.0
    large_fake: bool = False
    only_fakes: bool = False
    ends_epochs: bool = False
    replacements: tuple[Replacement, ...] = ()
    made: tuple[str, ...] = ()
    guest: Guest | None = None
    ahead: bool = False

    @property
    def traits(self) -> DoorTraits:
        """Traits of the door."""
        return traits_of(self.door)


class Order(Message, Generic[AnswerT], frozen=True):
    """What a worker is asked, once its training loop is known; each kind has its kind of answer."""

    @classmethod
    def answer(cls) -> type[AnswerT]:
        """The message that answers it."""
        (base,) = cls.__orig_bases__  # type: ignore[attr-defined]
        kind: type[AnswerT] = get_args(base)[0]
        return kind

    def is_answered_by(self, message: Message) -> bool:
        """Whether a message is the answer to this very order."""
        return isinstance(message, self.answer())


class RunTrial(Order[Result], frozen=True, kw_only=True):
    """Run one size.

    Attributes:
        precision: relative half-width of the median's interval at which timing stops.
        min_sample_s: shorter steps are averaged in groups.
        min_time_s: timing goes on for at least so long.
        brief: the script has few steps to give.
        time_limit_s: timing stops after this long once it has the fewest samples.
        deadline_s: the whole trial ends after this long, with what it has by then.
        left_out: why nothing but time and memory is measured; empty where all is.
    """

    request: TrialRequest
    ordinal: int
    precision: float
    min_sample_s: float = 0.0
    min_time_s: float = 0.0
    brief: bool = False
    time_limit_s: float
    deadline_s: float | None = None
    left_out: str = ""

    def is_answered_by(self, message: Message) -> bool:
        """An order that was interrupted may still be answered when the next one was given."""
        return isinstance(message, Result) and message.trial.ordinal == self.ordinal


class RunPairs(Order[PairsResult], frozen=True, kw_only=True):
    """Run steps with and without gradient synchronisation in turn.

    Attributes:
        time_limit_s: no further pair after this long.
    """

    batch_size: int
    time_limit_s: float


class RunRecorded(Order[RecordedResult], frozen=True, kw_only=True):
    """Make some steps and have torch record the memory of the last, on CUDA.

    Attributes:
        path: of the snapshot that it leaves.
    """

    batch_size: int
    path: str


class RunFake(Order[FakeResult], frozen=True, kw_only=True):
    """Make steps on fake tensors; only such orders can follow.

    Attributes:
        variant: what is changed of them.
        for_gpu: the tensors stand for those of a GPU.
        evaluation: what the script does between two epochs follows; it is the last order.
    """

    batch_size: int
    variant: Variant
    for_gpu: bool
    evaluation: bool = False


class Ask(Order[Answered], frozen=True, kw_only=True):
    """A question to the guest of a process, between two steps; see `Guest`."""

    question: str


class GoOn(Message, frozen=True):
    """Tells a process that the script started and that trained nothing to end as it would alone."""


ToWorker = WorkOrder | RunTrial | RunPairs | RunRecorded | RunFake | Ask | GoOn
_to_worker: msgspec.json.Decoder[ToWorker] = msgspec.json.Decoder(ToWorker)


def decode_to_worker(line: bytes) -> ToWorker:
    """The message in a line from the supervisor."""
    return _to_worker.decode(line)
