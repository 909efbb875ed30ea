"""Markdown, compared whole with stored text, and what it does with hostile names."""

import re

import pytest
from batchadvisor.advisor.compare import compare
from batchadvisor.records import Distribution, Finding
from batchadvisor.reports.builder.comparison import build_comparison
from batchadvisor.reports.builder.run import build_report
from batchadvisor.reports.markdown.page import code
from batchadvisor.session.report import rendered
from msgspec.structs import replace

from . import samples
from .golden import agrees

EVERY = [samples.cpu, samples.gpu, samples.nothing_fits, samples.interrupted]


def render(report):
    return rendered(report, "Markdown")


def comparison(first, second):
    reports = [build_report(*record) for record in (first, second)]
    compared = compare(first[0], second[0], first[1], second[1])
    return build_comparison(compared, *reports, ("before", "after"))


@pytest.mark.parametrize("sample", EVERY, ids=lambda sample: sample.__name__)
def test_whole_text(sample):
    agrees(f"{sample.__name__}.md", render(build_report(*sample())))


def test_runs_of_different_numbers_of_ranks_are_not_called_slower():
    record, advice = samples.cpu()
    ranks = Distribution(world_size=2, launcher="torchrun", ranks=())
    job = replace(record, distribution=ranks)
    text = render(comparison((record, advice), (job, advice)))
    assert "### Ranks, 1 before, 2 after: x1.00 (" in text
    assert "samples per second for each rank" in text
    assert "those of one rank, of 1 in the first run and of 2 in the second" in text
    assert "Not the same in both runs" not in text


def test_the_best_of_both_stands_beside_like_for_like():
    """128 against 64 says nothing of a change to the script: the same size in both does."""
    compared = comparison(samples.cpu(), samples.interrupted())
    assert compared.headline.startswith("Slower: x0.93 (")
    assert "(128 before, 64 after); like for like, 64 in both: x1.00 (" in compared.headline
    assert compared.headline.endswith("), cannot tell")
    same = comparison(samples.cpu(), samples.cpu())
    assert "like for like" not in same.headline
    record, advice = samples.interrupted()
    only = tuple(trial for trial in record.trials if trial.batch_size == 64)
    elsewhere = replace(advice.recommended, batch_size=60, trial=0)
    other = (
        replace(
            record,
            trials=tuple(replace(trial, batch_size=60, arrived_batch_size=60) for trial in only),
        ),
        replace(advice, recommended=elsewhere, fastest=elsewhere, largest=elsewhere, native=None),
    )
    assert "no size was timed in both" in comparison(samples.cpu(), other).headline


def test_whole_comparison():
    agrees("comparison.md", render(comparison(samples.cpu(), samples.interrupted())))


def test_hostile_texts_stay_texts():
    record, advice = samples.cpu()
    evil = "<img src=x onerror=alert(1)> | [a](javascript:x) **b** @user `c` https://evil.example"
    finding = Finding(rule="r", severity="error", message=evil, remedy=evil)
    advice = replace(advice, headline=evil, reason=evil, change=evil, findings=(finding,))
    record = replace(record, command=(evil,))
    text = render(build_report(record, advice))
    outside = re.sub(r"(`+) ?.*?(?<!`)\1(?!`)", "", text)
    outside = re.sub(r"<(/?(details|summary|br)|!-- [a-z ]+ --)>", "", outside)
    assert not re.search(r"(?<!\\)[<>]", outside.replace("> Measured", ""))
    assert not re.search(r"(?<!\\)\[a", outside)
    assert "https\\://" in outside
    assert not re.search(r"(?<!\\)@user", outside)


def test_every_row_has_as_many_cells_as_the_head():
    text = render(build_report(*samples.gpu()))
    widths = [len(re.findall(r"(?<!\\)\|", line)) for line in text.splitlines() if line[:1] == "|"]
    assert len(widths) > 8
    table = [paragraph for paragraph in text.split("\n\n") if paragraph.startswith("|")]
    for rows in table:
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in rows.splitlines()}) == 1


@pytest.mark.parametrize("text", ["plain", "a`b", "``", "`"])
def test_code_spans_end_where_they_should(text):
    span = code(text)
    fence = re.match("`+", span)[0]
    assert span.endswith(fence)
    assert fence not in re.findall("`+", text)
