"""Which kind of worker a run has."""

from __future__ import annotations

from typing import Any

from ...probes.distributed.rank_group import RankGroup
from ...probes.process.worker_like import WorkerLike
from ..display import Display
from ..recording.record_writer import RecordWriter
from ..setup.options import RunOptions
from ..setup.target import Target
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


class LocalWorkers(WorkerPool):
    """Makes `LocalWorker` objects; a fresh one forgets the step of the one before."""

    may_stand_by = False

    def spawn(self, **changes: Any) -> WorkerLike:
        from ...probes.worker.live import LocalWorker

        number = self._writer.record.num_workers_started
        self._writer.change(num_workers_started=number + 1)
        live = self._options.live
        assert live is not None
        worker = LocalWorker(
            live.step,
            self._order(number, **changes),
            batch_size=live.batch_size,
            num_samples=live.num_samples,
            log=self._writer.store.log_path,
            on_progress=self._on_progress,
            ranks=live.ranks,
            device=self._options.device,
        )
        self.current = worker
        if live.ranks is not None:
            from ...probes.distributed.live_ranks import LeadingWorker

            self.current = LeadingWorker(live.ranks, worker)
        return self.current
