"""The options of one device's own run, made of those of all."""

from __future__ import annotations

from pathlib import Path

import msgspec

from ..setup.device_choice import Device
from ..setup.options import DEFAULT_SCHEDULE, RunOptions
from ..setup.options_as_typed import options_as_typed

OF_ALL = ("--gpus", "--device", "--output", "--json")
"""What was typed for all devices, and is otherwise for each."""
UNCHECKED = (
    *("--sizes", "--start", "--max-batch", "--budget", "--profile-schedule"),
    *("--keep-effective-batch", "--stacks", "--no-profile"),
)
"""The user's options that a check of twins does not take: it runs one size, for a short time."""
CHECK_S = 30.0
"""A check takes no longer, whatever the budget."""


def device_options(
    options: RunOptions,
    device: Device,
    output: Path,
    *,
    memory_limit_bytes: int | None = None,
    check_size: int | None = None,
    budget_s: float | None = None,
) -> RunOptions:
    """The options of one device's own run, with a command that would start it.

    Args:
        options: of all.
        memory_limit_bytes: the device's part of a memory that several share.
        check_size: the only size, of a check of twins: measured for a short time.
        budget_s: the device's part of a budget that several phases share.

    >>> options = RunOptions(
    ...     script="a.py",
    ...     command=("batchadvisor", "run", "--gpus", "all", "-q", "--start", "8", "a.py"),
    ... )
    >>> gpu = Device(name="cuda-0", option="cuda:0", model="T4")
    >>> " ".join(device_options(options, gpu, Path("out/cuda-0")).command)
    'batchadvisor run -q --start 8 --json --device cuda:0 -o out/cuda-0 a.py'
    >>> check = device_options(options, gpu, Path("out/check"), check_size=32, budget_s=5.0)
    >>> " ".join(check.command[2:8])
    '-q --sizes 32 --no-profile --budget 5s'
    """
    words = options.script_words
    own: list[str] = []
    if check_size is not None:
        own += ["--sizes", str(check_size), "--no-profile"]
        options = _for_a_check(options, check_size)
    if budget_s is not None:
        own += ["--budget", f"{round(budget_s, 1):g}s"]
        options = msgspec.structs.replace(
            options, goal=msgspec.structs.replace(options.goal, budget_s=budget_s)
        )
    own += ["--json", "--device", device.option, "-o", str(output)]
    if memory_limit_bytes is not None:
        own += ["--memory-limit", str(memory_limit_bytes)]
        options = msgspec.structs.replace(options, memory_limit_bytes=memory_limit_bytes)
    leave_out = (*OF_ALL, *UNCHECKED) if check_size is not None else OF_ALL
    leave_out = leave_out if budget_s is None else (*leave_out, "--budget")
    typed = options_as_typed(options.command, len(words), leave_out=leave_out)
    return msgspec.structs.replace(
        options,
        device=device.option,
        gpus=None,
        output=output,
        as_json=True,
        command=("batchadvisor", "run", *typed, *own, *words),
    )


def _for_a_check(options: RunOptions, size: int) -> RunOptions:
    goal = msgspec.structs.replace(
        options.goal,
        sizes=(size,),
        start=None,
        max_batch=None,
        keep_effective_batch=False,
        profile=False,
    )
    return msgspec.structs.replace(
        options, goal=goal, profile_schedule=DEFAULT_SCHEDULE, with_stack=False
    )
