"""The script: its loaders, optimizers, lines, and the files it touched."""

from __future__ import annotations

from typing import Literal

from .base import Count, Record
from .doors import Door, DoorTraits, traits_of
from .entered import Entered
from .orders import BatchOrder

SizeAxis = Literal["samples", "tokens", "frames", "seconds"]
"""Unit of a size: the samples of a batch, or what its sequences may hold together."""


class SourceLine(Record, frozen=True, kw_only=True):
    """A place in the user's code."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


class OtherPlace(Record, frozen=True, kw_only=True):
    """A place that sets the same setting to a number, which may be another one."""

    place: SourceLine
    number: int


class BatchSizeSource(Record, frozen=True, kw_only=True):
    """Where the batch size is written down, so that the advice can name the line to change.

    Attributes:
        place: the line; `None` where a framework alone reads what was typed on the command line.
        before: the text that sets the size, `batch_size=16`.
        template: the same with `{}` in place of the number; empty if the place is only known
            roughly.
        option: the command-line option that sets it, `--batch-size`, if there is one; it ends in
            `=` where the value follows at once, `train.batch_size=`.
        others: further places of the same setting, in files that the script merges; with the same
            number any of them may be the one in use.
    """

    place: SourceLine | None
    before: str
    template: str = ""
    option: str | None = None
    others: tuple[OtherPlace, ...] = ()


class Following(Record, frozen=True, kw_only=True):
    """A number of the script's configuration that changes in proportion to the batch size.

    Attributes:
        name: what it is called, `train_batch_size`.
        number: as the script is written.
        source: where it is written; without a template it has the name of the size itself.
        is_shared: it is the script's own name for the size: of a batch that ranks share.
    """

    name: str
    number: Count
    source: BatchSizeSource | None = None
    is_shared: bool = False


class LoaderInfo(Record, frozen=True, kw_only=True):
    """A DataLoader that the script made, or what stands for it where another door is used.

    Attributes:
        ordinal: in the order of creation, from 0; `--loader N` takes it.
        batch_size: what the script asked for; `None` when the dataset batches itself.
        num_samples: what one epoch draws from the sampler; `None` if it has no length.
        dataset_samples: samples of the data set itself, over all ranks; `None` if unknown.
        sampler_drop_last: of a distributed sampler.
        even_batches, split_batches: of Accelerate's shards; `None` without them.
        dispatch_batches: whether Accelerate's main process reads the batches of all ranks; `None`
            without Accelerate.
        num_drawn: batches of a pass of the script's own batch sampler, where they are fewer than
            its length says; that is a bound then.
        steered: `exact` (sizes are ours), `approximate` (a batch sampler's grouping is lost),
            `no: reason`; behind another door how the size gets in.
        axis: what the sizes of this loader count: samples, or a budget that bounds the sequences
            of a batch. All sizes of a record are on the axis of its steered loader.
        parameter: what the script calls that budget; empty where only its rule is known.
        num_units: of the axis, in all samples together; `None` if unknown, or where samples are
            counted.
        longest: sample, in units of the axis; `None` as above.
        persistent_workers: its processes live on from epoch to epoch.
        start_s: seconds from asking for its first iterator to the first batch, of the script's own
            size; `None` where it was not seen.
    """

    ordinal: int
    place: SourceLine | None
    batch_size: int | None
    num_samples: int | None
    drop_last: bool
    num_workers: int
    sampler: str
    iterable: bool
    steered: str
    trains: bool = False
    source: BatchSizeSource | None = None
    dataset_samples: int | None = None
    sampler_drop_last: bool = False
    even_batches: bool | None = None
    split_batches: bool | None = None
    dispatch_batches: bool | None = None
    axis: SizeAxis = "samples"
    parameter: str = ""
    num_units: int | None = None
    longest: int | None = None
    num_drawn: int | None = None
    persistent_workers: bool = False
    start_s: float | None = None

    @property
    def size_name(self) -> str:
        """The script's name for the size, as far as it is known."""
        if self.axis == "samples":
            return "batch_size"
        return self.parameter or f"{self.axis} per batch"

    def named(self, size: int | str) -> str:
        """A size as people say it: `batch 32`, `max_tokens=512`, `512 tokens per batch`."""
        if self.axis == "samples":
            return f"batch {size}"
        return f"{self.parameter}={size}" if self.parameter else f"{size} {self.axis} per batch"


class OptimizerInfo(Record, frozen=True, kw_only=True):
    """An optimizer that the script made."""

    ordinal: int
    place: SourceLine | None
    name: str
    learning_rate: float | None
    num_parameters: int | None
    trains: bool = False


class NormLayers(Record, frozen=True, kw_only=True):
    """Normalisation layers in training mode in the model, counted by kind.

    Attributes:
        batch_norm_values: values per channel that one sample gives to the BatchNorm or
            SyncBatchNorm layer that gets the fewest, as seen in a step; `None` if not seen.
        group_norm_values: the same per group, of GroupNorm.
        instance_norm_values: the same per channel, of InstanceNorm.
    """

    batch_norm: int = 0
    sync_batch_norm: int = 0
    group_norm: int = 0
    instance_norm: int = 0
    layer_norm: int = 0
    batch_norm_values: int | None = None
    group_norm_values: int | None = None
    instance_norm_values: int | None = None


class CoreMasks(Record, frozen=True, kw_only=True):
    """How many cores the script's threads and data workers may run on.

    Attributes:
        at_start: of the process, before anything of the script was imported.
        in_loop: of the thread that trains.
        in_workers: of all data workers together.
        variables: set in the environment, by which a library binds threads when it is imported.
    """

    at_start: int
    in_loop: int
    num_workers: int
    in_workers: int
    variables: tuple[str, ...] = ()


class Discovery(Record, frozen=True, kw_only=True):
    """What steering found in the running script.

    Attributes:
        primary_loader: ordinal of the loader whose size is steered; others keep their ratio.
        native_batch_size: size of a micro-batch as the script is written: samples, or the budget
            of a loader with another axis.
        micro_batches: batches per optimizer step (gradient accumulation).
        steps_per_batch: optimizer steps per batch, where each batch is stepped on more than once;
            `micro_batches` is 1 then.
        pool: how many such steps a cycle of the loop has: it fetches a pool of batches before it
            steps on the first, or an optimizer steps with each batch and another with every fifth.
            Sizes change between cycles.
        parameter_device: where the optimizer's parameters live, as torch names it.
        setup_s: from process start to the end of the second optimizer step.
        native_step_s: the last native step, all steps on a batch together, a first guess of the
            cost (not settled); `None` if none was timed.
        num_ranks: ranks of the script's process group, 1 without one.
        num_replicas: devices that DataParallel scatters each batch to, 1 without it.
        following: numbers that have to change with the size.
        leaves_out: how the training loop itself leaves out a batch that is shorter than the size,
            in words; empty where nothing shows that it does.
        accumulation: where the micro-batches of a step are written, if a place holds that number.
        compiled: whether a module of this process went through torch.compile.
        door: how the sizes reach the script; behind all but `loader` there is one LoaderInfo, of
            what yields the batches, and `native_batch_size` is the size of the first process.
        precision: of the parameters, as torch names it: `float32`; empty where nobody looked.
            Autocast is not seen.
        cores: `None` where the system does not tell, or nobody looked.
        order_options: what the frameworks that the script uses call other orders of its samples:
            the order, and what to set.
        entered: what one of the script's own steps trained on, where the size gets in as an
            argument; `None` where nothing shows it.
        unavailable: why something is not known: `own_size`, where `native_batch_size` is only that
            of the first process; `norm_values` for example; under `worst_case`, why
            trials could not begin with the longest samples; under `optimizer_steps`, why nobody
            can tell how many there are for a batch; `micro_batches` are those that the script
            fetched before it stepped then; under `epoch`, why its length is not believed.
    """

    loaders: tuple[LoaderInfo, ...]
    optimizers: tuple[OptimizerInfo, ...]
    primary_loader: int
    native_batch_size: Count
    micro_batches: Count
    parameter_device: str
    num_parameters: int | None
    norm_layers: NormLayers | None
    setup_s: float
    native_step_s: float | None
    door: Door = "loader"
    num_ranks: Count = 1
    num_replicas: Count = 1
    compiled: bool = False
    steps_per_batch: Count = 1
    pool: Count = 1
    precision: str = ""
    accumulation: BatchSizeSource | None = None
    cores: CoreMasks | None = None
    following: tuple[Following, ...] = ()
    leaves_out: str = ""
    order_options: tuple[tuple[BatchOrder, str], ...] = ()
    entered: Entered | None = None
    unavailable: dict[str, str] = {}

    def __post_init__(self) -> None:
        if all(loader.ordinal != self.primary_loader for loader in self.loaders):
            msg = f"loader {self.primary_loader}, which is steered, is not among the loaders"
            raise ValueError(msg)

    @property
    def traits(self) -> DoorTraits:
        """Traits of the door."""
        return traits_of(self.door)

    @property
    def primary(self) -> LoaderInfo:
        """The loader whose size is steered."""
        return next(loader for loader in self.loaders if loader.ordinal == self.primary_loader)

    @property
    def axis(self) -> SizeAxis:
        """The unit of the sizes."""
        return self.primary.axis

    @property
    def shared(self) -> Following | None:
        """The script's own name and number for the size, where it is of a batch that ranks share;
        else `None`."""
        return next((each for each in self.following if each.is_shared), None)

    @property
    def effective_batch(self) -> int:
        """Samples per optimizer step and rank, as the script is written."""
        return self.native_batch_size * self.micro_batches

    @property
    def why_own_unknown(self) -> str:
        """Why nobody knows the script's size as it is written; empty where it is known."""
        return self.unavailable.get("own_size", "")

    @property
    def why_steps_unknown(self) -> str:
        """Why nobody can tell the optimizer steps per batch; empty where they are known."""
        return self.unavailable.get("optimizer_steps", "")

    @property
    def why_epoch_unknown(self) -> str:
        """Why the length of the data set is not believed; empty where it is, or there is none."""
        return self.unavailable.get("epoch", "")


class ScriptInfo(Record, frozen=True, kw_only=True):
    """The command that was probed.

    Attributes:
        digest: of the script's text (SHA-256, its first 16 hexadecimal digits), by which a run is
            known again from another folder; `None` where the text is not at hand.
    """

    path: str
    arguments: tuple[str, ...] = ()
    digest: str | None = None


class FileTouched(Record, frozen=True, kw_only=True):
    """A file or folder that the script itself opened for writing, made, renamed or removed.

    Attributes:
        listed: only a listing of the working folder before and after shows the change; the
            script's databases and child processes make such, and so may other programs.
    """

    path: str
    action: Literal["write", "mkdir", "rename", "remove", "save (not written)"]
    listed: bool = False
