"""The workers of a live function: there is one, and it is this process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .workers import Workers

if TYPE_CHECKING:
    from ..probes.local import LocalWorker


class LocalWorkers(Workers):
    """Makes `LocalWorker` objects; a fresh one forgets the step of the one before."""

    may_stand_by = False

    def _spawn(self) -> Any:
        from ..probes.local import LocalWorker

        number = self._journal.record.num_workers_started
        self._journal.change(num_workers_started=number + 1)
        live = self._options.live
        assert live is not None
        worker: LocalWorker = LocalWorker(
            live.step,
            self._order(number),
            batch_size=live.batch_size,
            num_samples=live.num_samples,
            log=self._journal.store.log_path,
            on_progress=self._on_progress,
        )
        self.current = worker  # type: ignore[assignment]  # it stands in for a Worker
        return worker
