"""The answer on one screen: what it holds, and that it fits.

`BATCHADVISOR_UPDATE_GOLDEN=1 pytest tests/reports` writes the stored text anew; read the diff.
"""

import gzip
from pathlib import Path

import msgspec
import pytest
from batchadvisor.advisor.advise import advise
from batchadvisor.records import RunRecord
from batchadvisor.reports.builder.sections.circumstances import LESS_SURE
from batchadvisor.reports.builder.text import build_text
from batchadvisor.reports.terminal.brief import MOST_LINES, render
from msgspec.structs import replace
from rich.cells import cell_len

from . import samples
from .golden import agrees
from .terminal_text import EVERY, strip_codes

DATA = Path(__file__).parents[1] / "data"
RECORDED = [
    DATA / "records/char_gpt_cpu.json",
    *(DATA / f"h100/{name}.json.gz" for name in ("char_gpt", "imagenet", "nanogpt")),
]
ALL = "batchadvisor show runs/train-1"
NEXT = "batchadvisor view runs/train-1"


def brief(sample, width=80, color=False, **rest):
    return render(
        build_text(*sample), everything=ALL, next_command=NEXT, width=width, color=color, **rest
    )


def recorded(path):
    data = path.read_bytes()
    data = gzip.decompress(data) if path.suffix == ".gz" else data
    record = msgspec.json.decode(data, type=RunRecord)
    return record, advise(record)


@pytest.mark.parametrize("sample", EVERY, ids=lambda sample: sample.__name__)
def test_whole_text(sample):
    text = brief(sample())
    assert len(text.splitlines()) <= MOST_LINES
    agrees(f"{sample.__name__}-brief.txt", text)


def test_in_ascii():
    text = brief(samples.cpu(), encoding="ascii")
    assert text.isascii()
    agrees("cpu-brief-ascii.txt", text)


class TestOneScreen:
    @pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.name.partition(".")[0])
    @pytest.mark.parametrize("width", [80, 100, 200])
    def test_of_runs_as_they_were(self, path, width):
        text = brief(recorded(path), width)
        assert len(text.splitlines()) <= MOST_LINES

    def test_of_an_answer_with_many_words(self):
        """The rule and the gain stay; what qualifies them gives way to a line for warnings."""
        record, advice = recorded(DATA / "h100/char_gpt.json.gz")
        rule, gain = advice.reason.rstrip(".").split(". ")
        more = ". ".join(f"Sentence {number} of many that say a little more" for number in range(6))
        advice = replace(advice, reason=f"{rule}. {gain}. {more}.")
        lines = brief((record, advice)).splitlines()
        assert len(lines) <= MOST_LINES
        joined = " ".join(" ".join(lines).split())
        assert f"{rule}. {gain}." in joined
        assert "more: see all of it" in joined
        assert more in " ".join(brief((record, advice), width=400).split())

    @pytest.mark.parametrize("sample", EVERY, ids=lambda sample: sample.__name__)
    @pytest.mark.parametrize("width", [40, 60, 80, 100])
    def test_lines_fit_the_window(self, sample, width):
        for line in brief(sample(), width).splitlines():
            copied = line.startswith(("All of it: ", "Next: "))
            assert copied or cell_len(line) <= width, line
            assert line == line.rstrip()

    def test_colours_add_codes_and_nothing_else(self):
        assert "".join(strip_codes(brief(samples.gpu(), color=True))) == brief(samples.gpu())


class TestWhatItHolds:
    @pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.name.partition(".")[0])
    def test_which_size_why_what_to_type(self, path):
        record, advice = recorded(path)
        text = brief((record, advice))
        joined = " ".join(text.split())
        assert joined.startswith(advice.headline)
        assert advice.reason.partition(". ")[0] in joined
        assert advice.verdict.message in joined
        for line in (ALL, NEXT):
            assert line in text.splitlines()[-2:][0] + text.splitlines()[-1]

    def test_the_sizes_that_matter(self):
        record, advice = recorded(RECORDED[0])
        lines = brief((record, advice)).splitlines()
        rows = [line.split() for line in lines if line.split()[:1] and line.split()[0].isdigit()]
        shown = {int(row[0]) for row in rows}
        named = (advice.native, advice.recommended, advice.fastest, advice.largest)
        assert shown == {choice.batch_size for choice in named}

    def test_the_picture_rises_with_the_throughput(self):
        record, advice = recorded(RECORDED[0])
        line = next(line for line in brief((record, advice)).splitlines() if "█" in line)
        assert line.split() == ["samples/s", "▁", "▅", "▆", "▇", "█", "█", "█"]

    def test_a_picture_of_many_sizes_keeps_its_ends(self):
        record, advice = recorded(RECORDED[0])
        sizes = tuple(replace(advice.sizes[0], batch_size=size) for size in range(100, 200))
        lines = brief((record, replace(advice, sizes=sizes))).splitlines()
        (below,) = [line.split() for line in lines if line.startswith("batch  ")]
        assert (below[1], below[-1]) == ("100", "199")

    def test_what_has_no_room_is_counted(self):
        text = brief(recorded(DATA / "h100/char_gpt.json.gz"))
        assert "and 2 more: see all of it" in text.splitlines()

    def test_what_the_sureness_says_is_no_warning_too(self):
        record, advice = recorded(DATA / "h100/imagenet.json.gz")
        doubts = [each.message for each in advice.findings if each.rule in LESS_SURE]
        assert len(doubts) == 2
        text = " ".join(brief((record, advice), width=200).split())
        assert [text.count(doubt) for doubt in doubts] == [1, 1]
