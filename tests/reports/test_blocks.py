"""One page of every block, in three formats; tables in windows of any width."""

import re

import pytest
from batchadvisor.reports.blocks import (
    Charts,
    Code,
    Command,
    Document,
    Facts,
    Grid,
    Paragraph,
    Section,
)
from batchadvisor.reports.chart import Chart, Series
from batchadvisor.reports.html.document import render as html
from batchadvisor.reports.markdown.document import render as markdown
from batchadvisor.reports.report import Column, Fact, Finding, LimitText, LongTable, Row, Table
from batchadvisor.reports.terminal.document import render as terminal

from .golden import agrees

EVIL = "<script>alert(1)</script> `|` \x1b[31m_x_"
CHART = Chart(
    key="speed", title="Speed", x_label="batch", x_scale="linear", x=(1.0, 2.0), y_label="1/s",
    unit="1/s",
    series=(Series(key="a", label="measured", kind="measured", color=1, values=(1.0, 2.0)),),
)  # fmt: skip
COLUMNS = (Column(title="name", left=True), Column(title="speed", unit="1/s"), Column(title="peak"))
TABLE = Table(
    title="Sizes",
    columns=COLUMNS,
    rows=(
        Row(cells=("first", "1.0", "2 GiB"), marks=("recommended",)),
        Row(cells=("second", "22.5", "-"), state="failed"),
    ),
    notes=("All of them ran.",),
)


def page(text="plain words", shown="everywhere"):
    return Document(
        kind="a page",
        title="of every block",
        headline=f"The answer is {text}",
        blocks=(
            Paragraph(text=f"Beware of {text}.", tone="warning"),
            Section(title="Facts", blocks=(Facts(facts=(Fact(label="what", text=text),)),)),
            Section(title="Sizes", blocks=(TABLE, Paragraph(text=text, label="Sure"))),
            Section(title="Listed", blocks=(Grid(table=TABLE, most_rows=1, more="--all"),)),
            Section(title="Curves", blocks=(Charts(charts=(CHART,)),), shown="files"),
            Section(
                title="What helps",
                blocks=(
                    LimitText(limit="input", message=text, remedy="more workers"),
                    Finding(severity="warning", message=text, evidence="9 of 10", remedy="do"),
                    Finding(severity="info", message="again", estimate=True, code=("a = 1",)),
                ),
            ),
            Section(
                title=f"To paste: {text}", blocks=(Code(text="b = 2\n"),), shown=shown, folded=True
            ),
            Section(title="Brief", blocks=(Paragraph(text="short"),), shown="window"),
            Section(blocks=(Command(label="Now", text="batchadvisor run 'a b.py'"),)),
        ),
    )


class TestEveryFormat:
    """Each block is in each format, or the page says for which it is."""

    def test_terminal(self):
        text = terminal(page(), width=80, color=False, next_command="batchadvisor view")
        agrees("blocks-80.txt", text)

    def test_markdown(self):
        agrees("blocks.md", markdown(page()))

    def test_html(self):
        """All but what is the same on every page, and the drawings."""
        text = html(page())
        body = text.partition("<body>")[2].partition("<footer")[0]
        agrees("blocks.html", re.sub(r"<svg.*?</svg>", "<svg/>", body, flags=re.DOTALL))
        assert '"c-speed":{' in text

    def test_what_is_for_files_alone(self):
        text = terminal(page(shown="files"), width=80, color=False)
        assert "To paste" not in text
        assert "Curves" not in text
        assert "Curves" not in markdown(page())
        assert "b = 2" in markdown(page(shown="files"))

    def test_a_long_table_is_cut_in_markdown_alone(self):
        rows = tuple(Row(cells=(str(at), "1", "2")) for at in range(30))
        document = Document(
            title="", headline="", blocks=(LongTable(title="Long", columns=COLUMNS, rows=rows),)
        )
        assert "20 further rows" in markdown(document)
        assert ">29</th>" in html(document)
        assert "\n  29 " in terminal(document, width=80, color=False)


class TestHostileText:
    def test_is_escaped_by_each_renderer(self):
        document = page(EVIL)
        text = terminal(document, width=80, color=False)
        assert "\x1b" not in text
        assert "<script>alert" in text
        assert "<script>alert" not in html(document)
        assert "&lt;script&gt;alert(1)" in html(document)
        assert "<script>alert" not in markdown(document)
        assert "\\<script\\>alert" in markdown(document)


def of(grid):
    return Document(title="", headline="", blocks=(Section(blocks=(grid,)),))


def lines_of(grid, width):
    return terminal(of(grid), width=width, color=False).splitlines()[1:]


def table(*rows, columns=COLUMNS):
    return Table(title="", columns=columns, rows=tuple(Row(cells=cells) for cells in rows))


ROW = ("a name of some length", "1234.5", "a peak of some length")
LEGEND = {"name": "name: who", "peak": "peak: at most"}
LONG = "folder/that/is/long/"
GPUS = "A100, H100, H200, B200, L4, T4, V100"
LAST = (Column(title="bytes"), Column(title="line", left=True))
LINES = table(("1 GiB", "a/long/path.py:12 " * 5), columns=LAST)
GRIDS = {
    "columns go in order and are named": (
        Grid(table=table(ROW), dropped_first=("speed 1/s", "peak")), (80, 48)),
    "a row without room is a sentence": (Grid(table=table(ROW)), (40,)),
    "the legend is of the columns that are shown": (
        Grid(table=table(ROW), dropped_first=("peak",), legend=LEGEND), (80, 40)),
    "ends stay as long as they tell rows apart": (
        Grid(table=table((f"{LONG}rank0", "1", "x" * 20), (f"{LONG}rank1", "1", "y")),
             ends="name"), (48,)),
    "the last text wraps": (Grid(table=LINES), (48,)),
    "the last text is cut": (Grid(table=LINES, cut=True), (48,)),
    "long names take several lines": (
        Grid(table=table((GPUS, "1", "x" * 8), ("T4", "2", "y"))), (55,)),
}  # fmt: skip


class TestNarrowWindows:
    """Lines fit, and say what they leave out."""

    @pytest.mark.parametrize("width", [40, 48, 60, 80, 120])
    def test_no_line_is_too_long(self, width):
        for grid in (
            Grid(table=table(ROW)),
            Grid(table=table(ROW), dropped_first=("peak",)),
            Grid(table=table(ROW), ends="name"),
            Grid(table=table((*ROW[:2], "word " * 40))),
            Grid(table=table((*ROW[:2], "word " * 40)), cut=True),
            Grid(table=table(("A100, " * 20 + "T4", "1", "2"))),
        ):
            lines = lines_of(grid, width)
            assert max(map(len, lines)) <= width
            assert any(ROW[0][-6:] in line or "A100" in line for line in lines)

    def test_what_is_left_out_is_named(self):
        lines = []
        for what, (grid, widths) in GRIDS.items():
            for width in widths:
                lines += [f"{what}, {width} columns:", *lines_of(grid, width), ""]
        agrees("narrow-windows.txt", "\n".join(lines))

    def test_files_have_the_whole_legend(self):
        grid, _ = GRIDS["the legend is of the columns that are shown"]
        for page_of in (html, markdown):
            assert "name: who; peak: at most." in page_of(of(grid))
