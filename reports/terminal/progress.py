"""Progress while sizes are tried, on standard error: a live display, or one line a trial."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from ...records import START_SHARE, Purpose, Trial, TrialRequest
from ...units import format_bytes, format_seconds
from ..words.outcomes import OUTCOMES
from ..words.wording import beside_value, clean, measured, plural

REFRESH_PERIOD_S = 0.25
"""Seconds between two redraws, at least; `update` only stores."""
QUIET = ("timing", "counting", "profiling")
"""Phases in which steps are measured: the display is drawn once and rests."""
MAX_LINES = 8
"""Finished trials that the live display keeps."""

WORDS: dict[Purpose, str] = {
    "search": "batch",
    "confirm": "again batch",
    "tail": "the epoch's last batch of",
    "lengths": "other lengths, batch",
}


class NullDisplay:
    """Shows nothing: `--quiet`."""

    def start(self) -> None:
        """Nothing."""

    def discovering(self, num_steps: int) -> None:
        """Nothing."""

    def trial(self, request: TrialRequest, expected: str) -> None:
        """Nothing."""

    def update(
        self, phase: str, batch_size: int | None, num_steps: int, step_s: float | None
    ) -> None:
        """Nothing."""

    def trial_done(self, trial: Trial) -> None:
        """Nothing."""

    def note(self, text: str) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


class ProgressDisplay:
    """Live on a terminal, plain lines elsewhere.

    A terminal shows the size, the phase and the step being run, what was seen so far, and the time
    left; all of it goes away at the end. While steps are measured it stands still, for drawing
    takes time on the cores that are measured. Anything else gets one line for each finished trial
    and each note.

    Args:
        budget_s: wall time, of which the first start may take `START_SHARE`.
        spent_s: the part of it that earlier parts of a resumed run have used.
        console: standard error if not given.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        budget_s: float,
        *,
        spent_s: float = 0.0,
        console: Console | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        # In a notebook too progress is a stream, not one display after another.
        # What asks for colours in a log (FORCE_COLOR) asks for no cursor that moves.
        terminal = None if sys.stderr.isatty() else False
        own = _Stream(stderr=True, highlight=False, force_jupyter=False, force_terminal=terminal)
        self._console = console if console is not None else own
        self._budget_s = budget_s
        self._spent_s = spent_s
        self._clock = clock
        self._started_s = clock()
        self._first_trial_s: float | None = None
        self._now = "starting the script"
        self._why = ""
        self._done: list[Text] = []
        self._live: Live | None = None
        self._pulse: _Pulse | None = None

    def start(self) -> None:
        """Opens the live display, if this is a terminal that can show one."""
        self._started_s = self._clock()
        if self._live is None and self._console.is_terminal and not self._console.is_dumb_terminal:
            self._live = Live(
                get_renderable=self._frame,
                console=self._console,
                auto_refresh=False,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live.start(refresh=True)
            self._pulse = _Pulse(self._live.refresh)
            self._pulse.start()

    def discovering(self, num_steps: int) -> None:
        """The script runs at its own size; `num_steps` optimizer steps were seen."""
        self._wake()
        steps = f", {num_steps} optimizer steps seen" if num_steps else ""
        self._now = f"discovering the training loop{steps}"

    def trial(self, request: TrialRequest, expected: str) -> None:
        """A trial begins; `expected` says in words what it will take."""
        self._wake()
        if self._first_trial_s is None:
            self._first_trial_s = self._clock()
        self._now = f"{WORDS[request.purpose]} {request.batch_size}"
        self._why = "; ".join(text for text in (request.reason, expected) if text)

    def update(
        self, phase: str, batch_size: int | None, num_steps: int, step_s: float | None
    ) -> None:
        """Where the trial stands: steps done in this phase, the last step's time.

        Only stored; in a phase whose steps are measured it is drawn, and then nothing for a while.
        """
        size = "" if batch_size is None else f"batch {batch_size}  "
        pace = "" if step_s is None else f", {format_seconds(step_s)} a step"
        if phase not in QUIET:
            self._now = f"{size}{phase}, step {num_steps}{pace}"
            self._wake()
            return
        self._now = f"{size}{phase}{pace}; this display pauses meanwhile"
        if self._pulse is not None:
            self._pulse.rest()

    def trial_done(self, trial: Trial) -> None:
        """A trial is over."""
        self._wake()
        line = self._text(trial_line(trial), style="" if trial.ran else "red")
        self._why = ""
        if self._live is None:
            self._print(line)
            return
        self._done = [*self._done, line][-MAX_LINES:]

    def note(self, text: str) -> None:
        """Something that people should see."""
        self._print(self._text(text))

    def close(self) -> None:
        """Takes the live display away; may be called more than once."""
        pulse, self._pulse = self._pulse, None
        if pulse is not None:
            pulse.stop()
        live, self._live = self._live, None
        if live is not None:
            live.stop()

    def _wake(self) -> None:
        if self._pulse is not None:
            self._pulse.wake()

    def _frame(self) -> Group:
        lines = [*self._done]
        lines.append(self._text(self._now, style="bold"))
        if self._why:
            lines.append(self._text(self._why, style="dim"))
        lines.append(self._text(self._times(), style="dim"))
        for line in lines:
            line.no_wrap, line.overflow = True, "ellipsis" if self._is_utf8() else "crop"
        return Group(*lines)

    def _times(self) -> str:
        now = self._clock()
        elapsed, budget = whole_seconds(now - self._started_s), whole_seconds(self._budget_s)
        if self._first_trial_s is None:
            return f"{elapsed} so far; the budget is {budget}"
        start_s = min(self._first_trial_s - self._started_s, START_SHARE * self._budget_s)
        used = self._spent_s + start_s + now - self._first_trial_s
        left = self._budget_s - used
        rest = f"{whole_seconds(left)} left" if left >= 0.5 else "finishing"
        return f"{whole_seconds(used)} of {budget} used, {rest}; {elapsed} since the start"

    def _text(self, text: str, style: str = "") -> Text:
        return Text(clean(text, self._console.encoding), style=style)

    def _is_utf8(self) -> bool:
        return self._console.encoding.lower().replace("-", "") == "utf8"

    def _print(self, line: Text) -> None:
        prefix = Text("" if self._console.is_terminal else "batchadvisor: ")
        with contextlib.suppress(OSError):  # whoever read our progress may have gone
            self._console.print(prefix + line, soft_wrap=True, highlight=False)


class _Pulse(threading.Thread):
    """Draws again and again, except while it rests.

    Args:
        draw: draws the display as it is now.
    """

    def __init__(self, draw: Callable[[], None]) -> None:
        super().__init__(name="batchadvisor-display", daemon=True)
        self._draw = draw
        self._awake = threading.Event()
        self._awake.set()
        self._over = threading.Event()
        self._drawn_s = 0.0

    def run(self) -> None:
        while self._awake.wait() and not self._over.wait(REFRESH_PERIOD_S):
            if self._awake.is_set():
                self._show()

    def rest(self) -> None:
        """Draws once more; then the thread sleeps until it is woken."""
        awake = self._awake.is_set()
        self._awake.clear()
        if awake or time.monotonic() - self._drawn_s >= REFRESH_PERIOD_S:
            self._show()

    def wake(self) -> None:
        self._awake.set()

    def stop(self) -> None:
        self._over.set()
        self._awake.set()
        self.join()

    def _show(self) -> None:
        self._drawn_s = time.monotonic()
        with contextlib.suppress(OSError):  # whoever watched may have gone
            self._draw()


class _Stream(Console):
    def on_broken_pipe(self) -> None:
        """Nobody reads our progress any more: the run goes on, for its answer is read elsewhere."""
        self.quiet = True


def whole_seconds(seconds: float) -> str:
    """A duration that ticks.

    >>> whole_seconds(0.2), whole_seconds(59.4), whole_seconds(75)
    ('0 s', '59 s', '1 min 15 s')
    """
    return f"{seconds:.0f} s" if seconds < 59.5 else format_seconds(round(seconds))


def trial_line(trial: Trial) -> str:
    """One finished trial in one line."""
    parts = [f"{WORDS[trial.purpose]} {trial.batch_size}"]
    if trial.turns is not None:
        sizes = ", ".join(map(str, trial.turns.sizes))
        parts = [
            f"{WORDS[trial.purpose]} {sizes} in turn, {plural(len(trial.turns.step_s), 'round')}"
        ]
    if trial.step_s is not None:
        parts.append(f"{beside_value(*measured(trial.step_s, 1e3))} ms")
    if trial.samples_per_s is not None:
        parts.append(f"{beside_value(*measured(trial.samples_per_s))} samples/s")
    tokens = trial.tokens
    if tokens is not None and tokens.real_per_s is not None and not tokens.inferred:
        parts.append(f"{beside_value(*measured(tokens.real_per_s))} real {tokens.unit}/s")
    if trial.memory is not None:
        parts.append(f"peak {format_bytes(trial.memory.peak_bytes)}")
    if trial.ran:
        parts.append("fits" if trial.kind == "fit" and trial.says_of_size else "ok")
    else:
        words = OUTCOMES[trial.outcome][0] if trial.outcome != "ok" else "wrong size"
        parts.append(f"{words}: {trial.detail}" if trial.detail else words)
    return "  ".join(parts)
