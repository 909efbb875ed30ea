"""The script in this process, steered: in our worker, or in a rank that the script started."""

from __future__ import annotations

import builtins
import contextlib
import ctypes
import importlib
import os
import runpy
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ..devices.core_masks import start_on
from ..process.channel import Channel
from ..process.messages import CannotSteer, Ended, Raised, Touched
from ..process.orders import WorkOrder
from ..source.replaced import compiled, put_in_force

if TYPE_CHECKING:
    from ..doors.keras import KerasDoor
    from ..doors.protocols import ScriptDoor
    from ..doors.script_watch import ScriptWatch
    from ..source.replaced import Replacement
    from .trial_runner import TrialRunner

_PR_SET_PDEATHSIG = 1
_PRCTL = getattr(ctypes.CDLL(None), "prctl", None)
"""Looked up once: between fork and exec another thread may hold the loader's lock."""


def steer(
    order: WorkOrder,
    channel: Channel,
    started_s: float,
    run: Callable[[ScriptDoor], None],
    *,
    look_for_ranks: Callable[[TrialRunner], Callable[[], bool]] | None = None,
    may_go_on: bool = False,
) -> None:
    """Runs the script in this process, steered, until the supervisor ends it.

    Args:
        run: the script, given the door that torch's hooks tell of it.
        look_for_ranks: sees to it that ranks which the script starts are steered; gives what says
            whether it wanted ranks and started none.
        may_go_on: returns where the supervisor lets go of a process that trained nothing.
    """
    from ..devices.torch_devices import lift_process_memory_limit
    from ..process.faults import refusal_in
    from . import guest
    from .file_effects import FileWatch
    from .made_folders import may_be_made_again
    from .patches import install
    from .supervisor_line import wait_for_the_end
    from .trial_runner import TrialRunner

    files = FileWatch(ignore=(order.run_folder + os.sep, order.scratch_folder + os.sep))
    door, keras = _door_for(order, started_s)
    hold, device_known, has_room = _limits(order)
    runner = TrialRunner(
        channel,
        order,
        door,
        touched=files.take,
        device_known=device_known,
        settings=files.settings,
    )
    install(door, files.saved, hold)
    no_ranks = bool if look_for_ranks is None else look_for_ranks(runner)
    if keras is not None:
        keras.install()
    door.watch.settings = files.settings
    files.install()
    may_be_made_again(order.made)
    guest.begin(order)

    def by_keras() -> bool:
        return keras is not None and keras.imported

    message: Raised | Ended | CannotSteer
    try:
        run(door)
        message = _ended(0, door.watch)
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 0 if error.code is None else 1
        if isinstance(error.code, str):
            print(error.code, file=sys.stderr)  # noqa: T201  as Python itself does
        refusal = refusal_in(error) if code else None  # caught, and given up
        if refusal is not None:
            lift_process_memory_limit()
        message = (
            _ended(code, door.watch)
            if refusal is None
            else _raised(refusal, door.watch, by_keras=by_keras())
        )
    except BaseException as error:  # noqa: BLE001
        lift_process_memory_limit()
        starved = not has_room and _is_foreign(error, order)
        message = _raised(
            error,
            door.watch,
            starved=starved,
            large_fake=order.large_fake,
            by_keras=by_keras(),
        )
        if message.out_of_memory:
            from .record_task import dump_at_refusal

            dump_at_refusal(order.run_folder, order.worker)
    if is_idle(message) and not may_go_on:
        message = _without_fit() if by_keras() else message
        message = _without_ranks() if no_ranks() else message
    _say(channel, message, files.take())
    if may_go_on and is_idle(message) and channel.receive_line() is not None:
        return
    wait_for_the_end()  # with the process group, so that no exit hook of the script runs


def is_idle(message: object) -> bool:
    """Whether these are the last words of a process that ended well and trained nothing."""
    return isinstance(message, Ended) and not (message.exit_code or message.num_steps)


def _say(channel: Channel, message: Raised | Ended | CannotSteer, touched: Any) -> None:
    """The last words of a script that is over, and the files it touched."""
    _flush_streams()
    if touched:
        channel.send(Touched(files=touched))
    channel.send(message)


def _door_for(order: WorkOrder, started_s: float) -> tuple[ScriptDoor, KerasDoor | None]:
    """The door that was asked for, and the part of it that waits for Keras, where one does."""
    from ..doors.script_watch import ScriptWatch

    if order.traits.size_is_argument:
        from ..doors.template import TemplateDoor

        return TemplateDoor(ScriptWatch(order.arguments), order, started_s), None
    if order.traits.declares_workload:
        from ..doors.workload import WorkloadDoor

        return WorkloadDoor(ScriptWatch(order.arguments), order, started_s), None
    from ..doors.keras import KerasDoor
    from ..doors.loader import LoaderDoor
    from ..doors.loader_or_keras import LoaderOrKerasDoor

    watch = ScriptWatch(
        order.arguments,
        batch_cap=order.batch_cap,
        worst_case=order.worst_case,
        ends_epochs=order.ends_epochs,
    )
    loader = LoaderDoor(
        watch,
        loader=order.loader,
        worst_case=order.worst_case,
        only_fakes=order.only_fakes,
        started_s=started_s,
    )
    keras = KerasDoor(watch, order, started_s)
    return LoaderOrKerasDoor(loader, keras), keras


def become_the_script(order: WorkOrder) -> None:
    """sys.argv and sys.path[0] as `python script.py` would set them; its cores, if it has few.

    And torch, with as many threads as where the script imports it.
    """
    from ..source.call_site import start_here
    from ..source.thread_variables import as_at_the_import

    start_here()
    if order.cores:
        start_on(order.cores)  # before torch counts them for its threads
    if order.module:
        sys.argv = [order.script, *order.arguments]
        sys.path.insert(0, os.getcwd())  # noqa: PTH109
    else:
        sys.argv = [order.script, *order.arguments]
        sys.path.insert(0, str(Path(order.script).resolve().parent))
    file = Path(*order.script.split(".")).with_suffix(".py") if order.module else order.script
    with as_at_the_import(Path(file)):
        importlib.import_module("torch")


def run_script(order: WorkOrder, door: ScriptDoor) -> None:
    """Runs what the order names as `__main__`."""
    if order.traits.declares_workload:
        from ..doors.workload import WorkloadDoor

        assert isinstance(door, WorkloadDoor)
        door.run()
        return
    put_in_force(order.replacements, order.scratch_folder)
    if order.module:
        runpy.run_module(order.script, run_name="__main__", alter_sys=True)
        return
    _run_file(order.script, order.replacements)


def _run_file(script: str, replacements: Sequence[Replacement]) -> None:
    """Runs a file as plain python does; spawned data workers import `__main__` from it.

    Not through runpy: its `__file__` is the path as typed, which names nothing after a change of
    directory, and python's is absolute, beside a `sys.argv[0]` as typed.
    """
    path = script
    with contextlib.suppress(OSError):  # the working folder is gone
        path = os.path.abspath(path)  # noqa: PTH100  links stay as the user named them
    code = compiled(path, replacements)
    module = ModuleType("__main__")
    module.__dict__.update(__file__=path, __builtins__=builtins, __cached__=None)
    sys.modules["__main__"] = module
    exec(code, module.__dict__)


def _ended(code: int, watch: ScriptWatch) -> Ended:
    return Ended(
        exit_code=code,
        num_steps=watch.num_steps,
        num_fetches=watch.num_fetches,
        num_loaders=watch.num_loaders,
        empty=watch.empty,
    )


def _without_fit() -> CannotSteer:
    return CannotSteer(
        reason="the script imports Keras, and ended without a call of Model.fit",
        remedy="let it call fit; a loop of its own goes through a declared workload (--workload).",
    )


def _without_ranks() -> CannotSteer:
    import torch

    why = "" if torch.cuda.device_count() else ", and no GPU is visible"
    return CannotSteer(
        reason="the script asks torch.multiprocessing for 0 ranks (nprocs=0), and trains in no "
        f"other way{why}",
        remedy="let it start at least one rank: on the CPU with gloo, or where GPUs are visible.",
    )


def _is_foreign(error: BaseException, order: WorkOrder) -> bool:
    """Whether a library raised it, and not the script."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    return Path(frame.f_code.co_filename).resolve() != Path(order.script).resolve()


def _raised(
    error: BaseException,
    watch: ScriptWatch,
    *,
    starved: bool = False,
    large_fake: bool = False,
    by_keras: bool = False,
) -> Raised:
    """The script's exception, as its last words.

    Args:
        starved: a library raised it, and there was no memory from the start: refusals take any
            shape there, such as an import that finds no source text.
        large_fake: see `WorkOrder`.
        by_keras: the script imported Keras, which may feed itself.
    """
    from ..process.faults import (
        largest_tensor,
        memory_is_short,
        raised_by_us,
        refusal_in,
        script_traceback,
    )

    refusal = refusal_in(error, short=memory_is_short())
    refused = refusal is not None or (
        starved and isinstance(error, Exception) and watch.num_steps == 0
    )

    if raised_by_us(error):
        text = "".join(traceback.format_exception(error))
        print(text, file=sys.stderr, end="")  # noqa: T201
        return Raised(
            kind="batchadvisor",
            text=f"{type(error).__name__}: {error}",
            traceback=text,
            out_of_memory=refused,
            num_steps=watch.num_steps,
        )
    text = script_traceback(error)
    print(text, file=sys.stderr, end="")  # noqa: T201  into the script's own log
    return Raised(
        kind=type(refusal or error).__name__,
        text=str(refusal or error),
        traceback=text,
        out_of_memory=refused,
        num_steps=watch.num_steps,
        peak_bytes=_peak_bytes(),
        empty=watch.empty,
        just_past_epoch=watch.just_past_epoch,
        is_new_size=watch.is_new_size,
        is_altered=watch.gave_batches or (large_fake and _has_fake_parameters()),
        largest_tensor=() if refused else largest_tensor(error),
        aside="" if watch.aside is None else watch.aside.called(),
        without_loader=not watch.num_loaders and not by_keras,
    )


def _has_fake_parameters() -> bool:
    from ..fake_step.large_parameters import LargeParameters

    return LargeParameters.was_used()


def _peak_bytes() -> int | None:
    """The most that this process had on the GPU where it has most, else in memory."""
    import torch

    from ..devices.gpus_in_use import indices_in_use
    from ..devices.host import status_bytes

    peaks = [int(torch.cuda.max_memory_reserved(index)) for index in indices_in_use()]
    return max(peaks) if peaks else status_bytes("VmHWM")


def _has_accelerator(order: WorkOrder) -> bool:
    """Drivers of accelerators map far more than they use; the kernel's limit would hit them.

    Where GPUs are known to be there torch is not asked: that would start CUDA before the script
    forks.
    """
    import torch

    if order.device == "cpu":
        return False
    accelerator = getattr(torch, "accelerator", None)
    return order.device != "auto" or (accelerator is not None and accelerator.is_available())


def _limits(order: WorkOrder) -> tuple[Callable[[], None], Callable[[str], None], bool]:
    """Holds the process to its memory.

    Returns:
        What holds it on GPUs, what to tell of its device, and whether there is room for a script.
    """
    from ..devices.gpus_in_use import MemoryLimit, indices_in_use
    from ..devices.torch_devices import limit_process_memory

    data_bytes, allowed_bytes = order.data_limit_bytes, order.memory_limit_bytes
    at_once = data_bytes is not None and not _has_accelerator(order)
    has_room = True
    if at_once and data_bytes is not None:
        has_room = limit_process_memory(data_bytes)
    hold: Callable[[], None] = lambda: None  # noqa: E731
    if allowed_bytes is not None:
        hold = MemoryLimit(allowed_bytes).hold

    def device_known(kind: str) -> None:
        hold()
        if kind == "cpu" and not at_once and data_bytes is not None and not indices_in_use():
            limit_process_memory(data_bytes)  # a GPU is there, and the script trains without

    return hold, device_known, has_room


def die_with_parent(by: int = signal.SIGKILL) -> None:
    """If the process that started us is killed, so are we, by this signal (Linux)."""
    if _PRCTL is not None:
        _PRCTL(_PR_SET_PDEATHSIG, by)


def _flush_streams() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
