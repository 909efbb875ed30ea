"""The terminal report, compared whole with stored text, and the rules of its layout.

`BATCHADVISOR_UPDATE_GOLDEN=1 pytest tests/reports` writes the stored text anew; read the diff.
The records are synthetic (see samples.py).
"""

from pathlib import Path

import pytest
from batchadvisor.advisor.advise import advise
from batchadvisor.records import (
    Fault,
    FileTouched,
    Finding,
    Goal,
    RunRecord,
    ScriptInfo,
    TailCheck,
    Turns,
)
from batchadvisor.records.checks import LossCheck
from batchadvisor.reports.builder.charts.sweep import throughput
from batchadvisor.reports.builder.sizes.rows import size_rows
from batchadvisor.session.recording.store import read_record
from msgspec.structs import replace
from rich.cells import cell_len

from ..on_paper import discovery_of, loader_of, record_of, trial_of
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
            replace(
                trial,
                batch_size=trial.batch_size * size,
                arrived_batch_size=trial.batch_size * size,
                step_s=trial.step_s and builders.spread(trial.step_s.median * steps, 0.0004),
            )
            for trial in record.trials
        )
        late = builders.failed(9, 256 * size, "out_of_memory", "no memory", purpose="confirm")
        changed = replace(record, trials=(*trials, late))
        text = shown((changed, advise(changed)), width)
        assert {"step", "peak", "occup."} <= set(heads(text)), text


def test_a_refused_size_is_red_and_the_recommended_one_green():
    lines = shown(samples.gpu(), color=True).splitlines()
    assert any(line.startswith("\x1b[31m    512") for line in lines)
    assert any(line.startswith("\x1b[1;32m    128") for line in lines)
    assert lines[0].startswith("\x1b[1;32m")
    assert shown(samples.nothing_fits(), color=True).startswith("\x1b[1;31m")


def test_text_from_the_script_is_neither_markup_nor_control():
    record, advice = samples.cpu()
    evil = "[bold red]x[/bold red]\x1b[31m\x1b]0;title\x07 :smile:\r\n\x08\x9b2J\u202eend"
    record = replace(
        record,
        files=(FileTouched(path=evil, action="write"), FileTouched(path="\udcff", action="mkdir")),
        faults=(Fault(outcome="exception", detail=evil, worker=0, log=evil),),
        stop_reason=evil,
        device=replace(record.device, name=evil),
    )
    advice = replace(
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


def test_very_large_and_very_small_numbers_are_readable():
    record, advice = samples.cpu()
    epoch = builders.spread(3.5e10)
    advice = replace(
        advice,
        recommended=replace(advice.recommended, epoch_s=epoch),
        tail=replace(advice.tail, num_samples=10**10),
        time_law=replace(advice.time_law, slope_s=9e-9),
    )
    text = shown((record, advice), 150)
    assert "1110 years ±0.4%" in text
    assert "10,000,000,000 samples in batches of 128" in text
    assert "7 ms + 9 ns x batch" in text


def test_an_empty_record_can_be_shown():
    record = RunRecord(
        state="failed", started_at="", command=(), script=ScriptInfo(path="train.py"), goal=Goal()
    )
    _, advice = samples.nothing_fits()
    text = shown((record, advice))
    assert "not known: no device was found" in text
    assert "none was tried" in text


def advised(record, width=200):
    """What is shown of a record on paper."""
    return shown((record, advise(record)), width)


def test_several_steps_on_a_batch():
    record, advice = samples.cpu()
    record = replace(record, discovery=replace(record.discovery, steps_per_batch=4))
    training = replace(advice.training, steps_per_batch=4)
    text = shown((record, replace(advice, training=training)), width=150)
    assert "16 → 128 samples per batch; 4 optimizer steps on each" in text
    assert "step: all 4 optimizer steps on a batch together" in text


def test_several_optimizers_and_none():
    record, advice = samples.cpu()
    adam = builders.learning_rates("AdamW", 0.001, 0.0028)
    both, none = (
        shown((record, replace(advice, training=replace(advice.training, learning_rates=rates))))
        for rates in ((*advice.training.learning_rates, *adam), ())
    )
    assert "learning rate    SGD: 0.1 → 0.8 as" in both
    assert "learning rate    AdamW: 0.001 → 0.0028 as" in both
    assert "learning rate    not known: no optimizer was seen" in none


def test_steps_that_nobody_could_count():
    record, advice = samples.cpu()
    why = "not as many for each"
    tail = replace(advice.tail, steps_known=False)
    unavailable = {**advice.unavailable, "training": why}
    unknown = replace(advice, training=None, tail=tail, unavailable=unavailable)
    text = shown((record, unknown), width=150)
    assert f"not known: {why}" in text
    assert "batches per epoch" in text
    assert "optimizer step" not in text


def with_samples(num_samples):
    """The stored run, had its data set held so many samples."""
    record = read_record(Path(__file__).parents[1] / "data/records/char_gpt_cpu.json")
    loaders = tuple(replace(each, num_samples=num_samples) for each in record.discovery.loaders)
    record = replace(record, discovery=replace(record.discovery, loaders=loaders))
    return record, advise(record)


def test_a_harmless_tail_is_not_remarked_upon():
    record, advice = with_samples(15_625)
    assert advice.recommended.batch_size == 40
    assert (advice.tail.last_batch, advice.tail.harmful) == (25, False)
    text = " ".join(shown((record, advice)).split())
    assert "the last batch holds 25 (62% of a full one). A step of 25 samples was" in text
    assert "weighs" not in text
    assert "without a harmful tail" not in text
    assert "nearby" not in text.lower()


def test_a_harmful_tail_stands_once():
    record, advice = with_samples(15_601)
    assert advice.recommended.batch_size == 40
    assert advice.tail.harmful
    text = " ".join(shown((record, advice)).split())
    assert text.count(" weighs ") == 1
    assert text.count("without a harmful tail") == 1
    assert "47 (predicted 531/s)" in text
    alone = replace(advice, findings=())
    assert "Nearby, without a harmful tail" in shown((record, alone), 200)


@pytest.mark.parametrize("reduction", [None, "mean", "sum", "contrastive"])
def test_the_loss_and_what_it_makes_of_a_short_batch(reduction):
    """What an older record knows of the loss is not asked."""
    record, _ = with_samples(15_601)
    record = replace(record, loss=LossCheck(reduction=reduction))
    text = " ".join(shown((record, advise(record))).split())
    asked = (
        "The loss is taken as a mean over the batch. If it is a sum, or compares samples "
        "(contrastive), ask: batchadvisor tails --samples 15601 --batch-size 40 --loss sum"
    )
    assert text.count(asked) == (reduction is None)
    assert ("under a mean loss" in text) is (reduction in ("mean", None))
    assert ("negatives" in text) is (reduction == "contrastive")
    assert ("without a harmful tail" in text) is (reduction != "sum")
    harmless, _ = with_samples(15_625)
    assert "The loss " not in shown((harmless, advise(harmless)))


def test_shares_are_shown_as_they_were_asked_for():
    """Half a percent is not 0 %, and 12.5 % not 12 %."""
    record, _ = samples.cpu()
    goal = Goal(tolerance=0.005, margin=0.125)
    text = shown((record, advise(record, goal)), width=120)
    assert "within 0.5% of the best throughput; 12.5% of the memory left free." in text
    chart = throughput(record, advise(record, goal), size_rows(record, advise(record, goal)))
    assert [band.label for band in chart.bands] == ["within 0.5% of the fastest"]


def test_a_size_that_failed_after_it_ran_says_so():
    record, advice = samples.gpu()
    late = builders.failed(9, 256, "out_of_memory", "no memory left", purpose="confirm")
    record = replace(record, trials=(*record.trials, late))
    assert "ok, then out of memory  fastest" in shown((record, advice), 150)
    assert "ok, then OOM" in shown((record, advice), 80)


def test_sizes_that_took_turns_are_said_to_be_without_drift():
    record, advice = samples.cpu()
    usual = shown((record, advice))
    turns = Turns(sizes=(16, 64), step_s=((0.1, 0.2), (0.1, 0.2)))
    last = builders.failed(len(record.trials), 64, "ok", "", kind="turns", turns=turns)
    compared = shown((replace(record, trials=(*record.trials, last)), advice))
    assert "±: half the interval of the median;" in usual
    assert "the median, without the machine's drift where sizes took turns;" in compared


def test_a_comparison_that_the_script_cut_short_says_nothing_of_its_sizes():
    record, advice = samples.cpu()
    largest = max(trial.batch_size for trial in record.trials if trial.ran)
    short = builders.failed(
        len(record.trials), largest, "script_ended", "it ended", kind="turns", purpose="search"
    )
    with_it = replace(record, trials=(*record.trials, short))
    rows = [
        [line for line in shown(sample).splitlines() if line.split()[:1] == [str(largest)]]
        for sample in ((record, advice), (with_it, advice))
    ]
    assert rows[0]
    assert rows[0] == rows[1]


def test_what_only_a_listing_shows_is_not_laid_at_the_scripts_door():
    record, advice = samples.cpu()
    told = FileTouched(path="out/model.db", action="write")
    listed = FileTouched(path="notes.txt", action="write", listed=True)
    text = shown((replace(record, files=(told, listed)), advice))
    own, _, other = text.partition("What else changed in the working folder")
    assert "What the script itself did to files\n  write  out/model.db\n" in own
    assert "notes.txt" not in own
    assert other.startswith("\n  write  notes.txt\n  By the script's databases")
    alone = shown((replace(record, files=(listed,)), advice))
    assert "What the script itself did" not in alone


@pytest.mark.parametrize(
    ("rule", "message"),
    [("noise", "step times vary by ±41%"), ("search.cut_short", "the budget ended it")],
)
def test_what_makes_an_answer_less_sure_stands_beside_the_sureness(rule, message):
    record, advice = samples.cpu()
    doubt = Finding(rule=rule, severity="warning", message=message)
    sure = "Sureness: confirmed, measured again in a fresh process"
    assert f"{sure}.\n" in shown((record, advice))
    doubtful = replace(advice, findings=(*advice.findings, doubt))
    assert f"{sure}; {message}.\n" in shown((record, doubtful))


def test_no_clean_size_near_by_is_said():
    """37 samples: batches of 3, 4 and 5 all leave one or two over. The finding says it, once."""
    record = record_of([trial_of(4, 0.1)], discovery=discovery_of(native=4, num_samples=37))
    advice = advise(record)
    none = advice.tail.why_none_clean
    assert none.startswith("no size from 3 to ")
    assert shown((record, advice), 200).count(none) == 1
    assert f"{none.capitalize()}." in shown((record, replace(advice, findings=())), 200)


def test_dropped_samples_are_said_once():
    loader = loader_of(1001, batch_size=32, drop_last=True)
    text = advised(record_of([trial_of(32, 0.1)], discovery=discovery_of(32, loader=loader)))
    assert "9 samples dropped per epoch" in text
    assert text.lower().count("drop") == text.count("drop_last") + 1


def test_a_run_that_only_fitted_sizes_says_nothing_of_speed():
    trials = [trial_of(8, peak=2**29), trial_of(32, ordinal=1, peak=2**30)]
    text = advised(record_of(trials, goal=Goal(kind="memory")))
    assert "Memory was measured, neither speed nor accuracy" in text
    assert "Speed was measured" not in text


def test_why_a_last_batch_failed_stands_once():
    said = "ValueError: Expected more than 1 value per channel"
    check = TailCheck(num_samples=1, outcome="exception", detail=said)
    failed = trial_of(1, ordinal=1, purpose="tail", outcome="exception", detail=said, tail=check)
    discovery = discovery_of(native=13, num_samples=40)
    text = advised(record_of([trial_of(13, 0.1), failed], discovery=discovery), 160)
    assert text.count("Expected more than 1 value") == 1
    assert "A step of 1 sample was executed and failed, exception: see Findings" in text
