"""What was tried as tables, findings and text; in every format, and again from the folder."""

import json

import pytest
from batchadvisor.advisor.advise import advise
from batchadvisor.features.remedies import store
from batchadvisor.features.remedies.page import build_remedies, findings_of, table_of
from batchadvisor.features.remedies.records import (
    Ceiling,
    NumbersChecked,
    Remedies,
    TriedRemedy,
)
from batchadvisor.features.remedies.words import all_gained, headline
from batchadvisor.records import SourceLine, Spread
from batchadvisor.reports.terminal.document import render
from batchadvisor.session.answer import answer_json, answer_text
from batchadvisor.session.recording.store import read_record
from batchadvisor.session.report import rendered, report_of
from msgspec.structs import replace

from ..pages import ROOT

RECORD = ROOT / "tests/data/records/char_gpt_cpu.json"
GIB = 1 << 30


def gain(low, middle, high):
    return Spread(median=middle, low=low, high=high, num_samples=6, confidence=0.98)


BF16 = TriedRemedy(
    name="amp",
    change="bf16 autocast",
    outcome="gain",
    gain=gain(1.5, 1.6, 1.7),
    peak_bytes=GIB,
    usual_bytes=2 * GIB,
    numbers=NumbersChecked(num_steps=6, loss=0.004, gradients=0.02),
    place=SourceLine(file="train.py", line=40),
    code=('with torch.autocast("cpu", dtype=torch.bfloat16):', "    loss = step(batch)"),
)
FP16 = TriedRemedy(
    name="fp16",
    change="fp16 with a scaler",
    outcome="wrong numbers",
    gain=gain(1.8, 1.9, 2.0),
    numbers=NumbersChecked(num_steps=2, finite=False),
    reason="the loss is not finite any more",
)
COMPILE = TriedRemedy(
    name="compile",
    change="torch.compile",
    outcome="no gain",
    gain=gain(0.98, 1.0, 1.01),
    numbers=NumbersChecked(num_steps=6, loss=0.0, gradients=0.0),
    reason="graph break at train.py:31: Tensor.item()",
)
FUSED, WORKERS, REFUSED = (
    TriedRemedy(name=name, change=change, outcome=outcome, reason=reason)
    for name, change, outcome, reason in (
        ("fused", "fused optimizer", "in use", "its optimizer is fused"),
        ("workers", "2 data workers", "not tried", "it cannot help"),
        ("threads", "1 thread", "failed", "RuntimeError: no"),
    )
)
ALL = Remedies(
    asked=("all",),
    batch_size=32,
    device="a CPU",
    samples_per_s=100.0,
    tried=(WORKERS, REFUSED, COMPILE, FP16, FUSED, BF16),
    ceilings=(Ceiling(num_workers=0, samples_per_s=120.0),),
    budget_s=360.0,
    spent_s=90.0,
    state="finished",
)


def loaded(load):
    return replace(ALL, tried=(*ALL.tried[:-1], replace(BF16, load=load)))


class TestTable:
    def test_what_ran_has_a_row_the_best_first(self):
        cells = [row.cells for row in table_of(ALL).rows]
        assert cells == [
            ("bf16 autocast", "x1.60 (1.50 to 1.70)", "2.00 → 1.00 GiB", "0.4% off"),
            ("torch.compile", "no gain (0.98 to 1.01)", "-", "the same"),
            ("fp16 with a scaler", "wrong numbers (1.80 to 2.00)", "-", "not finite"),
        ]

    def test_what_did_not_run_says_why(self):
        assert {
            "In use already: fused optimizer: its optimizer is fused.",
            "Not tried: 2 data workers: it cannot help.",
            "1 thread: failed: RuntimeError: no.",
            "torch.compile: graph break at train.py:31: Tensor.item().",
            "The loader alone gives, in samples/s by its number of workers: 120 with 0.",
        } <= set(table_of(ALL).notes)
        (*_, last) = table_of(replace(ALL, state="interrupted", reason="Ctrl-C")).notes
        assert last == "It is not complete: Ctrl-C."

    def test_what_was_compared_beside_others_says_so(self):
        load = "other programs used 1.2 of 2 cores"
        (*_, note, _loader, _losses, _took) = table_of(loaded(load)).notes
        assert note == (
            "Timed beside other programs, alone the gains may differ: bf16 autocast "
            "(other programs used 1.2 of 2 cores)."
        )
        assert headline(loaded(load)).endswith("with bf16 autocast, beside other programs")
        (finding,) = findings_of(loaded(load))
        assert "with bf16 autocast, beside other programs; the loss" in finding.message
        assert not any("beside" in text for text in (*table_of(ALL).notes, headline(ALL)))


class TestFindings:
    def test_only_what_gained_is_recommended(self):
        (finding,) = findings_of(ALL)
        assert "x1.60 (1.50 to 1.70) with bf16 autocast" in finding.message
        assert "the loss differs by 0.4%, gradients by 2% (6 steps)" in finding.message
        assert finding.remedy == "write at train.py:40:"
        assert finding.code == BF16.code

    @pytest.mark.parametrize(
        ("its", "first"),
        [((1.2, 1.3, 1.4), "amp"), ((1.4, 1.58, 1.7), "amp+fused"), ((2.0, 2.1, 2.2), "amp+fused")],
    )
    def test_two_together_come_first_unless_one_alone_surely_gains_more(self, its, first):
        both = replace(BF16, name="amp+fused", change="both", gain=gain(*its))
        remedies = replace(ALL, together=both)
        assert [each.name for each in all_gained(remedies)].index(first) == 0
        assert headline(remedies).endswith(
            "with both, confirmed together" if first == "amp+fused" else "with bf16 autocast"
        )

    def test_a_loss_that_is_no_number_is_never_the_headline(self):
        assert "bf16" in headline(ALL)
        assert headline(replace(ALL, tried=(FP16,))) == "no remedy of 1 that ran gains"
        assert headline(replace(ALL, tried=(WORKERS,))) == "no remedy was measured"


class TestText:
    @pytest.mark.parametrize("width", [40, 80, 200])
    def test_lines_fit_and_the_code_is_whole(self, width):
        text = render(build_remedies(ALL), width=width, color=False)
        indent = " " * (6 if width < 60 else 13)
        code = [f"{indent}{line}" for line in BF16.code]
        assert all(line in text.splitlines() for line in code)
        assert all(len(line) <= width for line in text.splitlines() if line not in code)
        is_table = ["remedy", "gain", "peak", "loss"] in [
            line.split() for line in text.splitlines()
        ]
        assert is_table or width < 80

    def test_it_says_how_the_diff_is_applied(self):
        def shown(best):
            remedies = replace(ALL, tried=(best,))
            return render(build_remedies(remedies, diff="out/a.diff"), width=80, color=False)

        assert "git apply out/a.diff" in shown(replace(BF16, diff="--- a/train.py"))
        assert "none, for its lines move" in shown(replace(BF16, no_diff="its lines move"))
        assert "git apply" not in shown(BF16)


class TestReports:
    @pytest.fixture
    def folder(self, tmp_path):
        (tmp_path / "record.json").write_bytes(RECORD.read_bytes())
        return tmp_path

    @pytest.mark.parametrize("kind", ["HTML", "Markdown", "JSON"])
    def test_a_report_shows_it_again(self, folder, kind):
        record = read_record(folder)
        assert "bf16 autocast" not in rendered(report_of(record, folder), kind)
        store.save(folder, ALL)
        text = rendered(report_of(record, folder), kind)
        assert "bf16 autocast" in text
        assert "torch.bfloat16" in text

    def test_so_does_the_whole_answer_for_people_and_machines(self, folder):
        record = read_record(folder)
        advice = advise(record)
        assert "remedies" not in json.loads(answer_json(record, advice, folder))
        store.save(folder, ALL)
        text = answer_text(record, advice, folder, width=100, color=False)
        assert "Remedies tried at batch 32" in text
        assert "dtype=torch.bfloat16" in text
        found = json.loads(answer_json(record, advice, folder))["remedies"]
        assert [each["name"] for each in found["tried"]] == [each.name for each in ALL.tried]

    def test_a_file_that_is_broken_adds_nothing(self, folder):
        (folder / store.FILE).write_text('{"version": ')
        assert rendered(report_of(read_record(folder), folder), "Markdown")
        assert store.read(folder) is None
