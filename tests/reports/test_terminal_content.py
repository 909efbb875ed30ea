"""What the terminal report says of a run, and that it says it once."""

from pathlib import Path

import msgspec
import pytest
from batchadvisor.advisor.advise import advise
from batchadvisor.records import FileTouched, Finding, Goal, TailCheck, Turns
from batchadvisor.records.checks import LossCheck
from batchadvisor.reports.builder.charts.sweep import throughput
from batchadvisor.reports.builder.sizes.rows import size_rows
from batchadvisor.reports.builder.text import build_text
from batchadvisor.reports.terminal.answer import render
from batchadvisor.session.recording.store import read_record

from ..on_paper import discovery_of, loader_of, record_of, trial_of
from . import builders, samples
from .terminal_text import shown


def test_several_steps_on_a_batch():
    record, advice = samples.cpu()
    discovery = msgspec.structs.replace(record.discovery, steps_per_batch=4)
    training = msgspec.structs.replace(advice.training, steps_per_batch=4)
    text = shown(
        (
            msgspec.structs.replace(record, discovery=discovery),
            msgspec.structs.replace(advice, training=training),
        ),
        width=150,
    )
    assert "16 → 128 samples per batch; 4 optimizer steps on each" in text
    assert "step: all 4 optimizer steps on a batch together" in text


def test_several_optimizers():
    record, advice = samples.cpu()
    rates = (
        *builders.learning_rates("SGD", 0.1, 0.8),
        *builders.learning_rates("AdamW", 0.001, 0.0028),
    )
    for used, expected in (
        (
            rates,
            ("learning rate    SGD: 0.1 → 0.8 as", "learning rate    AdamW: 0.001 → 0.0028 as"),
        ),
        ((), ("learning rate    not known: no optimizer was seen",)),
    ):
        training = msgspec.structs.replace(advice.training, learning_rates=used)
        text = shown((record, msgspec.structs.replace(advice, training=training)))
        for words in expected:
            assert words in text


def test_steps_that_nobody_could_count():
    record, advice = samples.cpu()
    why = "not as many for each"
    tail = msgspec.structs.replace(advice.tail, steps_known=False)
    unavailable = {**advice.unavailable, "training": why}
    unknown = msgspec.structs.replace(advice, training=None, tail=tail, unavailable=unavailable)
    text = shown((record, unknown), width=150)
    assert f"not known: {why}" in text
    assert "batches per epoch" in text
    assert "optimizer step" not in text


def with_samples(num_samples):
    """The stored run, had its data set held so many samples."""
    record = read_record(Path(__file__).parents[1] / "data/records/char_gpt_cpu.json")
    discovery = record.discovery
    loaders = tuple(
        msgspec.structs.replace(loader, num_samples=num_samples) for loader in discovery.loaders
    )
    record = msgspec.structs.replace(
        record, discovery=msgspec.structs.replace(discovery, loaders=loaders)
    )
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
    alone = msgspec.structs.replace(advice, findings=())
    assert "Nearby, without a harmful tail" in shown((record, alone), 200)


@pytest.mark.parametrize("reduction", [None, "mean", "sum", "contrastive"])
def test_the_loss_and_what_it_makes_of_a_short_batch(reduction):
    """What an older record knows of the loss is not asked."""
    record, _ = with_samples(15_601)
    record = msgspec.structs.replace(record, loss=LossCheck(reduction=reduction))
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


def test_unknowns_give_their_reason():
    text = shown(samples.interrupted())
    assert "no peak memory at 64: /proc is not mounted" in text
    assert "no input wait at 64: the loader could not be timed" in text
    assert "not known: nothing says how long an epoch is" in text
    assert "nan" not in text
    assert "None" not in text


def test_a_size_that_failed_after_it_ran_says_so():
    record, advice = samples.gpu()
    late = builders.failed(9, 256, "out_of_memory", "no memory left", purpose="confirm")
    record = msgspec.structs.replace(record, trials=(*record.trials, late))
    assert "ok, then out of memory  fastest" in shown((record, advice), 150)
    assert "ok, then OOM" in shown((record, advice), 80)


def test_sizes_that_took_turns_are_said_to_be_without_drift():
    record, advice = samples.cpu()
    usual = shown((record, advice))
    turns = Turns(sizes=(16, 64), step_s=((0.1, 0.2), (0.1, 0.2)))
    last = builders.failed(len(record.trials), 64, "ok", "", kind="turns", turns=turns)
    compared = shown((msgspec.structs.replace(record, trials=(*record.trials, last)), advice))
    assert "±: half the interval of the median;" in usual
    assert "the median, without the machine's drift where sizes took turns;" in compared


def test_a_comparison_that_the_script_cut_short_says_nothing_of_its_sizes():
    record, advice = samples.cpu()
    largest = max(trial.batch_size for trial in record.trials if trial.ran)
    short = builders.failed(
        len(record.trials), largest, "script_ended", "it ended", kind="turns", purpose="search"
    )
    with_it = msgspec.structs.replace(record, trials=(*record.trials, short))
    rows = [
        [line for line in shown(sample).splitlines() if line.split()[:1] == [str(largest)]]
        for sample in ((record, advice), (with_it, advice))
    ]
    assert rows[0]
    assert rows[0] == rows[1]


def test_a_confirmed_trial_stands_for_its_size_and_tails_have_no_row():
    record, advice = samples.cpu()
    lines = [line for line in shown((record, advice)).splitlines() if line.startswith("    256")]
    assert len(lines) == 1
    assert "188" in lines[0]  # confirmed: 188.0 ms; searched: 188.9 ms


def test_a_noisy_machine_stands_beside_the_sureness():
    record, advice = samples.cpu()
    noise = Finding(rule="noise", severity="warning", message="step times vary by ±41%")
    noisy = msgspec.structs.replace(advice, findings=(*advice.findings, noise))
    sure = "Sureness: confirmed, measured again in a fresh process"
    assert f"{sure}.\n" in shown((record, advice))
    assert f"{sure}; step times vary by ±41%.\n" in shown((record, noisy))


def test_a_search_that_was_cut_short_stands_beside_the_sureness():
    record, advice = samples.cpu()
    short = Finding(rule="search.cut_short", severity="warning", message="the budget ended it")
    findings = (*advice.findings, short)
    text = shown((record, msgspec.structs.replace(advice, findings=findings)))
    assert "measured again in a fresh process; the budget ended it.\n" in text


def test_many_files_are_counted():
    text = shown(samples.gpu())
    assert "out/sample_09.png" in text
    assert "out/sample_10.png" not in text
    assert "and 4 more, see the record" in text


def test_what_only_a_listing_shows_is_not_laid_at_the_scripts_door():
    record, advice = samples.cpu()
    told = FileTouched(path="out/model.db", action="write")
    listed = FileTouched(path="notes.txt", action="write", listed=True)
    text = shown((msgspec.structs.replace(record, files=(told, listed)), advice))
    own, _, other = text.partition("What else changed in the working folder")
    assert "What the script itself did to files\n  write  out/model.db\n" in own
    assert "notes.txt" not in own
    assert other.startswith("\n  write  notes.txt\n  By the script's databases")
    alone = shown((msgspec.structs.replace(record, files=(listed,)), advice))
    assert "What the script itself did" not in alone


def test_no_clean_size_near_by_is_said():
    """37 samples: batches of 3, 4 and 5 all leave one or two over. The finding says it, once."""
    record = record_of([trial_of(4, 0.1)], discovery=discovery_of(native=4, num_samples=37))
    advice = advise(record)
    text = render(build_text(record, advice), files=[], next_command="", width=200, color=False)
    none = advice.tail.why_none_clean
    assert none.startswith("no size from 3 to ")
    assert text.count(none) == 1
    told = msgspec.structs.replace(advice, findings=())
    text = render(build_text(record, told), files=[], next_command="", width=200, color=False)
    assert f"{none.capitalize()}." in text


def test_dropped_samples_are_said_once():
    loader = loader_of(1001, batch_size=32, drop_last=True)
    record = record_of([trial_of(32, 0.1)], discovery=discovery_of(native=32, loader=loader))
    text = render(
        build_text(record, advise(record)), files=[], next_command="", width=200, color=False
    )
    assert "9 samples dropped per epoch" in text
    assert text.lower().count("drop") == text.count("drop_last") + 1


def test_a_run_that_only_fitted_sizes_says_nothing_of_speed():
    trials = [trial_of(8, peak=2**29), trial_of(32, ordinal=1, peak=2**30)]
    record = record_of(trials, goal=Goal(kind="memory"))
    text = render(
        build_text(record, advise(record)), files=[], next_command="", width=100, color=False
    )
    assert "Memory was measured, neither speed nor accuracy" in text
    assert "Speed was measured" not in text


def test_why_a_last_batch_failed_stands_once():
    said = "ValueError: Expected more than 1 value per channel"
    check = TailCheck(num_samples=1, outcome="exception", detail=said)
    trials = [
        trial_of(13, 0.1),
        trial_of(1, ordinal=1, purpose="tail", outcome="exception", detail=said, tail=check),
    ]
    record = record_of(trials, discovery=discovery_of(native=13, num_samples=40))
    text = render(
        build_text(record, advise(record)), files=[], next_command="", width=160, color=False
    )
    assert text.count("Expected more than 1 value") == 1
    assert "A step of 1 sample was executed and failed, exception: see Findings" in text
