"""The script in this process, steered: in our worker, or in a rank that the script started."""

from __future__ import annotations

import builtins
import contextlib
import ctypes
import functools
import importlib
import os
import runpy
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from .messages import CannotSteer, Channel, Ended, Raised, Touched, WorkOrder

_PR_SET_PDEATHSIG = 1
_PRCTL = getattr(ctypes.CDLL(None), "prctl", None)
"""Looked up once: between fork and exec the loader's lock may be another thread's."""


def steer(
    order: WorkOrder,
    channel: Channel,
    started_s: float,
    run: Callable[[Any], None],
    *,
    may_go_on: bool = False,
) -> None:
    """Runs the script in this process, steered, until the supervisor ends it.

    Args:
        run: the script, given what goes between it and torch.
        may_go_on: returns where the supervisor lets go of a process that trained nothing.
    """
    from .conductor import Conductor
    from .devices import lift_process_memory_limit
    from .effects import FileWatch
    from .keras_fit import KerasDoor
    from .patches import install

    files = FileWatch(ignore=(order.run_folder + os.sep, order.scratch_folder + os.sep))
    conductor = Conductor(channel, order, files.take)
    steering = _steering(conductor, order, started_s)
    conductor.ask = steering.ask
    conductor.resize = steering.resize
    conductor.parameters = steering.parameters
    hold, conductor.device_known = _limits(order)
    install(steering, files.saved, hold)
    no_ranks: Callable[[], bool] = bool
    if order.door == "loader" and order.lockstep is None:
        from .distributed.programs import steer_programs
        from .distributed.spawned import steer_spawned

        steer_programs(channel, order, lambda: conductor.has_loop, conductor.join)
        no_ranks = steer_spawned(channel, lambda: conductor.has_loop)
    keras = KerasDoor(conductor, steering, order, started_s)
    keras.install()
    files.install()

    message: Raised | Ended | CannotSteer
    try:
        run(steering)
        message = _ended(0, steering)
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 0 if error.code is None else 1
        if isinstance(error.code, str):
            print(error.code, file=sys.stderr)  # noqa: T201  as Python itself does
        message = _ended(code, steering)
    except BaseException as error:  # noqa: BLE001
        lift_process_memory_limit()
        message = _raised(error, steering)
    if is_idle(message) and not may_go_on:
        message = _without_fit() if keras.imported else message
        message = _without_ranks() if no_ranks() else message
    _say(channel, message, files.take())
    if may_go_on and is_idle(message) and channel.receive_line() is not None:
        return
    # The supervisor ends the process group, so that no exit hook of the script runs.
    while True:
        time.sleep(3600)


def is_idle(message: object) -> bool:
    """Whether these are the last words of a process that ended well and trained nothing."""
    return isinstance(message, Ended) and not (message.exit_code or message.num_steps)


def _say(channel: Channel, message: Raised | Ended | CannotSteer, touched: Any) -> None:
    """The last words of a script that is over, and the files it touched."""
    _flush_streams()
    if touched:
        channel.send(Touched(files=touched))
    channel.send(message)


def _steering(conductor: Any, order: WorkOrder, started_s: float) -> Any:
    """What goes between the script and torch, by the door that was asked for."""
    if order.door == "template":
        from .template import TemplateSteering

        return TemplateSteering(conductor, order, started_s)
    if order.door == "workload":
        from .workload import WorkloadSteering

        return WorkloadSteering(conductor, order, started_s)
    from .steering import Steering

    steering = Steering(
        conductor,
        loader=order.loader,
        batch_cap=order.batch_cap,
        arguments=order.arguments,
        started_s=started_s,
    )
    steering.worst_case = order.worst_case
    conductor.inputs = steering.inputs
    conductor.replace = functools.partial(setattr, steering, "handed")
    return steering


def become_the_script(order: WorkOrder) -> None:
    """sys.argv and sys.path[0] as `python script.py` would set them; its cores, if it has few."""
    from .call_site import start_here

    start_here()
    if order.cores:
        os.sched_setaffinity(0, order.cores)  # before torch counts them for its threads
    if order.module:
        sys.argv = [order.script, *order.arguments]
        sys.path.insert(0, os.getcwd())  # noqa: PTH109
    else:
        sys.argv = [order.script, *order.arguments]
        sys.path.insert(0, str(Path(order.script).resolve().parent))


def import_ahead() -> None:
    """Imports what `steer` will need, torch above all; nothing is patched and no device asked.

    And sympy, which the first optimizer imports. The rest of what it imports, torch._dynamo, reads
    its settings then, and a script may set them first.
    """
    from . import conductor, devices, effects, keras_fit, patches, steering, versions  # noqa: F401
    from .distributed import programs, spawned  # noqa: F401

    with contextlib.suppress(ImportError):
        importlib.import_module("sympy")


def run_script(order: WorkOrder, steering: Any) -> None:
    """Runs what the order names as `__main__`."""
    if order.door == "workload":
        steering.run()
        return
    if order.module:
        runpy.run_module(order.script, run_name="__main__", alter_sys=True)
        return
    _run_file(order.script)


def _run_file(script: str) -> None:
    """Runs a file as plain python does; spawned data workers import `__main__` from it.

    Not through runpy: its `__file__` is the path as typed, which names nothing after a change of
    directory, and python's is absolute, beside a `sys.argv[0]` as typed.
    """
    path = script
    with contextlib.suppress(OSError):  # the working folder is gone
        path = os.path.abspath(path)  # noqa: PTH100  links stay as the user named them
    code = compile(Path(path).read_bytes(), path, "exec", dont_inherit=True)
    module = ModuleType("__main__")
    module.__dict__.update(__file__=path, __builtins__=builtins, __cached__=None)
    sys.modules["__main__"] = module
    exec(code, module.__dict__)


def _ended(code: int, steering: Any) -> Ended:
    return Ended(
        exit_code=code,
        num_steps=steering.num_steps,
        num_fetches=steering.num_fetches,
        num_loaders=steering.num_loaders,
        empty=steering.empty,
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


def _raised(error: BaseException, steering: Any) -> Raised:
    from .faults import is_out_of_memory, memory_is_short, raised_by_us, script_traceback

    refused = is_out_of_memory(error, short=memory_is_short())

    if raised_by_us(error):
        import traceback

        return Raised(
            kind="batchadvisor",
            text=f"{type(error).__name__}: {error}",
            traceback="".join(traceback.format_exception(error)),
            out_of_memory=refused,
            num_steps=steering.num_steps,
        )
    text = script_traceback(error)
    print(text, file=sys.stderr, end="")  # noqa: T201  into the script's own log
    return Raised(
        kind=type(error).__name__,
        text=str(error),
        traceback=text,
        out_of_memory=refused,
        num_steps=steering.num_steps,
        peak_bytes=_peak_bytes(),
        empty=steering.empty,
    )


def _peak_bytes() -> int | None:
    """The most that this process had on the GPU where it has most, else in memory."""
    import torch

    from .gpus_in_use import indices_in_use
    from .host import status_bytes

    peaks = [int(torch.cuda.max_memory_reserved(one)) for one in indices_in_use()]
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


def _limits(order: WorkOrder) -> tuple[Callable[[], None], Callable[[str], None]]:
    """Holds the process to its memory: what holds it on GPUs, and what to tell of its device."""
    from .devices import limit_process_memory
    from .gpus_in_use import MemoryLimit, indices_in_use

    data_bytes, allowed_bytes = order.data_limit_bytes, order.memory_limit_bytes
    at_once = data_bytes is not None and not _has_accelerator(order)
    if at_once and data_bytes is not None:
        limit_process_memory(data_bytes)
    hold: Callable[[], None] = lambda: None  # noqa: E731
    if allowed_bytes is not None:
        hold = MemoryLimit(allowed_bytes).hold

    def device_known(kind: str) -> None:
        hold()
        if kind == "cpu" and not at_once and data_bytes is not None and not indices_in_use():
            limit_process_memory(data_bytes)  # a GPU is there, and the script trains without

    return hold, device_known


def die_with_parent(by: int = signal.SIGKILL) -> None:
    """If the process that started us is killed, so are we, by this signal (Linux)."""
    if _PRCTL is not None:
        _PRCTL(_PR_SET_PDEATHSIG, by)


def _flush_streams() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
