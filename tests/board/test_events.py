"""Event files, read back by TensorBoard's own reader."""

import shutil

import msgspec
import pytest
from batchadvisor.advisor.advise import advise
from batchadvisor.reports.builder.sizes.rows import size_rows
from batchadvisor.session.recording.event_files import EventStore, write_run_events
from batchadvisor.session.recording.store import read_record
from batchadvisor.units import GIB
from msgspec.structs import replace
from tensorboard.plugins.hparams import api_pb2, metadata

from ..reports import samples
from . import zoo


def read(folder):
    """`{tag: [(step, value)]}` of scalars, `{tag: text}` of texts, and the metadata by tag."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.util import tensor_util

    events = EventAccumulator(str(folder), size_guidance={"tensors": 0})
    events.Reload()
    by_tag = {}
    for tag in events.Tags()["tensors"]:
        values = [
            (event.step, tensor_util.make_ndarray(event.tensor_proto))
            for event in events.Tensors(tag)
        ]
        by_tag[tag] = [(step, value.item() if value.size == 1 else value) for step, value in values]
    return by_tag, events


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The stored CPU run, with some timed steps."""
    folder = tmp_path_factory.mktemp("run")
    shutil.copy(zoo.CHAR_GPT, folder / "record.json")
    rows = [{"trial": 0, "step_s": 0.001 * n, "input_wait_s": 0.0001, "num_samples": 8}
            for n in range(2500)]  # fmt: skip
    rows += [
        {"trial": 0, "time_s": 1.0},
        {"trial": "x", "step_s": 1.0},
        {"trial": 1, "step_s": None},
    ]
    (folder / "samples.jsonl").write_bytes(b"\n".join(map(msgspec.json.encode, rows)) + b'\n{"cut')
    record = read_record(folder)
    write_run_events(record, advise(record), folder)
    return folder, record, advise(record)


class TestSizes:
    def test_each_has_a_run_with_the_records_values(self, run):
        folder, record, advice = run
        rows = size_rows(record, advice)
        names = {path.name for path in (folder / "traces").iterdir() if path.is_dir()}
        assert names == {f"batch_size={row.batch_size:04d}" for row in rows}
        for row in rows:
            by_tag, events = read(folder / "traces" / f"batch_size={row.batch_size:04d}")
            expected = {
                "sweep/samples per second": row.samples_per_s.median,
                "sweep/step time (ms)": 1e3 * row.step_s.median,
                "sweep/peak memory (GiB)": row.peak_bytes / GIB,
                "sweep/input wait (%)": row.input_pct,
            }
            for tag, value in expected.items():
                ((step, shown),) = by_tag[tag]
                assert step == row.batch_size
                assert shown == pytest.approx(value, rel=1e-6), tag
            assert "sweep/GPU busy (%)" not in by_tag, "no value, no point"
            data = events.SummaryMetadata(metadata.SESSION_START_INFO_TAG).plugin_data.content
            start = metadata.parse_session_start_info_plugin_data(data)
            assert start.hparams["batch_size"].number_value == row.batch_size
            assert start.hparams["note"].string_value == ", ".join(row.marks)
            assert start.hparams["outcome"].string_value == "ok"

    def test_steps_are_thinned(self, run):
        folder, record, advice = run
        row = next(row for row in size_rows(record, advice) if row.trial.ordinal == 0)
        by_tag, _ = read(folder / "traces" / f"batch_size={row.batch_size:04d}")
        points = by_tag["steps/step time (ms)"]
        assert [step for step, _ in points] == list(range(0, 2500, 3))
        assert all(value == pytest.approx(step, rel=1e-5) for step, value in points)

    def test_the_folder_above_has_one_curve_and_the_report(self, run):
        folder, record, advice = run
        by_tag, events = read(folder / "traces")
        steps = [step for step, _ in by_tag["sweep/samples per second"]]
        assert steps == sorted(row.batch_size for row in size_rows(record, advice))
        text = by_tag["advice"][0][1].decode()
        assert f"Use batch size {advice.recommended.batch_size}" in text
        assert "Ignore outliers" in text
        assert not text.startswith("<!--")
        assert events.SummaryMetadata("advice").plugin_data.plugin_name == "text"
        data = events.SummaryMetadata(metadata.EXPERIMENT_TAG).plugin_data.content
        experiment = metadata.parse_experiment_plugin_data(data)
        tags = [metric.name.tag for metric in experiment.metric_infos]
        assert "sweep/samples per second" in tags
        assert "sweep/GPU busy (%)" not in tags

    def test_failed_sizes_have_a_row_too(self, tmp_path):
        record, advice = samples.gpu()
        write_run_events(record, advice, tmp_path)
        _, events = read(tmp_path / "traces/batch_size=0512")
        assert [tag for tag in events.Tags()["tensors"] if tag.startswith("sweep/")] == []
        data = events.SummaryMetadata(metadata.SESSION_END_INFO_TAG).plugin_data.content
        end = metadata.parse_session_end_info_plugin_data(data)
        assert end.status == api_pb2.STATUS_FAILURE


class TestFiles:
    def test_a_resumed_run_replaces_only_its_own(self, run):
        folder, record, advice = run
        first = folder / "traces/batch_size=0001"
        foreign = first / "events.out.tfevents.1.somebody"
        foreign.write_bytes(b"")
        later = replace(record, elapsed_s=record.elapsed_s + 100)
        write_run_events(later, advice, folder)
        files = [path.name for path in first.iterdir() if "tfevents" in path.name]
        assert len(files) == 4, (
            "somebody's, the first part's steps, its last file emptied, the last"
        )
        assert foreign.read_bytes() == b""
        by_tag, _ = read(first)
        assert all(len(values) == 1 for tag, values in by_tag.items() if tag.startswith("sweep/"))
        assert [step for step, _ in by_tag["steps/step time (ms)"]] == list(range(0, 2500, 3))
        assert not list(folder.rglob(".*"))

    @pytest.mark.parametrize("make", [samples.nothing_fits, samples.interrupted, samples.cpu])
    def test_other_records(self, make, tmp_path):
        record, _ = make()
        advice = advise(record)
        write_run_events(record, advice, tmp_path)
        by_tag, _ = read(tmp_path / "traces")
        assert advice.headline.split(":")[0] in by_tag["advice"][0][1].decode()


@pytest.fixture
def live(tmp_path):
    """The stored run's folder as it grows, under a TensorBoard that is there from the start."""
    from tensorboard.backend.event_processing.plugin_event_multiplexer import EventMultiplexer

    whole = read_record(zoo.CHAR_GPT)
    store = EventStore(tmp_path / "run")
    reader = EventMultiplexer(event_file_active_filter=lambda _: True)  # as `view` reads

    def until(num_trials, state="running"):
        """Saves the first trials, as the run did; what TensorBoard knows then."""
        trials = whole.trials[:num_trials]
        elapsed_s = sum(trial.elapsed_s for trial in trials) + (state != "running")
        store.save(replace(whole, state=state, trials=trials, elapsed_s=elapsed_s))
        assert store.problem == ""
        reader.AddRunsFromDirectory(str(store.folder / "traces"))
        reader.Reload()
        return reader

    yield whole, store, until
    store.close()


class TestLive:
    """A run that is still writing."""

    def test_each_size_is_there_when_it_was_measured(self, live, caplog):
        whole, store, until = live
        assert until(0).Runs() == {}
        assert not (store.folder / "traces").exists(), "nothing to leave behind"
        seen = set()
        for number, trial in enumerate(whole.trials[:12], 1):
            if trial.purpose != "tail":
                seen.add(f"batch_size={trial.batch_size:04d}")
            assert {run for run in until(number).Runs() if run != "."} == seen
        reader = until(len(whole.trials), "finished")
        for row in size_rows(whole, advise(whole)):
            points = reader.Tensors(f"batch_size={row.batch_size:04d}", "sweep/step time (ms)")
            last = points[-1].tensor_proto.float_val[0]
            assert last == pytest.approx(1e3 * row.step_s.median, rel=1e-6)
        curve = [event.step for event in reader.Tensors(".", "sweep/samples per second")]
        assert curve == sorted(curve), "written once, in the order of sizes"
        assert curve == sorted({row.batch_size for row in size_rows(whole, advise(whole))})
        assert len(reader.Tensors(".", "advice")) > 3
        assert not caplog.records, "no warning in TensorBoard's log"
        # What is left is what a run of one piece leaves.
        by_tag, _ = read(store.folder / "traces/batch_size=0008")
        assert all(len(values) == 1 for tag, values in by_tag.items() if tag.startswith("sweep/"))

    def test_steps_are_written_once_and_go_on_counting(self, live):
        whole, store, until = live
        size = 64
        again = [
            trial for trial in whole.trials if trial.batch_size == size and trial.turns is None
        ][:2]
        assert len(again) == 2
        for number, trial in enumerate(again):
            rows = [{"trial": trial.ordinal, "step_s": 0.001, "input_wait_s": 0.0}] * (3 + number)
            store.append(rows)
            until(trial.ordinal + 1)
        turns = next(trial for trial in whole.trials if trial.turns and trial.batch_size == size)
        store.append([{"trial": turns.ordinal, "step_s": 9.9, "input_wait_s": 0.0}])
        reader = until(again[-1].ordinal + 1, "interrupted")
        points = reader.Tensors(f"batch_size={size:04d}", "steps/step time (ms)")
        assert [point.step for point in points] == list(range(7)), (
            "steps of several sizes have none"
        )

    def test_a_torn_file_is_harmless(self, live, caplog):
        whole, store, until = live
        until(6)
        folder = store.folder / f"traces/batch_size={whole.trials[0].batch_size:04d}"
        (file,) = folder.glob("events.*")
        file.with_name("events.out.tfevents.0000000001.torn").write_bytes(file.read_bytes()[:-9])
        (folder / ".draft-.batchadvisor").write_bytes(file.read_bytes()[:50])
        reader = until(len(whole.trials), "finished")
        assert folder.name in reader.Runs()
        assert not [record for record in caplog.records if record.levelname == "ERROR"]

    def test_a_failure_costs_event_files_only(self, live):
        whole, store, _ = live
        (store.folder / "traces").write_text("in the way")
        store.save(whole)
        assert "traces" in store.problem
        assert read_record(store.folder) == whole

    def test_a_new_size_does_not_wait(self, live, monkeypatch):
        whole, store, until = live
        monkeypatch.setattr("batchadvisor.session.recording.event_files.UPDATE_COST_FACTOR", 1e9)
        for number in range(1, len(whole.trials) + 1):
            store.save(replace(whole, state="running", trials=whole.trials[:number]))
        runs = {path.name for path in (store.folder / "traces").iterdir() if path.is_dir()}
        sizes = {trial.batch_size for trial in whole.trials}
        rows = size_rows(whole, advise(whole))
        assert runs == {f"batch_size={row.batch_size:04d}" for row in rows}
        texts = until(len(whole.trials)).Tensors(".", "advice")
        assert len(texts) == len(sizes), "the rest waited"
