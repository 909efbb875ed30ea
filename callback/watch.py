"""One watched run, from its first word to its last: what all adapters share."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Callable, Iterable
from typing import Any

from ..advisor.advise import advise
from ..advisor.observed import tail_cases
from ..errors import UsageError
from ..records import Advice, Pipeline, RunRecord
from ..session.store import RECORD
from . import ledger
from .devices import MemoryProbe, refuses_memory, started_device
from .display import Cell, in_notebook, say, terminal
from .facts import Facts
from .keeper import Keeper
from .options import Options
from .tape import Tape
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
        self.keeper: Keeper | None = None
        self.record: RunRecord | None = None
        self.advice: Advice | None = None
        self._facts: Facts | None = None
        self._complete: Callable[[Facts], None] | None = None
        self._parameters: Callable[[], Iterable[Any]] | None = None
        self._cell = Cell() if in_notebook() else None

    @property
    def running(self) -> bool:
        """Whether a run was begun and not ended."""
        return self.keeper is not None and self.record is None

    @property
    def tape(self) -> Tape:
        """What is told of steps.

        Raises:
            UsageError: no run was begun.
        """
        if self.keeper is None:
            msg = "the callback is not watching a run yet."
            raise UsageError(msg, "Use it as `with ProfilingCallback() as prof:`.")
        return self.keeper.tape

    @property
    def facts(self) -> Facts:
        """Of the run that was begun."""
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
    ) -> Tape:
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
        self.keeper = Keeper(
            self.options, facts, say=self.say, on_first_step=self._first_step, probe=probe
        )
        if self._cell is not None and not self.options.quiet:
            self.keeper.updated = self._show
        self.keeper.begin()
        return self.keeper.tape

    def end(self, error: BaseException | None) -> None:
        """The run is over. The error is only read; whoever calls this lets it pass."""
        if not self.running or self.keeper is None:
            return
        keeper, tape = self.keeper, self.keeper.tape
        try:
            tape.on_run_end()
            if error is not None and refuses_memory(error):
                tape.on_oom(error)
            self.record = _finished(keeper, error)
            self.advice = advise(self.record)
            if not self.options.quiet and self.facts.rank == 0:
                self._speak()
        except Exception as own:  # noqa: BLE001  our own failure must not hide the user's result
            self.say(f"the record could not be finished: {type(own).__name__}: {own}")
            self.record = self.record or keeper.record("failed", "the record was not finished")

    def say(self, text: str) -> None:
        """A line for the user, from the first rank only."""
        if not self.options.quiet and (self._facts is None or self._facts.rank == 0):
            say(f"batchadvisor: {text}")

    def text(self, *, width: int = 100, color: bool = False, encoding: str = "utf-8") -> str:
        """The short report of the run."""
        from ..reports.observed import render

        if self.record is None or self.advice is None or self.keeper is None:
            return "batchadvisor: the run is not over.\n"
        return render(
            self.record,
            self.advice,
            files=self._files(),
            next_command=f"batchadvisor advise {shlex.quote(str(self.keeper.folder))}",
            width=width,
            color=color,
            encoding=encoding,
        )

    def html(self) -> str:
        """The same for a notebook's cell; while the run goes on, how far it is."""
        from ..reports.observed_html import render

        if self.keeper is None:
            return render(None, None, files=())
        record = self.record or self.keeper.record("running")
        return render(record, self.advice or advise(record), files=self._files())

    def _files(self) -> list[tuple[str, str]]:
        assert self.keeper is not None
        folder, root = self.keeper.folder, self.keeper.root
        files = [("record", str(folder / RECORD))]
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

    def _first_step(self, keeper: Keeper) -> None:
        facts, options = self.facts, self.options
        if self._complete is not None:
            self._complete(facts)
        facts.device = facts.device or started_device()
        if not self._profile:
            keeper.no_windows = (
                "profile=False" if not options.profile else "torch's profiler does not see it"
            )
        else:
            keeper.windows = Windows(
                keeper.root,
                options,
                rank=facts.rank,
                device_type=(facts.device or "cpu").partition(":")[0],
                say=self.say,
            )
        if options.noise_scale and self._parameters is not None:
            from ..probes.noise import NoiseMeter

            keeper.noise = NoiseMeter(self._parameters(), options.noise_every)
        self.warn_of_tails(facts.pipeline)

    def warn_of_tails(self, pipeline: Pipeline | None) -> None:
        """What the end of the epoch will do, said before it does it."""
        for one in tail_cases(pipeline)[:MAX_TAILS]:
            fix = f" Fix: {one.fixes[0].title}." if one.fixes else ""
            self.say(f"the end of each epoch: {one.message} [{one.id}].{fix}")


def _finished(keeper: Keeper, error: BaseException | None) -> RunRecord:
    if error is None or (isinstance(error, SystemExit) and error.code in (0, None)):
        return keeper.finish("finished", "the loop ended")
    if isinstance(error, KeyboardInterrupt):
        return keeper.finish("interrupted", "interrupted by Ctrl-C")
    core = keeper.core
    fault = ledger.fault_of(error)
    if core.refused is not None:
        return keeper.finish("failed", f"out of memory: {fault.detail}")
    return keeper.finish("failed", fault.detail, faults=(fault,), tail_size=core.note_tail())
