"""What a process of the script does otherwise, and what is asked of it and answered, as data."""

from __future__ import annotations

from typing import Literal

import msgspec

from ...records import Record, SourceLine

LOADER_FIELDS = ("num_workers", "prefetch_factor", "persistent_workers", "pin_memory")
"""Settings that are arguments of the loader."""


POOL_BATCHES = 50
"""Batches whose samples are sorted by length together: what is drawn at random stays so."""


class Settings(Record, frozen=True, kw_only=True):
    """Changes to the script in one process; at the defaults it runs as it is written.

    Attributes:
        num_workers, prefetch_factor, persistent_workers, pin_memory: of the loader that is
            steered; `None` leaves them.
        widen: threads and data workers may use all cores that the process began with.
        autocast: the type, as torch names it; float16 comes with a scaler of the loss.
        tf32, benchmark: torch's settings for matrix products and for convolutions on CUDA.
        channels_last: the layout of the model's parameters and of its images.
        compile: mode of torch.compile.
        optimizer: the implementation that optimizers take.
        threads: of torch, for one operator.
        order: batch size for which samples are grouped by length; 0 leaves their order.
        checkpoint: repeated blocks compute their activations again in the backward pass.
        variables: of the environment.
    """

    num_workers: int | None = None
    prefetch_factor: int | None = None
    persistent_workers: bool | None = None
    pin_memory: bool | None = None
    widen: bool = False
    autocast: Literal["", "bfloat16", "float16"] = ""
    tf32: bool = False
    benchmark: bool = False
    channels_last: bool = False
    compile: Literal["", "default", "reduce-overhead"] = ""
    optimizer: Literal["", "fused", "foreach"] = ""
    threads: int | None = None
    order: int = 0
    checkpoint: bool = False
    variables: tuple[tuple[str, str], ...] = ()

    @property
    def changes(self) -> dict[str, object]:
        """The fields that are not at their defaults."""
        default = Settings()
        return {
            name: getattr(self, name)
            for name in self.__struct_fields__
            if getattr(self, name) != getattr(default, name)
        }

    def and_(self, other: Settings) -> Settings:
        """Both changes; they must not exclude each other."""
        both = {**self.changes, **other.changes, "variables": self.variables + other.variables}
        return msgspec.structs.replace(self, **both)


class Joining(Record, frozen=True, kw_only=True):
    """What the part inside the script is told as it begins.

    Attributes:
        loader: where the loader that is steered is made, and its number.
    """

    settings: Settings
    place: SourceLine | None
    ordinal: int


# Questions between two steps.


class Begin(Record, frozen=True, kw_only=True, tag=True):
    """Put in force what needs a model that is there; from now on losses and gradients are kept."""


class Facts(Record, frozen=True, kw_only=True, tag=True):
    """Say what the script uses.

    Attributes:
        batch_size: at which remedies are tried.
    """

    batch_size: int


class Drain(Record, frozen=True, kw_only=True, tag=True):
    """Read from the loader alone, with each of these numbers of workers.

    Attributes:
        limit_s: for each number.
        restarted: this number of workers is started several times as well, anew and persistent; 0
            for none.
    """

    num_workers: tuple[int, ...]
    batch_size: int
    limit_s: float
    restarted: int = 0


class Watched(Record, frozen=True, kw_only=True, tag=True):
    """Say what was kept of losses and gradients."""


Question = Begin | Facts | Drain | Watched


# Answers.


class UsedAlready(Record, frozen=True, kw_only=True):
    """What the script does as it is written, seen in its process.

    Attributes:
        device: torch's name of its type.
        num_workers, prefetch_factor, persistent_workers, pin_memory: of the steered loader.
        autocast: types under which its modules were called, in words; empty without autocast.
        optimizer_classes: what its optimizers are, as torch names them.
        optimizers: implementations that its optimizers use: `fused`, `foreach`, `single`.
        can_fuse, can_foreach: whether its optimizers have that implementation for its device.
        num_optimizer_places: lines of the script at which optimizers were made.
        optimizer_share: of a step that the optimizer takes, 0..1; `None` where it was not timed.
        num_convolutions: of two or three dimensions, in modules that train.
        layout_by_hand: `to(memory_format=...)` would fail: a module that the loop calls has a `to`
            of its own, or holds weights of more than four dimensions.
        blocks: repeated blocks, `12 Block`; empty without any.
        by_order: padded length squared over that of samples grouped by length; `None` without any.
        why_no_order: why there is nothing to group.
        drops: whether it drops activations at random.
        modules: classes of the modules that the loop calls.
        call_place, backward_place, optimizer_place, loader_place: the first line of each.
        lines: the text of these lines by what they are: `call`, `backward`, `optimizer`, `loader`.
        threads, num_cores: torch's threads for an operator, and cores that this process may use.
        cores_at_start: before the script narrowed them.
    """

    device: str
    num_workers: int
    prefetch_factor: int | None
    persistent_workers: bool
    pin_memory: bool
    autocast: str
    compiled: bool
    optimizer_classes: tuple[str, ...]
    optimizers: tuple[str, ...]
    can_fuse: bool
    can_foreach: bool
    optimizer_share: float | None
    num_convolutions: int
    channels_last: bool
    layout_by_hand: bool
    tf32: bool
    benchmark: bool
    checkpoints: bool
    expandable: bool
    blocks: str
    by_order: float | None
    why_no_order: str
    drops: bool
    threads: int
    num_cores: int
    cores_at_start: int
    modules: tuple[str, ...]
    call_place: SourceLine | None
    backward_place: SourceLine | None
    optimizer_place: SourceLine | None
    loader_place: SourceLine | None
    lines: dict[str, str]
    num_optimizer_places: int = 1


class Step(Record, frozen=True, kw_only=True):
    """One batch that was trained on while losses and gradients were kept.

    Attributes:
        digest: of its tensors, by which two processes know the same batch again.
        loss: as it went into the backward pass; `None` where none was seen.
        gradients: some elements of them all, as float32; empty where no optimizer stepped.
        begun: what needs a model was in force.
    """

    digest: int
    loss: float | None
    gradients: bytes = b""
    begun: bool = False


class Kept(Record, frozen=True, kw_only=True):
    """What a process kept of its numbers.

    Attributes:
        last_loss: of the last step that was made; `None` where none was seen.
        num_skipped: optimizer steps that the scaler left out, of `num_scaled`.
        breaks: where torch.compile could not go on, and why.
        compiled: frames that it compiled.
    """

    steps: tuple[Step, ...]
    last_loss: float | None
    num_skipped: int = 0
    num_scaled: int = 0
    breaks: tuple[str, ...] = ()
    compiled: int | None = None
