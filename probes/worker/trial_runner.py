"""Runs what the supervisor asks for inside the script's loop, one task after the other.

Lives in the worker. The script waits inside its own `next(loader)` while we talk.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ...records import Door as DoorName
from ...records import FileTouched, Parallelism, SourceLine
from ..devices.core_masks import core_masks
from ..devices.device_probe import DeviceProbe
from ..devices.gpus_in_use import devices_of, gpus_in_use
from ..devices.outside import Outside
from ..devices.split_model import probe_of_model
from ..doors.caught_errors import CaughtErrors
from ..doors.protocols import Door, FoundLoop
from ..process.channel import Channel
from ..process.messages import CannotSteer, Ended, Found, Progress
from ..process.orders import (
    Ask,
    Lockstep,
    RunFake,
    RunPairs,
    RunRecorded,
    RunTrial,
    WorkOrder,
)
from ..source.call_site import user_files
from ..source.unwritten import unwritten_size
from .fake_task import FakeTask, Kept
from .guest import GuestTask
from .kept_steps import KeptSteps
from .pair_task import PairTask
from .parallelism import recognise
from .record_task import RecordTask
from .supervisor_line import SupervisorLine, wait_for_the_end
from .task import Boundary, Task, TaskContext
from .trial_task import TrialTask

if TYPE_CHECKING:
    from ..distributed.lockstep import Agreement
    from ..fake_step.fake_steps import FakeSteps


class TrialRunner:
    """Listens to a door, and carries out the tasks of one worker.

    Args:
        channel: to the supervisor.
        order: what the supervisor asked of this worker.
        door: is asked for sizes, and tells of steps.
        touched: takes the files that the script opened since it was last asked.
        device_known: told of the kind of device that the script trains on.
        settings: gives the settings files that the script opened so far.
    """

    def __init__(
        self,
        channel: Channel,
        order: WorkOrder,
        door: Door,
        *,
        touched: Callable[[], tuple[FileTouched, ...]],
        device_known: Callable[[str], None] = lambda _: None,
        settings: Callable[[], tuple[tuple[Path, str], ...]] = tuple,
    ) -> None:
        self._line = SupervisorLine(channel, order.silence_s, touched)
        self._order = order
        self._door = door
        self._device_known = device_known
        self._settings = settings
        self._loop: FoundLoop | None = None
        self._device: DeviceProbe | None = None
        self._agreement: Agreement | None = None
        self._task: Task | None = None
        self._fake_steps: FakeSteps | None = None
        self._kept: list[Kept] = []
        self._kept_steps = KeptSteps()
        self._ours = (os.getppid(),)  # all that the supervisor started
        self._outside = Outside(self._ours)
        self._num_batches = 0
        self._largest_so_far = 0
        door.report_to(self)

    @property
    def has_loop(self) -> bool:
        """Whether the training loop is found."""
        return self._loop is not None

    def join(self, lockstep: Lockstep) -> None:
        """From here on this process is one rank of several."""
        self._order = msgspec.structs.replace(self._order, lockstep=lockstep)

    def next_task(self) -> None:
        """Waits for the next order that has steps to make, and begins it."""
        while True:
            self._task = self._task_for(self._line.receive())
            if self._task.begin():
                return

    # told by the door ------------------------------------------------------------------------

    def discovering(self, num_steps: int) -> None:
        """See `StepListener`."""
        self._line.send(Progress(phase="discovering", num_steps=num_steps))

    def found(self, loop: FoundLoop) -> None:
        """The training loop is known; from here on it is ours."""
        parallelism = recognise(self._door.parameters())
        limit, in_use = self._order.memory_limit_bytes, gpus_in_use()
        names = devices_of(loop.device, parallelism.devices, in_use)
        self._loop = loop
        self._device = loop.probe or probe_of_model(loop.device, names, limit)
        if not self._fits_the_job(parallelism):
            return
        discovery = msgspec.structs.replace(
            loop.discovery,
            num_ranks=parallelism.world_size or 1,
            num_replicas=max(loop.discovery.num_replicas, len(parallelism.replicas)),
            cores=core_masks(),
        )
        info = self._device.info()
        self._line.send_files()
        self._line.send(
            Found(discovery=discovery, device=info, parallelism=parallelism, in_use=in_use)
        )
        self._device_known(info.kind)
        self.next_task()

    def arrived(self, num_samples: int | None, proof: str, wait_s: float, *, primary: bool) -> None:
        """See `StepListener`."""
        self._num_batches += primary
        if self._task is not None:
            self._task.arrived(num_samples, proof, wait_s, primary=primary)

    def boundary(self, num_steps: int = 1) -> None:
        """An optimizer step is complete and the script fetches the next batch."""
        boundary = Boundary(self._num_batches, num_steps)
        self._num_batches = 0
        if self._task is not None and self._task.boundary(boundary):
            self.next_task()

    def epoch_began(self) -> None:
        """See `StepListener`."""
        self._num_batches = 0
        if isinstance(self._task, TrialTask):
            self._task.epoch_began()

    def stepped_elsewhere(self) -> None:
        """See `StepListener`."""
        if self._task is not None:
            self._task.stepped_elsewhere()

    def left(self, other: SourceLine | None, num_steps: int) -> None:
        """See `StepListener`: what there is to measure is over."""
        self._line.send(
            Ended(
                exit_code=0,
                num_steps=num_steps,
                num_fetches=num_steps,
                num_loaders=2,
                left="another loader" if other is None else f"the loader at {other}",
            )
        )
        wait_for_the_end()

    def no_step(self, num_fetches: int, caught_errors: CaughtErrors) -> None:
        """Batches of the asked size flow and no optimizer steps."""
        assert self._task is not None  # a door asks for a size only on behalf of a task
        self._task.no_step(num_fetches, caught_errors)

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
        """Nothing here can be steered; the supervisor ends this process."""
        files = user_files() if door is not None else ()
        settings = tuple(shown for _, shown in self._settings()) if door is not None else ()
        self._line.send(
            CannotSteer(
                reason=reason,
                remedy=remedy,
                usage=usage,
                door=door,
                whole=whole,
                repeated=repeated,
                unwritten=unwritten_size(sys.modules.values()) if door is not None else "",
                settings=settings,
                files=files,
            )
        )
        wait_for_the_end()

    # inside ----------------------------------------------------------------------------------

    def _task_for(self, message: RunTrial | RunPairs | RunRecorded | RunFake | Ask) -> Task:
        context = self._context()
        if isinstance(message, RunPairs):
            return PairTask(message, context)
        if isinstance(message, RunRecorded):
            return RecordTask(message, context)
        if isinstance(message, Ask):
            return GuestTask(message, context)
        if isinstance(message, RunFake):
            fakes = self._fakes(for_gpu=message.for_gpu)
            return FakeTask(message, context, fakes, self._kept)
        assert isinstance(message, RunTrial)
        size, largest = message.request.batch_size, self._largest_so_far
        self._largest_so_far = max(largest, size)
        return TrialTask(message, context, self._kept_steps, shrinks=size < largest)

    def _fakes(self, *, for_gpu: bool) -> FakeSteps:
        if self._fake_steps is None:
            from ..fake_step.cuda_forms import use_cuda_forms
            from ..fake_step.fake_steps import FakeSteps
            from ..fake_step.model_tree import beside

            use_cuda_forms(on_fakes=for_gpu)
            trained = list(self._door.parameters())
            self._fake_steps = FakeSteps(trained, for_gpu=for_gpu, beside=beside(trained))
        return self._fake_steps

    def _context(self) -> TaskContext:
        assert self._loop is not None
        assert self._device is not None
        if self._order.lockstep is not None and self._agreement is None:
            from ..distributed.lockstep import Agreement

            self._agreement = Agreement(self._order.lockstep)
        return TaskContext(
            order=self._order,
            door=self._door,
            loop=self._loop,
            device=self._device,
            line=self._line,
            outside=self._outside,
            ours=self._ours,
            rank=None if self._order.lockstep is None else self._order.lockstep.rank,
            agree=bool if self._agreement is None else self._agreement.agree,
            meeting=self._agreement,
        )

    def _fits_the_job(self, parallelism: Parallelism) -> bool:
        lockstep, world = self._order.lockstep, parallelism.world_size
        started = 1 if lockstep is None else lockstep.world_size
        if world is None or world == started:
            return True
        if lockstep is None:
            self.cannot_steer(
                f"this is one of {world} ranks, and the others were started past batchadvisor",
                f"let it start them: batchadvisor run --nproc-per-node {world} SCRIPT.",
            )
            return False
        self.cannot_steer(
            f"the script's process group has {world} ranks and the launcher started "
            f"{lockstep.world_size}",
            "let the script take its world size from the launcher.",
        )
        return False
