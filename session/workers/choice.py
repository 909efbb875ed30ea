"""Which kind of worker a run has."""

from __future__ import annotations

from ...probes.distributed.rank_group import RankGroup
from ..display import Display
from ..recording.record_writer import RecordWriter
from ..setup.options import RunOptions
from ..setup.target import Target
from .live_workers import LocalWorkers
from .template_workers import TemplateWorkers
from .worker_pool import WorkerPool


def workers_for(
    options: RunOptions,
    target: Target,
    writer: RecordWriter,
    display: Display,
    group: RankGroup | None = None,
) -> WorkerPool:
    """The processes behind the door that was asked for."""
    kind = TemplateWorkers if options.traits.process_per_size else WorkerPool
    if options.traits.in_this_process:
        kind = LocalWorkers
    return kind(options, target, writer, display, group=group)
