"""One page of every block, in three formats; tables in windows of any width."""

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
            Section(title="To paste", blocks=(Code(text="b = 2\n"),), shown=shown, folded=True),
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
        text = html(page())
        for part in (
            '<p class="kind">a page: of every block</p>',
            '<div class="notice">Beware of plain words.</div>\n</header>',
            "<dt>what</dt><dd>plain words</dd>",
            '<tr class="ok recommended"><th scope="row" class="left">first</th>',
            '<p class="note dim">All of them ran.</p>',
            'data-chart="c-speed" data-group="speed"',
            "<strong>input</strong>: plain words",
            '<div class="finding warning"><p><strong>warning</strong> plain words</p>',
            "<code>a = 1</code>",
            "<summary>To paste</summary><pre",
            "<strong>Now:</strong> <code>batchadvisor run &#39;a b.py&#39;</code>",
        ):
            assert part in text
        assert "Brief" not in text
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


class TestNarrowWindows:
    """Lines fit, and say what they leave out."""

    ROW = ("a name of some length", "1234.5", "a peak of some length")

    @pytest.mark.parametrize("width", [40, 48, 60, 80, 120])
    def test_no_line_is_too_long(self, width):
        for grid in (
            Grid(table=table(self.ROW)),
            Grid(table=table(self.ROW), dropped_first=("peak",)),
            Grid(table=table(self.ROW), ends="name"),
            Grid(table=table((*self.ROW[:2], "word " * 40))),
            Grid(table=table((*self.ROW[:2], "word " * 40)), cut=True),
            Grid(table=table(("A100, " * 20 + "T4", "1", "2"))),
        ):
            lines = lines_of(grid, width)
            assert max(map(len, lines)) <= width
            assert any(self.ROW[0][-6:] in line or "A100" in line for line in lines)

    def test_columns_go_in_order_and_are_named(self):
        grid = Grid(table=table(self.ROW), dropped_first=("speed 1/s", "peak"))
        assert "1234.5" in lines_of(grid, 80)[1]
        lines = lines_of(grid, 48)
        assert lines[1].endswith(self.ROW[2])
        assert lines[-1].strip() == "no room at 48 columns for speed 1/s."

    def test_a_row_without_room_is_a_sentence(self):
        lines = lines_of(Grid(table=table(self.ROW)), 40)
        assert " ".join(" ".join(lines).split()) == (
            "a name of some length: speed 1/s 1234.5, peak a peak of some length"
        )

    def test_the_legend_is_of_the_columns_that_are_shown(self):
        legend = {"name": "name: who", "peak": "peak: at most"}
        grid = Grid(table=table(self.ROW), dropped_first=("peak",), legend=legend)
        assert "name: who; peak: at most." in "".join(lines_of(grid, 80))
        assert "peak: at most" not in "".join(lines_of(grid, 40))
        assert "name: who; peak: at most." in html(of(grid))
        assert "name: who; peak: at most." in markdown(of(grid))

    def test_ends_stay_as_long_as_they_tell_rows_apart(self):
        rows = [
            ("folder/that/is/long/rank0", "1", "x" * 20),
            ("folder/that/is/long/rank1", "1", "y"),
        ]
        lines = lines_of(Grid(table=table(*rows), ends="name"), 48)
        assert lines[1].strip().startswith("...")
        assert "long/rank0" in lines[1]

    def test_the_last_text_wraps_or_is_cut(self):
        columns = (Column(title="bytes"), Column(title="line", left=True))
        rows = table(("1 GiB", "a/long/path.py:12 " * 5), columns=columns)
        assert len(lines_of(Grid(table=rows), 48)) > 2
        (_, line) = lines_of(Grid(table=rows, cut=True), 48)
        assert line.endswith("...")

    def test_long_names_take_several_lines(self):
        rows = table(("A100, H100, H200, B200, L4, T4, V100", "1", "x" * 8), ("T4", "2", "y"))
        header, first, second, other = lines_of(Grid(table=rows), 55)
        assert header.split() == ["name", "speed", "1/s", "peak"]
        assert first.split()[-2:] == ["1", "x" * 8]
        assert second.strip().endswith("V100")
        assert other.split() == ["T4", "2", "y"]
