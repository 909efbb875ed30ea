"""Tokens in every format, of a record made by hand."""

import msgspec
import pytest
from batchadvisor.advisor.advise import advise
from batchadvisor.records import RunRecord, TokenLengths, Tokens
from batchadvisor.reports.builder.run import build_report
from batchadvisor.reports.builder.sections.tokens import token_facts
from batchadvisor.reports.builder.sizes.columns import sizes_table
from batchadvisor.reports.builder.sizes.rows import size_rows
from batchadvisor.spread import scaled

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
            "real_per_s": scaled(trial.samples_per_s, fields["real_per_step"])
            if "real_per_step" in fields
            else None,
            "positions_per_s": scaled(trial.samples_per_s, fields["positions_per_step"]),
        }
        tokens = Tokens(num_batches=20, **{**fields, **steps, **rates})
        trials.append(msgspec.structs.replace(trial, tokens=tokens))
    return record_of(numbered(*trials), device=CPU, discovery=discovery_of(native=8))


def columns_of(record):
    table = sizes_table(record, size_rows(record, advise(record)))
    return {column.key: column for column in table.columns}, table


def fact_of(record):
    ((label, text),) = token_facts(size_rows(record, advise(record)))
    return label, text


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
    record = record_of(
        numbered(timed(0, 8, 0.05, 10**9)), device=CPU, discovery=discovery_of(native=8)
    )
    columns, _ = columns_of(record)
    assert not {"tokens", "padding"} & set(columns)
    assert token_facts(size_rows(record, advise(record))) == []


def test_the_line():
    label, text = fact_of(with_tokens(REAL))
    assert label == "Tokens"
    assert "74 tokens a sample at batch" in text
    assert "50% of them padding (attention mask)" in text
    assert "sequences of 3 to 90, half of them above 37" in text


def test_the_line_where_padding_is_unknown():
    _, text = fact_of(with_tokens(UNKNOWN))
    assert "64 tokens a sample" in text
    assert text.endswith("padding not known: no mask.")


def test_the_line_where_nothing_is_padded():
    _, text = fact_of(with_tokens({**REAL, "padding_share": 0.0, "positions_per_step": 37.0}))
    assert "none of them padding (attention mask)" in text


def test_the_line_of_a_sign_that_is_no_proof():
    _, text = fact_of(with_tokens({**REAL, "evidence": "run of one id"}))
    assert "(run of one id, no proof)" in text


def test_the_line_of_labels_that_count():
    _, text = fact_of(with_tokens({**REAL, "trained_per_step": 18.5}))
    assert "25% of all positions have a label that counts" in text


def test_the_report_in_base_units():
    record = with_tokens(REAL)
    size = build_report(record, advise(record)).devices[0].sizes[0]
    assert size.real_tokens_per_s.median == pytest.approx(8 / 0.058 * 37, rel=0.01)
    assert size.positions_per_s.median == pytest.approx(8 / 0.058 * 74, rel=0.01)
    assert (size.padding_pct, size.token_evidence) == (50.0, "attention mask")


def test_the_report_says_why():
    record = with_tokens(UNKNOWN)
    size = build_report(record, advise(record)).devices[0].sizes[0]
    assert (size.real_tokens_per_s, size.padding_pct) == (None, None)
    assert size.unavailable["padding_pct"] == size.unavailable["real_tokens_per_s"] == "no mask"


def test_a_record_keeps_them():
    record = with_tokens(REAL)
    assert msgspec.json.decode(msgspec.json.encode(record), type=RunRecord) == record
