"""Progress: one line a trial where nobody watches, a live display on a terminal."""

import io
import re
import time

import pytest
from batchadvisor.records import TrialRequest
from batchadvisor.reports.terminal.progress import REFRESH_PERIOD_S, NullDisplay, ProgressDisplay
from rich.console import Console

from . import samples


class Clock:
    """Time that passes when told to."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def run(display, clock=None):
    """What a run tells its display."""
    record, _ = samples.gpu()
    display.start()
    display.discovering(2)
    for trial in record.trials[:5]:
        display.trial(
            TrialRequest(batch_size=trial.batch_size, kind="timed", reason="does it pay?"),
            "about 4 s",
        )
        for step in range(50):
            display.update("timing", trial.batch_size, step, 0.0123)
        if clock is not None:
            clock.now += 10
        display.trial_done(trial)
    display.close()
    display.close()


def plain_console(encoding="utf-8"):
    out = io.TextIOWrapper(io.BytesIO(), encoding=encoding, newline="\n", write_through=True)
    return Console(file=out, force_terminal=False, width=40), out.buffer


def test_one_line_for_each_trial_and_nothing_else():
    console, out = plain_console()
    run(ProgressDisplay(120, console=console))
    assert out.getvalue().decode().splitlines() == [
        "batchadvisor: batch 2  11.8 ±0.4 ms  169 ±6 samples/s  peak 3.10 GiB  ok",
        "batchadvisor: batch 16  12.1 ±0.3 ms  1320 ±30 samples/s  peak 5.90 GiB  ok",
        "batchadvisor: batch 64  19.43 ±0.08 ms  3294 ±14 samples/s  peak 14.80 GiB  ok",
        "batchadvisor: batch 256  70.40 ±0.22 ms  3636 ±11 samples/s  peak 50.20 GiB  ok",
        "batchadvisor: batch 512  out of memory: CUDA out of memory. Tried to allocate 12.25 GiB.",
    ]


def test_ascii_on_standard_error_alone_and_nothing_where_quiet(capsys):
    console, out = plain_console("ascii")
    run(ProgressDisplay(120, console=console))
    assert b"11.8 +-0.4 ms" in out.getvalue()
    run(ProgressDisplay(120))
    caught = capsys.readouterr()
    assert caught.out == ""
    assert len(caught.err.splitlines()) == 5
    run(NullDisplay())
    assert capsys.readouterr() == ("", "")


def test_notes_are_shown_without_markup():
    console, out = plain_console()
    display = ProgressDisplay(120, console=console)
    display.start()
    display.note("worker 1 starts\x1b[31m [red]again[/red]\nafter a failure")
    display.close()
    assert out.getvalue() == b"batchadvisor: worker 1 starts [red]again[/red] after a failure\n"


class FakeTerminal:
    """A terminal and the frames that a display would draw on it."""

    def __init__(self, width=80, term="xterm"):
        self.out = io.StringIO()
        self.clock = Clock()
        console = Console(
            file=self.out, force_terminal=True, width=width, height=30, _environ={"TERM": term}
        )
        self.display = ProgressDisplay(120, console=console, clock=self.clock)

    def frame(self):
        console = Console(file=io.StringIO(), width=80)
        console.print(self.display._frame())
        return console.file.getvalue().splitlines()


def test_the_live_display_shows_what_runs_and_what_was_seen():
    terminal = FakeTerminal()
    display, trials = terminal.display, samples.gpu()[0].trials
    display.start()
    terminal.clock.now += 5
    display.discovering(2)
    assert terminal.frame() == [
        "discovering the training loop, 2 optimizer steps seen",
        "5 s so far; the budget is 2 min",
    ]
    display.trial(TrialRequest(batch_size=2, kind="timed"), "about 4 s")
    terminal.clock.now += 4
    display.trial_done(trials[0])
    display.trial(TrialRequest(batch_size=16, kind="timed", reason="x8"), "about 3 s")
    display.update("timing", 16, 12, 0.0121)
    terminal.clock.now += 2
    assert terminal.frame() == [
        "batch 2  11.8 ±0.4 ms  169 ±6 samples/s  peak 3.10 GiB  ok",
        "batch 16  timing, 12.1 ms a step; this display pauses meanwhile",
        "x8; about 3 s",
        "11 s of 2 min used, 1 min 49 s left; 11 s since the start",
    ]
    display.close()


def test_the_live_display_goes_away():
    terminal = FakeTerminal()
    run(terminal.display, terminal.clock)
    text = terminal.out.getvalue()
    assert "\x1b[" in text
    assert text.endswith("\x1b[2K")  # the last thing done is erasing the display's own lines
    assert text.count("\x1b[?25l") == text.count("\x1b[?25h") == 1  # the cursor comes back


def drawn(terminal, during_s):
    """Bytes that reach the terminal in a while."""
    before = len(terminal.out.getvalue())
    time.sleep(during_s)
    return len(terminal.out.getvalue()) - before


def test_nothing_is_drawn_while_steps_are_timed():
    """Drawing takes time on the cores that are measured; before and after it the display lives."""
    terminal = FakeTerminal()
    display = terminal.display
    display.start()
    display.update("warming up", 16, 1, 0.012)
    assert drawn(terminal, 4 * REFRESH_PERIOD_S)
    display.update("timing", 16, 0, 0.012)
    assert "pauses meanwhile" in terminal.out.getvalue()  # drawn at once, and then not again
    time.sleep(REFRESH_PERIOD_S)
    assert drawn(terminal, 4 * REFRESH_PERIOD_S) == 0
    display.trial_done(samples.gpu()[0].trials[0])
    assert drawn(terminal, 4 * REFRESH_PERIOD_S)
    display.close()
    assert drawn(terminal, 2 * REFRESH_PERIOD_S) == 0


def test_updates_draw_nothing_themselves():
    terminal = FakeTerminal()
    terminal.display.start()
    before = len(terminal.out.getvalue())
    for step in range(10_000):
        terminal.display.update("timing", 16, step, 0.01)
    assert len(terminal.out.getvalue()) - before < 5_000
    terminal.display.close()


def test_a_dumb_terminal_gets_plain_lines():
    terminal = FakeTerminal(width=200, term="dumb")
    run(terminal.display, terminal.clock)
    assert "\x1b[" not in terminal.out.getvalue().replace("\x1b[31m", "").replace("\x1b[0m", "")
    assert len(terminal.out.getvalue().splitlines()) == 5


def test_colours_that_were_asked_for_make_no_terminal_of_a_log(monkeypatch, capsys):
    """FORCE_COLOR is set for whole builds, whose logs would fill with the frames of a display."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    run(ProgressDisplay(120.0))
    text = capsys.readouterr().err
    assert "\x1b" not in text
    assert len(text.splitlines()) == 5


def test_the_live_display_keeps_the_last_sizes_and_narrow_lines():
    terminal = FakeTerminal(width=30)
    run(terminal.display, terminal.clock)
    run(terminal.display, terminal.clock)
    assert len(terminal.display._done) == 8


@pytest.mark.parametrize("purpose", ["search", "confirm", "tail"])
def test_every_purpose_has_words(purpose):
    terminal = FakeTerminal()
    terminal.display.trial(TrialRequest(batch_size=8, kind="timed", purpose=purpose), "")
    assert re.search("batch (of )?8$", terminal.frame()[0])
