"""One watched run, from its first word to its last: what all adapters share."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Callable, Iterable
from typing import Any

from ..advisor.advise import advise
from ..advisor.explain.callback_advice import tail_cases
from ..errors import UsageError
from ..records import Advice, Pipeline, RunRecord
from ..session.recording.store import MEMORY_PAGE, RECORD
from . import trials_from_counts
from .devices import MemoryProbe, refuses_memory, started_device
from .display import Cell, in_notebook, say, terminal
from .event_buffer import EventBuffer
from .loop_info import Facts
from .options import Options
from .recorder import Recorder
from .windows import Windows

MAX_TAILS = 3


class Watch:
    """Begins and ends a run for an adapter, and speaks for it.

    Args:
        options: of the callback.

    Attributes:
        record, advice: after the run; before that `None`.
    """

    def __init__(self, options: Options) -> None:
        self.options = options
        self.recorder: Recorder | None = None
        self.record: RunRecord | None = None
        self.advice: Advice | None = None
        self._facts: Facts | None = None
        self._complete: Callable[[Facts], None] | None = None
        self._parameters: Callable[[], Iterable[Any]] | None = None
        self._cell = Cell() if in_notebook() else None

    @property
    def running(self) -> bool:
        """Whether a run was begun and not ended."""
        return self.recorder is not None and self.record is None

    @property
    def buffer(self) -> EventBuffer:
        """The buffer that is told of steps.

        Raises:
            UsageError: no run was begun.
        """
        if self.recorder is None:
            msg = "the callback is not watching a run yet."
            raise UsageError(msg, "Use it as `with ProfilingCallback() as prof:`.")
        return self.recorder.buffer

    @property
    def facts(self) -> Facts:
        """Facts about the loop of the run that was begun."""
        assert self._facts is not None
        return self._facts

    def begin(
        self,
        facts: Facts,
        *,
        complete: Callable[[Facts], None] | None = None,
        parameters: Callable[[], Iterable[Any]] | None = None,
        probe: MemoryProbe | None = None,
        profile: bool = True,
    ) -> EventBuffer:
        """A run begins.

        Args:
            facts: of the loop, as far as they are known.
            complete: called when the first step is over, to fill in the rest.
            parameters: those that train, asked for after `complete`; for the noise scale.
            probe: of a framework without torch.
            profile: whether torch's profiler can see this loop.

        Raises:
            UsageError: the folder cannot be written.
        """
        if self.running:
            self.end(None)
        self._facts, self._complete, self._parameters = facts, complete, parameters
        self._profile = profile and self.options.profile
        self.record = self.advice = None
        self.recorder = Recorder(
            self.options, facts, say=self.say, on_first_step=self._first_step, probe=probe
        )
        if self._cell is not None and not self.options.quiet:
            self.recorder.updated = self._show
        self.recorder.begin()
        return self.recorder.buffer

    def end(self, error: BaseException | None) -> None:
        """The run is over. The error is only read; whoever calls this lets it pass."""
        if not self.running or self.recorder is None:
            return
        recorder, buffer = self.recorder, self.recorder.buffer
        try:
            refused = error if error is not None and refuses_memory(error) else None
            if refused is not None:
                buffer.on_oom(refused)
            buffer.on_run_end()
            if refused is not None:
                recorder.memory.refused(recorder.core.num_ended, refused)
            self.record = _finished(recorder, error)
            self.advice = advise(self.record)
            if recorder.core.refused is not None:
                self._leave_memory_page(recorder)
            if not self.options.quiet and self.facts.rank == 0:
                self._speak()
        except Exception as own:  # noqa: BLE001  our own failure must not hide the user's result
            self.say(f"the record could not be finished: {type(own).__name__}: {own}")
            with contextlib.suppress(Exception):
                self.record = self.record or recorder.left()
        self._complete = self._parameters = None  # they hold the model

    def _leave_memory_page(self, recorder: Recorder) -> None:
        """Writes the page of what filled the memory beside the record."""
        from ..session.memory import write_memory_page

        assert self.record is not None
        problem = write_memory_page(self.record, recorder.folder, recorder.memory.snapshot)
        if problem:
            self.say(problem)

    def say(self, text: str) -> None:
        """A line for the user, from the first rank only."""
        if not self.options.quiet and (self._facts is None or self._facts.rank == 0):
            say(f"batchadvisor: {text}")

    def text(self, *, width: int = 100, color: bool = False, encoding: str = "utf-8") -> str:
        """The short report of the run."""
        from ..reports.builder.observed import build_watched
        from ..reports.terminal.document import render

        if self.record is None or self.advice is None or self.recorder is None:
            return "batchadvisor: the run is not over.\n"
        return render(
            build_watched(self.record, self.advice),
            files=self._files(),
            next_command=f"batchadvisor advise {shlex.quote(str(self.recorder.folder))}",
            width=width,
            color=color,
            encoding=encoding,
        )

    def html(self) -> str:
        """Returns the answer as HTML for a notebook; while the run goes on, how far it is."""
        from ..reports.builder.observed import build_watched
        from ..reports.html.notebook import render

        if self.recorder is None:
            return render(None, files=())
        record = self.record or self.recorder.record("running")
        page = build_watched(record, self.advice or advise(record))
        return render(page, files=self._files())

    def _files(self) -> list[tuple[str, str]]:
        assert self.recorder is not None
        folder, root = self.recorder.folder, self.recorder.root
        files = [("record", str(folder / RECORD))]
        if (folder / MEMORY_PAGE).exists():
            files.append(("where memory goes", str(folder / MEMORY_PAGE)))
        if (root / "traces").exists():
            files.append(("traces", str(root / "traces")))
        return files

    def _show(self) -> None:
        if self._cell is not None:
            with contextlib.suppress(Exception):
                self._cell.show(self.html())

    def _speak(self) -> None:
        if self._cell is not None:
            self._show()
            return
        width, color, encoding = terminal()
        say(self.text(width=width, color=color, encoding=encoding))

    def _first_step(self, recorder: Recorder) -> None:
        facts, options = self.facts, self.options
        if self._complete is not None:
            self._complete(facts)
        facts.device = facts.device or started_device()
        recorder.memory.begin(facts.device, self._training)
        if not self._profile:
            recorder.no_windows = (
                "profile=False" if not options.profile else "torch's profiler does not see it"
            )
        else:
            recorder.windows = Windows(
                recorder.root,
                options,
                rank=facts.rank,
                device_type=(facts.device or "cpu").partition(":")[0],
                say=self.say,
            )
        if options.noise_scale and self._parameters is not None:
            from ..probes.windows.gradient_norms import NoiseMeter

            recorder.noise = NoiseMeter(self._parameters(), options.noise_every)
        self.warn_of_tails(facts.pipeline)

    def _training(self) -> Iterable[Any]:
        """The parameters that train; none once the run is over."""
        return () if self._parameters is None else self._parameters()

    def warn_of_tails(self, pipeline: Pipeline | None) -> None:
        """Warns of the harm that the end of the epoch will do, before it does it."""
        for case in tail_cases(pipeline)[:MAX_TAILS]:
            fix = f" Fix: {case.fixes[0].title}." if case.fixes else ""
            self.say(f"the end of each epoch: {case.message} [{case.id}].{fix}")


def _finished(recorder: Recorder, error: BaseException | None) -> RunRecord:
    if error is None or (isinstance(error, SystemExit) and error.code in (0, None)):
        return recorder.finish("finished", "the loop ended")
    if isinstance(error, KeyboardInterrupt):
        return recorder.finish("interrupted", "interrupted by Ctrl-C")
    core = recorder.core
    fault = trials_from_counts.fault_of(error)
    if core.refused is not None:
        return recorder.finish("failed", f"out of memory: {fault.detail}")
    return recorder.finish("failed", fault.detail, faults=(fault,), tail_size=core.note_tail())
