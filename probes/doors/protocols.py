"""The interface between a door and the trial runner."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from ...records import Discovery, InputSize, LengthChoice, SourceLine
from ...records import Door as DoorName
from ..devices.device_probe import DeviceProbe
from ..loader.batch_size_reader import BatchSizeReader
from ..loader.loader_handle import LoaderHandle
from ..loader.token_meter import TokenMeter
from .caught_errors import CaughtErrors
from .script_watch import ScriptWatch

Aside = Callable[[], AbstractContextManager[None]]
"""Makes the context in which a batch is fetched."""
BatchSubstitute = Callable[[Any, int | None, BatchSizeReader], Any]
"""A batch, its samples and what knows where it carries them, to what the script gets instead."""


class Evaluation(Protocol):
    """Takes the batches that come between two epochs of training."""

    @property
    def is_enough(self) -> bool:
        """Whether it needs no more of them."""

    def take(self, batch: Any, words: str) -> Any:
        """The script gets what this returns.

        Args:
            words: the batch, and where its loader was made.
        """

    def over(self) -> None:
        """No more of them come."""


@dataclass(frozen=True, kw_only=True)
class FoundLoop:
    """A training loop whose batches have our sizes from now on.

    Attributes:
        device: that the script trains on.
        probe: reads that device, where another than torch's own for it is needed.
        no_input: why waiting for data cannot be seen; empty where it can.
        no_profile: why no trace would say anything; empty where it would.
        num_ahead: steps that the script makes with batches it took before a size was asked for.
    """

    discovery: Discovery
    device: torch.device
    probe: DeviceProbe | None = None
    no_input: str = ""
    no_profile: str = ""
    num_ahead: int = 0

    @property
    def num_queued(self) -> int:
        """Batches ahead of their steps where there are several; the steps before those that count
        take one."""
        return self.num_ahead if self.num_ahead > 1 else 0


class PassingBatches(Protocol):
    """The batches of a loader, which pass through a door on their way to the script."""

    @property
    def meter(self) -> TokenMeter:
        """Is told of them."""

    def are_all_ready(self) -> bool:
        """Whether workers have made every one that the loader may hold; not where nothing tells."""

    def inputs(self) -> InputSize | None:
        """How those of the trial that ends now varied; `None` where nothing tells."""

    def replace_batches(self, substitute: BatchSubstitute, aside: Aside) -> None:
        """The script gets what `substitute` makes of each batch.

        Args:
            aside: what fetches from loaders run in.
        """

    def end_epoch(self, evaluation: Evaluation) -> None:
        """The fetch that waits finds its epoch over."""


class Door(Protocol):
    """One way to get steps of a given size out of the user's script."""

    def report_to(self, listener: StepListener) -> None:
        """From now on this listener hears what the script does; called once, before it runs."""

    def ask(self, batch_size: int, length: LengthChoice = "") -> None:
        """A trial of this size begins: the next step that starts has it.

        Args:
            length: the samples to begin with, of doors that choose samples.
        """

    def resize(self, batch_size: int) -> None:
        """Changes the size inside a trial whose sizes take turns."""

    @property
    def batches(self) -> PassingBatches | None:
        """The batches, where they pass through the door; `None` where they come from elsewhere."""

    def parameters(self) -> list[torch.Tensor]:
        """Parameters that the optimizers train."""


class ScriptDoor(Door, Protocol):
    """A door to a script in this process; `worker/patches.py` tells it what the script does."""

    @property
    def watch(self) -> ScriptWatch:
        """The watch that is told of the loaders and optimizers that the script makes."""

    @property
    def in_control(self) -> bool:
        """Whether the training loop was found, so that what the script does is ours."""

    def stepped(self, optimizer: Any) -> None:
        """An optimizer of torch made a step."""

    def next_batch(
        self, handle: LoaderHandle, iterator: Any, native_next: Callable[[Any], Any]
    ) -> Any:
        """The script fetches from a loader; returns what it gets.

        Raises:
            StopIteration: its epoch is over.
        """


class StepListener(Protocol):
    """Who decides at step boundaries; see worker/trial_runner.py."""

    def discovering(self, num_steps: int) -> None:
        """A cycle of the script's own size ended."""

    def found(self, loop: FoundLoop) -> None:
        """The training loop is known; from here on its sizes are ours."""

    def arrived(self, num_samples: int | None, proof: str, wait_s: float, *, primary: bool) -> None:
        """A batch went to the script.

        Args:
            num_samples: in it; `None` where that cannot be told.
            proof: how that is known.
            wait_s: seconds that the script waited for it.
            primary: its size is the one that was asked for.
        """

    def boundary(self, num_steps: int = 1) -> None:
        """An optimizer step is complete, and the next one waits until this returns.

        Args:
            num_steps: made since the boundary before; several where a pool of batches was fetched,
                or where each batch is stepped on more than once. 0: no rhythm was found in them.
        """

    def epoch_began(self) -> None:
        """The script begins another epoch: what it did since its last step belongs to no step."""

    def stepped_elsewhere(self) -> None:
        """An optimizer stepped on a batch of another loader, whose size is the script's own."""

    def left(self, other: SourceLine | None, num_steps: int) -> None:
        """The script trains on batches of another loader, whose sizes are not ours.

        Args:
            other: where it was made.
            num_steps: optimizer steps before that.
        """

    def no_step(self, num_fetches: int, caught_errors: CaughtErrors) -> None:
        """The loop took `num_fetches` batches of the asked size, and no optimizer stepped.

        Args:
            caught_errors: what the script caught meanwhile and kept to itself.
        """

    def cannot_steer(
        self,
        reason: str,
        remedy: str,
        *,
        usage: bool = False,
        door: DoorName | None = None,
        whole: str = "",
        repeated: str = "",
    ) -> None:
        """No sizes can be asked of this script through this door.

        Args:
            usage: the command line is at fault.
            door: another one that may do.
            whole: what is said where every step trained on the same tensors.
            repeated: what every step trained on, in a clause; empty where that differs.
        """
