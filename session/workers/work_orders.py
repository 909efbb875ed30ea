"""Makes orders of a worker: the options of the run and the device, in the worker's terms."""

from __future__ import annotations

from pathlib import Path

from ...probes.process.orders import WorkOrder
from ..setup.options import RunOptions
from ..setup.target import Target


def work_order(
    options: RunOptions,
    target: Target,
    number: int,
    *,
    run_folder: Path,
    scratch_folder: Path,
    batch_cap: int | None,
) -> WorkOrder:
    """The order of one worker.

    Args:
        number: of the worker in its run, from 0.
        batch_cap: batches before discovery are cut to this size.
    """
    return WorkOrder(
        script=options.script,
        arguments=options.arguments,
        module=options.module,
        worker=number,
        device=target.device,
        memory_limit_bytes=options.memory_limit_bytes,
        data_limit_bytes=target.data_limit_bytes,
        run_folder=str(run_folder),
        scratch_folder=str(scratch_folder),
        loader=options.loader,
        batch_cap=batch_cap,
        profile_schedule=options.profile_schedule,
        with_stack=options.with_stack,
        door=options.door,
        worst_case=options.goal.worst_case,
        cores=target.cores,
        paced=target.share < 1,
        silence_s=options.silence_s,
    )
