"""Pictures of steps as data and as text: the numbers of the verdict, escaped, small."""

import functools
import gzip
import json
import re
import shutil
from pathlib import Path

import msgspec
import pytest
from batchadvisor.cli import cli
from batchadvisor.errors import UsageError
from batchadvisor.features.board import board as board_module
from batchadvisor.features.board.board import Board
from batchadvisor.features.board.html import show_run, show_traces
from batchadvisor.records import Distribution, RunRecord
from batchadvisor.reports.builder.anatomy import MAX_TRACES, of_analysis
from batchadvisor.reports.builder.traces import trace_page
from batchadvisor.reports.html import anatomy as html
from batchadvisor.reports.html import asset
from batchadvisor.reports.html.page import render_traces
from batchadvisor.reports.words.anatomy import IDLE
from batchadvisor.session.analyze import analyze_for_page
from batchadvisor.session.report import rendered, report_of
from batchadvisor.session.run_traces import pictures_of
from click.testing import CliRunner
from msgspec.structs import replace

from ..analyze import traces as made
from ..trace.test_anatomy import CAUSES, RECORDED, many
from ..trace.test_metrics import kernel, span
from ..trace.test_reference import TRACES

H100 = Path(__file__).parents[1] / "data/h100"
MAX_BYTES = 200_000
"""Of the pictures of a trace; a page with them stays below 300 kB."""
SHARES = {
    "DataLoader": "input_pct",
    "Python, dispatch": "host_pct",
    "launching": "launch_pct",
    "other calls": "call_pct",
    "synchronising": "synchronize_pct",
    "launch latency": "launch_latency_pct",
    "dependencies": "dependency_pct",
    "unknown launch": "unknown_pct",
    "tail": "tail_pct",
}


@functools.cache
def page_of(*paths):
    analysis, drawn = analyze_for_page(paths)
    return analysis, of_analysis(analysis, drawn)


def written(*paths):
    analysis, pictures = page_of(*paths)
    return render_traces(trace_page(analysis), pictures, "traces")


def numbers(text):
    """The inverse of `packed`."""
    values, value, place = [], 0, 0
    for digit in map(html._DIGITS.index, text):
        value |= (digit & 31) << place
        place += 5
        if not digit & 32:
            values.append(-(value >> 1) if value & 1 else value >> 1)
            value, place = 0, 0
    return values


def blocks(text):
    """(start, end, label, events, how long they took) of each block of a row."""
    left, found, end = numbers(text), [], 0
    while left:
        start = end + left.pop(0)
        end = start + left.pop(0)
        label = left.pop(0)
        count, total = (left.pop(0), left.pop(0)) if label < 0 else (1, end - start)
        found.append((start, end, ~label if label < 0 else label, count, total))
    return found


def data_of(text):
    return [
        json.loads(data)
        for data in re.findall(
            r'<script type="application/json" class="a-data">(.*?)</script>', text
        )
    ]


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.relative_to(TRACES).as_posix())
def test_the_table_of_gaps_is_the_verdicts_idle_time(path, recorded):
    """All steps together, cause by cause: what `analyze` and the verdict have as shares."""
    analysis, pictures = page_of(path)
    (drawn,) = pictures.traces
    on_gpu = [report for report in analysis.traces if report.profile.idle is not None]
    tables = [table for table in drawn.tables if table.title.startswith("Why ")]
    assert len(tables) == len(on_gpu)
    for report, table in zip(on_gpu, tables, strict=True):
        known = {row.cells[0]: float(row.cells[-2].replace(",", "")) for row in table.rows}
        window_us = report.window_s * 1e6
        for word, field in SHARES.items():
            share = getattr(report.profile.idle, field)
            assert known.get(word, 0.0) == pytest.approx(share * window_us / 100, abs=0.51), word
        assert known["idle together"] == pytest.approx(
            report.profile.idle.total_pct * window_us / 100, abs=0.51
        )
        assert set(SHARES) == set(IDLE.values())


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.relative_to(TRACES).as_posix())
def test_the_data_of_the_script_is_what_was_drawn(path, recorded):
    _, pictures = page_of(path)
    (drawn,) = pictures.traces
    (data,) = data_of(written(path))
    assert len(data["pictures"]) == len(drawn.pictures)
    for shape, picture in zip(data["pictures"], drawn.pictures, strict=True):
        assert shape["w"] == picture.step.window_ns
        for lane, of in zip(shape["lanes"], picture.step.lanes, strict=True):
            for text, row in zip(lane["r"], of.rows, strict=True):
                decoded = blocks(text)
                assert [(*block[:2], *block[3:]) for block in decoded] == list(
                    zip(row.start_ns, row.end_ns, row.num_events, row.total_ns, strict=True)
                )
                for (_, _, label, _, _), wanted in zip(decoded, row.label, strict=True):
                    kind, *names = data["labels"][label]
                    said = drawn.labels[wanted]
                    assert data["kinds"][kind] == said.kind
                    names = [data["names"][number] for number in [*names, 0, 0, 0, 0][:4]]
                    assert names == [said.name, said.operator, said.code, said.waits_for]


def own_bytes(text):
    """What the pictures add to a page: the drawings, their data, tables, script and style."""
    return len((section(text) + asset(html.SCRIPT) + asset(html.STYLE)).encode())


@pytest.mark.parametrize(
    "name",
    [
        "a100_ddp2_resnet_nccl_rank0.json.gz",
        "v100_ns_resolution_resnet_rank0.pt.trace.json.gz",
        "h100_torch26_qwen05b_bs16_infer.json.gz",
    ],
)
def test_a_page_of_real_steps_is_small(name, recorded):
    """The slowest of these steps holds 15,000 events; two are drawn."""
    assert own_bytes(written(recorded / name)) <= MAX_BYTES


def test_a_step_of_twenty_thousand_events_is_small_and_says_what_it_merged(write):
    path = write(many(6_700))
    text = written(path)
    assert own_bytes(text) <= MAX_BYTES
    assert re.search(r"20,100 events are drawn as [\d,]+ blocks: what is shorter than", text)


def test_hostile_names_are_escaped(write):
    evil = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\u2028{{7*7}}"
    events = [event | {"name": evil} if event["cat"] != "user_annotation" else event
              for event in CAUSES]  # fmt: skip
    events.append(span("user_annotation", f"ProfilerStep#{evil}", 300, 400))
    events.append(kernel(evil, 320, 390, 99, 50))
    text = written(write(events))
    assert "alert(1)" in text
    assert "<script>alert" not in text
    assert "<img" not in text
    assert "{{7*7}}" in text
    assert data_of(text)


def test_no_address_is_fetched_and_no_style_stands_beside_the_policy(recorded):
    text = written(recorded / "v100_8rank_dlrm/rank0.json.gz")
    body = re.sub(r"<(script|style)\b.*?</\1>", "", text, flags=re.DOTALL)
    assert not re.search(r"\b(src|href|srcset|action|poster|data)=", body)
    assert not re.search(r"\bstyle=|\bon\w+=", body)


class TestRanks:
    def test_they_lie_under_each_other_and_the_straggler_is_marked(self, recorded):
        analysis, pictures = page_of(recorded / "v100_8rank_dlrm")
        assert analysis.collectives.straggler == 7
        strips = pictures.ranks.strips
        assert [strip.name for strip in strips] == [f"rank {rank}" for rank in range(8)]
        assert [strip.name for strip in strips if strip.straggler] == ["rank 7"]
        assert any("rank 7: it comes last" in note for note in pictures.ranks.notes)
        text = written(recorded / "v100_8rank_dlrm")
        assert re.search(r'a-straggler"[^>]*><span class="a-name">rank 7 ', text)
        names = [trace.name for trace in pictures.traces]
        assert len(names) == MAX_TRACES
        assert names[-1] == "rank7", "the straggler is among those that are shown"
        assert "4 further traces are left out" in pictures.notes[0]
        assert "rank3, rank4, rank5, rank6" in pictures.notes[0]

    def test_the_last_collective_ends_at_one_time(self, recorded):
        """Clocks differ by seconds in these traces; what all leave together puts them right."""
        analysis, drawn = analyze_for_page([recorded / "v100_8rank_dlrm"])
        ranks = of_analysis(analysis, drawn).ranks
        ends = {
            strip.begins_ns + anatomy.steps[0].last_collective_ns
            for strip, anatomy in zip(ranks.strips, drawn, strict=True)
        }
        assert len(ends) == 1
        assert min(strip.begins_ns for strip in ranks.strips) == 0

    def test_sixty_four_ranks(self, tmp_path):
        for rank in range(64):
            durations = [500 - 7 * rank, 300]
            made.save(tmp_path / f"rank{rank}.json", made.rank_of(rank, durations, world_size=64))
        text = written(tmp_path)
        assert "64 ranks under each other" in text
        assert text.count('<span class="a-name">rank ') == 64
        assert "60 further traces are left out" in text
        assert len(text.encode()) < 600_000


class TestWhatIsMissing:
    def test_without_steps_and_damaged(self, recorded):
        _, pictures = page_of(recorded / "small/malformed_torch213_unescaped_quotes.json")
        notes = " ".join(pictures.traces[0].notes)
        assert "The trace is damaged" in notes
        assert "The trace has no steps: the picture is of the whole window." in notes
        assert pictures.traces[0].pictures[0].title.startswith("The whole window")

    def test_without_a_gpu(self, recorded):
        _, pictures = page_of(recorded / "small/cpu_torch213_dataloader.pt.trace.json.gz")
        (drawn,) = pictures.traces
        assert "there are no lanes of a GPU" in " ".join(drawn.notes)
        assert drawn.tables == ()

    def test_work_that_cannot_be_believed(self, write):
        """Kernels long before their launches: the GPU's part is left out, and the reason stands."""
        events = [event for event in many(20) if event["cat"] != "kernel"]
        events += [kernel("early", 1000 + number, 1001 + number, number + 1, 50)
                   for number in range(20)]  # fmt: skip
        late = [event | {"ts": event["ts"] + 5000} if event["cat"] != "kernel" else event
                for event in events]  # fmt: skip
        _, pictures = page_of(write(late))
        notes = " ".join(pictures.traces[0].notes)
        assert "the times of host and GPU do not go together" in notes
        assert "there are no lanes of a GPU" in notes


# Runs of ours.


def page_of_run(record, folder):
    return rendered(report_of(record, folder), "HTML", (record, folder))


@pytest.fixture
def run_folder(tmp_path):
    """A run on an H100 with the trace of its largest size."""
    folder = tmp_path / "run"
    folder.mkdir()
    text = gzip.decompress((H100 / "imagenet.json.gz").read_bytes())
    (folder / "record.json").write_bytes(text)
    record = msgspec.json.decode(text, type=RunRecord)
    (name,) = [trial.profile.trace for trial in record.trials
               if trial.profile is not None and trial.batch_size == 256][-1:]  # fmt: skip
    (folder / name).parent.mkdir(parents=True)
    shutil.copy(H100 / "imagenet_256.pt.trace.json.gz", folder / name)
    return folder, record, folder / name


def test_a_trace_outside_of_the_folder_is_not_read(run_folder):
    folder, record, trace = run_folder
    trials = [
        replace(trial, profile=replace(trial.profile, trace="../secret.json.gz"))
        if trial.profile is not None
        else trial
        for trial in record.trials
    ]
    shutil.copy(trace, folder.parent / "secret.json.gz")
    record = replace(record, trials=tuple(trials))
    (drawn,) = pictures_of(report_of(record, folder), record, folder).traces
    assert drawn.unavailable == "the trace is not in the run's folder"


def test_the_report_of_a_run_draws_its_recommended_size_or_says_why_not(run_folder):
    folder, record, trace = run_folder
    (drawn,) = pictures_of(report_of(record, folder), record, folder).traces
    assert drawn.notes[0] == "Drawn are the profiled steps of size 256."
    titles = [picture.title.partition(":")[0] for picture in drawn.pictures]
    assert titles == ["Median of 3 steps", "Slowest of 3 steps"]
    text = page_of_run(record, folder)
    assert "The anatomy of one step" in text
    assert "enumerate(DataLoader)#_MultiProcessingDataLoaderIter" in text
    assert len(text.encode()) < 300_000
    job = Distribution(world_size=4, launcher="torchrun")
    job = replace(record, distribution=job)
    (drawn,) = pictures_of(report_of(job, folder), job, folder).traces
    assert drawn.notes[1] == "Only rank 0 of 4 ranks was profiled; the others are not drawn."
    trace.write_bytes(b"nothing")
    assert "Unavailable: the trace could not be read" in page_of_run(record, folder)
    trace.unlink()
    assert "is not in the run&#39;s folder" in page_of_run(record, folder)


@pytest.mark.parametrize("state", ["failed", "interrupted", "running"])
def test_a_run_that_did_not_finish_shows_what_there_is_or_why_not(run_folder, state):
    folder, record, _ = run_folder
    some = replace(record, state=state, trials=())
    text = page_of_run(some, folder)
    assert "Unavailable: no size of this run was profiled." in text
    kept = tuple(trial for trial in record.trials if trial.batch_size == 256)
    some = replace(record, state=state, trials=kept)
    text = page_of_run(some, folder)
    assert "Drawn are the profiled steps of size 256." in text


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_records_of_older_versions(version, tmp_path):
    name = f"schema-{version}.json"
    data = (Path(__file__).parents[1] / "data/records" / name).read_bytes()
    record = msgspec.json.decode(data, type=RunRecord)
    text = page_of_run(record, tmp_path)
    assert "The anatomy of one step" in text
    assert "Unavailable: " in text


# The tab.


def test_the_tab_shows_the_same_as_the_page(recorded, tmp_path):
    """One section, letter for letter, for traces of anybody."""
    folder = tmp_path / "traces"
    folder.mkdir()
    names = {
        "v100_8rank_dlrm/rank0.json.gz": "one.pt.trace.json.gz",
        "small/cpu_torch213_dataloader.pt.trace.json.gz": "two.pt.trace.json.gz",
    }
    for source, name in names.items():
        shutil.copy(recorded / source, folder / name)
    board = Board([("", tmp_path)])
    (entry,) = board.entries()
    shown = board.show(entry.key)
    tab = show_traces(entry, trace_page(shown.analysis), board.pictures(shown), viewer=False)
    assert section(tab) == section(written(*sorted(folder.iterdir())))


def test_the_tab_shows_the_steps_of_a_run(run_folder):
    folder, record, _ = run_folder
    board = Board([("", folder.parent)])
    entry = next(entry for entry in board.entries() if entry.kind == "run")
    shown = board.show(entry.key)
    report = board.report(shown)
    tab = show_run(entry, report, None, board.pictures(shown, report), viewer=False)
    assert section(tab) == section(page_of_run(record, folder))
    assert "Drawn are the profiled steps of size 256." in section(tab)


def test_the_tab_keeps_few_pictures_in_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(board_module, "MAX_DRAWN", 2)
    for number in range(4):
        (tmp_path / f"job{number}").mkdir()
        made.save(tmp_path / f"job{number}" / "one.json", many(20))
    board = Board([("", tmp_path)])
    for entry in board.entries():
        assert board.show(entry.key).anatomies
    assert len(board._kept) == 2


def section(text):
    (found,) = re.findall(r'<section class="anatomies">.*?</section>', text, flags=re.DOTALL)
    return found


# The command.


def run(*arguments):
    return CliRunner().invoke(cli, list(map(str, arguments)))


def test_analyze_writes_the_page(recorded, tmp_path):
    trace = recorded / "h100_launchbound_transformer/steps1-3.pt.trace.json.gz"
    page = tmp_path / "page.html"
    result = run("analyze", trace, "-o", page)
    assert result.exit_code == 0
    assert result.stdout.startswith(f"Wrote page  {page} (")
    assert "torch_prof.py(99): main" in page.read_text()
    assert run("analyze", trace, "-o", page).exit_code == 0, "its own page is written again"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["-o", "page.md"], "the page is HTML"),
        (["-o", "page.html", "--json"], "--json is for the terminal"),
        (["-o", "page.html", "--kernels", "3"], "--kernels is for the terminal"),
        (["-o", "nowhere/page.html"], "there is no folder nowhere"),
    ],
)
def test_a_page_that_cannot_be_is_refused(options, said, write, monkeypatch):
    trace = write(CAUSES)
    monkeypatch.chdir(trace.parent)
    result = run("analyze", trace, *options)
    assert isinstance(result.exception, UsageError)
    assert said in str(result.exception)
