"""The terminal report, compared whole with stored text, and the rules of its layout.

`BATCHADVISOR_UPDATE_GOLDEN=1 pytest tests/reports` writes the stored text anew; read the diff.
The records are synthetic (see samples.py).
"""

import msgspec
import pytest
from batchadvisor.advisor.advise import advise
from batchadvisor.records import Fault, FileTouched, Finding, Goal, RunRecord, ScriptInfo
from batchadvisor.reports.builder.text import build_text
from batchadvisor.reports.terminal.answer import render
from rich.cells import cell_len

from ..on_paper import discovery_of, record_of, trial_of
from . import builders, samples
from .golden import agrees
from .terminal_text import EVERY, shown, strip_codes


@pytest.mark.parametrize("sample", EVERY, ids=lambda sample: sample.__name__)
def test_whole_text_at_100_columns(sample):
    agrees(f"{sample.__name__}-100.txt", shown(sample()))


@pytest.mark.parametrize("width", [48, 60])
@pytest.mark.parametrize("sample", [samples.cpu, samples.gpu], ids=lambda sample: sample.__name__)
def test_whole_text_in_narrow_windows(sample, width):
    agrees(f"{sample.__name__}-{width}.txt", shown(sample(), width))


def test_whole_text_in_ascii():
    text = shown(samples.cpu(), encoding="ascii")
    assert text.isascii()
    agrees("cpu-100-ascii.txt", text)


@pytest.mark.parametrize("sample", EVERY, ids=lambda sample: sample.__name__)
@pytest.mark.parametrize("width", [40, 48, 60, 80, 100, 200])
def test_lines_fit_the_window(sample, width):
    for line in shown(sample(), width).splitlines():
        copied = line.startswith(("Wrote", "Next", "  or  ", "  write", "  mkdir"))
        assert copied or cell_len(line) <= width, line
        assert line == line.rstrip()


@pytest.mark.parametrize("sample", EVERY, ids=lambda sample: sample.__name__)
def test_color_adds_codes_and_nothing_else(sample, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    plain = shown(sample())
    assert "\x1b" not in plain
    monkeypatch.delenv("FORCE_COLOR")
    monkeypatch.setenv("NO_COLOR", "1")  # the caller decides, not the environment
    colored = shown(sample(), color=True)
    assert "\x1b[" in colored
    assert "".join(strip_codes(colored)) == plain


def heads(text):
    """The titles of the table of sizes."""
    return text.split("Sizes\n", 1)[1].splitlines()[0].split()


@pytest.mark.parametrize("width", [80, 81, 90, 100, 120])
def test_memory_occupancy_and_step_time_keep_their_columns(width):
    """The usual terminal has 80 columns; whatever else goes, these three stay."""
    record, _ = samples.gpu()
    for steps, size in ((1.0, 1), (1e5, 1), (1.0, 1_000_000), (1e5, 1_000_000)):
        trials = tuple(
            msgspec.structs.replace(
                trial,
                batch_size=trial.batch_size * size,
                arrived_batch_size=trial.batch_size * size,
                step_s=trial.step_s and builders.spread(trial.step_s.median * steps, 0.0004),
            )
            for trial in record.trials
        )
        late = builders.failed(9, 256 * size, "out_of_memory", "no memory", purpose="confirm")
        changed = msgspec.structs.replace(record, trials=(*trials, late))
        text = shown((changed, advise(changed)), width)
        assert {"step", "peak", "occup."} <= set(heads(text)), text


def test_it_says_which_columns_have_no_room():
    wide, narrow = (shown(samples.gpu(), width) for width in (150, 80))
    left_out = {"tensor", "power", "SM"}
    assert left_out <= set(heads(wide))
    assert not left_out & set(heads(narrow))
    assert "no room for tensor, power, SM" in " ".join(narrow.split())


def test_a_refused_size_is_red_and_the_recommended_one_green():
    lines = shown(samples.gpu(), color=True).splitlines()
    assert any(line.startswith("\x1b[31m    512") for line in lines)
    assert any(line.startswith("\x1b[1;32m    128") for line in lines)
    assert lines[0].startswith("\x1b[1;32m")
    assert shown(samples.nothing_fits(), color=True).startswith("\x1b[1;31m")


def test_text_from_the_script_is_neither_markup_nor_control():
    record, advice = samples.cpu()
    evil = "[bold red]x[/bold red]\x1b[31m\x1b]0;title\x07 :smile:\r\n\x08\x9b2J\u202eend"
    record = msgspec.structs.replace(
        record,
        files=(FileTouched(path=evil, action="write"), FileTouched(path="\udcff", action="mkdir")),
        faults=(Fault(outcome="exception", detail=evil, worker=0, log=evil),),
        stop_reason=evil,
        device=msgspec.structs.replace(record.device, name=evil),
    )
    advice = msgspec.structs.replace(
        advice,
        headline=evil,
        reason=evil,
        change=evil,
        findings=(Finding(rule="r", severity="error", message=evil, remedy=evil),),
    )
    clean = "[bold red]x[/bold red] :smile: \\x08\\x9b2J\\u202eend"
    for color in (False, True):
        text = shown((record, advice), 200, color=color)
        text = "".join(strip_codes(text)) if color else text
        assert text.count(clean) >= 8
        assert "\\udcff" in text
        assert not set(text) & {*map(chr, range(32)), "\x7f", "\x9b", "\u202e"} - {"\n"}


def test_no_more_digits_than_the_spread_supports():
    record, advice = samples.gpu()
    lines = {line.split()[0]: line for line in shown((record, advice)).splitlines() if line.split()}
    assert "169 ±6" in lines["2"]  # 3 %: three digits
    assert "3294 ±14" in lines["64"]  # 0.4 %: four


def test_very_large_and_very_small_numbers_are_readable():
    record, advice = samples.cpu()
    epoch = builders.spread(3.5e10)
    advice = msgspec.structs.replace(
        advice,
        recommended=msgspec.structs.replace(advice.recommended, epoch_s=epoch),
        tail=msgspec.structs.replace(advice.tail, num_samples=10**10),
        time_law=msgspec.structs.replace(advice.time_law, slope_s=9e-9),
    )
    text = shown((record, advice), 150)
    assert "1110 years ±0.4%" in text
    assert "10,000,000,000 samples in batches of 128" in text
    assert "7 ms + 9 ns x batch" in text


def test_an_empty_record_can_be_shown():
    record = RunRecord(
        state="failed",
        started_at="",
        command=(),
        script=ScriptInfo(path="train.py"),
        goal=Goal(),
    )
    _, advice = samples.nothing_fits()
    text = shown((record, advice))
    assert "not known: no device was found" in text
    assert "none was tried" in text


def test_an_endless_epoch_is_readable():
    """A sampler of 10^10 draws, as makemore's."""
    record = record_of(
        [trial_of(32, 0.1)], discovery=discovery_of(native=32, num_samples=10_000_000_000)
    )
    text = render(
        build_text(record, advise(record)), files=[], next_command="", width=100, color=False
    )
    assert "10,000,000,000 samples in batches of 32: 312,500,000 optimizer steps" in text
    assert " days " in text.partition("epoch time")[2].partition("\n")[0]
