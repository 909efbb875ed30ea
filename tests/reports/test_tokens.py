"""Tokens in every format, of a record made by hand."""

import pytest
from batchadvisor.advisor.advise import advise
from batchadvisor.records import Profile, TokenLengths, Tokens
from batchadvisor.reports.builder.charts.breakdown import step_time
from batchadvisor.reports.builder.run import build_report
from batchadvisor.reports.builder.sections.tokens import token_facts
from batchadvisor.reports.builder.sizes.columns import sizes_table
from batchadvisor.reports.builder.sizes.rows import size_rows
from batchadvisor.spread import scaled
from msgspec.structs import replace

from ..on_paper import discovery_of, numbered, record_of
from .builders import timed
from .samples import CPU

REAL = {
    "evidence": "attention mask",
    "real_per_step": 37.0,
    "positions_per_step": 74.0,
    "padding_share": 0.5,
    "lengths": TokenLengths(num_sequences=9, shortest=3, median=37.0, longest=90),
}
UNKNOWN = {
    "evidence": "shape",
    "positions_per_step": 64.0,
    "unavailable": {"padding_share": "no mask", "real_per_s": "no mask", "lengths": "no mask"},
}


def with_tokens(fields, sizes=(8, 16)):
    """A record of trials whose tokens are so many a sample."""
    trials = []
    for place, size in enumerate(sizes):
        trial = timed(place, size, 0.05 + size * 0.001, 10**9)
        steps = {key: fields[key] * size for key in fields if key.endswith("per_step")}
        rates = {
            f"{what}_per_s": scaled(trial.samples_per_s, fields[f"{what}_per_step"])
            for what in ("real", "positions")
            if f"{what}_per_step" in fields
        }
        tokens = Tokens(num_batches=20, **{**fields, **steps, **rates})
        trials.append(replace(trial, tokens=tokens))
    return record_of(numbered(*trials), device=CPU, discovery=discovery_of(native=8))


def columns_of(record):
    table = sizes_table(record, size_rows(record, advise(record)))
    return {column.key: column for column in table.columns}, table


def test_columns_of_real_tokens():
    columns, table = columns_of(with_tokens(REAL))
    rate = 8 / 0.058 * 37
    assert float(columns["tokens"].cells[0]) == pytest.approx(rate, rel=0.05)
    assert columns["padding"].cells == ("50", "50")
    assert table.legend["tokens"] == "tokens: without padding"


def test_columns_of_positions():
    columns, table = columns_of(with_tokens(UNKNOWN))
    assert float(columns["tokens"].cells[0]) == pytest.approx(8 / 0.058 * 64, rel=0.05)
    assert "padding" not in columns
    assert "padding, if any, included" in table.legend["tokens"]


def test_no_columns_and_no_line_without_tokens():
    trials = numbered(timed(0, 8, 0.05, 10**9))
    record = record_of(trials, device=CPU, discovery=discovery_of(native=8))
    columns, _ = columns_of(record)
    assert not {"tokens", "padding"} & set(columns)
    assert token_facts(size_rows(record, advise(record))) == []


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        (REAL, "74 tokens a sample at batch"),
        (REAL, "50% of them padding (attention mask)"),
        (REAL, "sequences of 3 to 90, half of them above 37"),
        ({**REAL, "evidence": "run of one id"}, "(run of one id, no proof)"),
        ({**REAL, "trained_per_step": 18.5}, "25% of all positions have a label that counts"),
        ({**REAL, "padding_share": 0.0}, "none of them padding (attention mask)"),
        (UNKNOWN, "64 tokens a sample"),
        (UNKNOWN, "padding not known: no mask."),
    ],
)
def test_the_line(fields, words):
    record = with_tokens(fields)
    ((label, text),) = token_facts(size_rows(record, advise(record)))
    assert label == "Tokens"
    assert words in text


def test_a_share_of_the_step_is_shared_by_samples_and_not_by_the_budget():
    """Batches of 16 samples, of a budget of 512 tokens, take 0.1 s."""
    profile = Profile(operators_pct=100.0, input_wait_pct=0.0)
    trial = timed(0, 512, 0.1, 10**9, profile=profile, mean_arrived=16.0)
    record = record_of((trial,), device=CPU, discovery=discovery_of(native=512))
    chart = step_time(size_rows(record, advise(record)))
    assert chart.series[0].texts[0].startswith("98% (6.1")
    assert chart.series[0].texts[0].endswith(" ms)")


def test_the_report_in_base_units():
    known, unknown = (
        build_report(record, advise(record)).devices[0].sizes[0]
        for record in (with_tokens(REAL), with_tokens(UNKNOWN))
    )
    assert known.real_tokens_per_s.median == pytest.approx(8 / 0.058 * 37, rel=0.01)
    assert known.positions_per_s.median == pytest.approx(8 / 0.058 * 74, rel=0.01)
    assert (known.padding_pct, known.token_evidence) == (50.0, "attention mask")
    assert (unknown.real_tokens_per_s, unknown.padding_pct) == (None, None)
    assert unknown.unavailable["padding_pct"] == "no mask"
    assert unknown.unavailable["real_tokens_per_s"] == "no mask"
