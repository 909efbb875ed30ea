"""Ranks that the script starts itself as programs: Lightning's launcher, and whoever does so.

The script is one rank, or none, and starts the others with `subprocess` and an environment that
names their rank. Such a program finds the hook of `start_hook/` in its PYTHONPATH; the hook
replaces it by `main` of started_program.py, which runs the same script, steered, in that process.
"""

from __future__ import annotations

import functools
import inspect
import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from ..process.channel import Channel
from ..process.messages import Spawning
from ..process.orders import Lockstep, WorkOrder, decode_to_worker
from .ranks import detect_rank
from .start_hook import sitecustomize as hook

PLAN = "ranks.json"


def steer_programs(
    channel: Channel,
    order: WorkOrder,
    in_loop: Callable[[], bool],
    join: Callable[[Lockstep], None],
) -> None:
    """From now on, ranks that this process starts through subprocess are steered.

    Args:
        channel: to the supervisor, who is asked for the way to the coordinator.
        order: of this process.
        in_loop: whether this process is in its training loop already; then nothing is taken over.
        join: told where this process itself is one of the ranks.
    """
    starter = _Starter(channel, order, in_loop, join)
    native = subprocess.Popen.__init__
    signature = inspect.signature(native)

    @functools.wraps(native)
    def init(self: Any, *args: Any, **named: Any) -> None:
        try:
            bound = signature.bind(self, *args, **named)
        except TypeError:  # the native one says it best
            native(self, *args, **named)
            return
        environment = bound.arguments.get("env")
        if environment is not None:
            bound.arguments["env"] = starter.environment_of(environment)
        native(*bound.args, **bound.kwargs)

    subprocess.Popen.__init__ = init  # type: ignore[method-assign]


def rank_named(environment: Mapping[str, str]) -> tuple[int, int] | None:
    """Rank and world size that an environment gives to a program, `None` if it is no rank.

    Lightning names the local rank and the node instead of the rank.
    """
    rank = detect_rank(environment, several=True)
    if rank is not None:
        return rank.rank, rank.world_size
    if environment.get("NODE_RANK", "0") != "0" or "LOCAL_RANK" not in environment:
        return None
    local = detect_rank({**environment, "RANK": environment["LOCAL_RANK"]}, several=True)
    return None if local is None else (local.rank, local.world_size)


class _Starter:
    """Decides which programs are ranks, and asks the supervisor once how to steer them."""

    def __init__(
        self,
        channel: Channel,
        order: WorkOrder,
        in_loop: Callable[[], bool],
        join: Callable[[Lockstep], None],
    ) -> None:
        self._channel = channel
        self._order = order
        self._in_loop = in_loop
        self._join = join
        self._pid = os.getpid()
        self._world_size = 0
        self._started: set[int] = set()

    def environment_of(self, environment: Any) -> Any:
        """The environment for a program: with the hook if it is a rank, else as it is."""
        try:
            named = rank_named({str(key): str(value) for key, value in environment.items()})
        except (AttributeError, TypeError):
            return environment
        own = rank_named(os.environ)
        if named is None or (own is not None and own[0] == named[0]):
            return environment
        if os.getpid() != self._pid or named[0] in self._started:
            return environment
        if not self._world_size and not self._prepare(named, own):
            return environment
        if named[1] != self._world_size:
            return environment
        self._started.add(named[0])
        path = [os.path.dirname(os.path.abspath(hook.__file__))]  # noqa: PTH100, PTH120
        path += [environment["PYTHONPATH"]] if environment.get("PYTHONPATH") else []
        return {
            **environment,
            hook.STEERED_RANK: f"{named[0]}:{self._plan}",
            "PYTHONPATH": os.pathsep.join(path),
        }

    def _prepare(self, first: tuple[int, int], own: tuple[int, int] | None) -> bool:
        """Asks for the plan; a process that starts other ranks than 0 is rank 0 itself."""
        if self._in_loop():
            return False
        rank, world_size = first
        number = own[0] if own is not None else (0 if rank != 0 else None)
        self._channel.send(Spawning(world_size=world_size, own_rank=number))
        plan = decode_to_worker(self._channel.receive_line() or b"")
        assert isinstance(plan, WorkOrder)
        assert plan.lockstep is not None
        self._plan = Path(self._order.scratch_folder) / f"{self._pid}-{PLAN}"
        descriptor = os.open(self._plan, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(msgspec.json.encode(plan))
        if number is not None:
            self._started.add(number)
            self._join(msgspec.structs.replace(plan.lockstep, rank=number))
        self._world_size = world_size
        return True
