"""A run as TensorBoard's own dashboards read it: scalars, a row of HParams, the advice as text.

The protocol buffers and the record format are TensorBoard's; neither torch nor TensorFlow is needed
for them. Everything is written at once when the run is over, so nothing of it disturbs a window.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from ..records import Advice, RunRecord, Spread
from ..units import GIB
from .sizes import SizeRow, outcome_words, size_rows

SUFFIX = ".batchadvisor"
"""Ends the names of our event files, so that a resumed run replaces its own and no others."""
ADVICE_TAG = "advice"
STEP_TAG = "steps/step time (ms)"
INPUT_TAG = "steps/input wait (ms)"
MAX_STEPS = 1000
"""Timed steps of one size that get a point; of more every second, third, ... has one."""

_METRICS: dict[str, Callable[[SizeRow, float | None], float | None]] = {
    "sweep/samples per second": lambda row, _: _median(row.samples_per_s),
    "sweep/step time (ms)": lambda row, _: _over(_median(row.step_s), 1e-3),
    "sweep/peak memory (GiB)": lambda row, _: _over(row.peak_bytes, GIB),
    "sweep/memory used (%)": lambda row, capacity: _over(row.peak_bytes, (capacity or 0) / 100),
    "sweep/GPU busy (%)": lambda row, _: row.profiled("busy_pct"),
    "sweep/SM efficiency (%)": lambda row, _: row.profiled("sm_efficiency_pct"),
    "sweep/occupancy (%)": lambda row, _: row.profiled("occupancy_pct"),
    "sweep/tensor cores (%)": lambda row, _: row.profiled("tensor_core_pct"),
    "sweep/inside operators (%)": lambda row, _: row.profiled("operators_pct"),
    "sweep/input wait (%)": lambda row, _: row.input_pct,
    "sweep/power (W)": lambda row, _: row.watts,
    "sweep/samples per joule": lambda row, _: row.samples_per_joule,
}
"""Tag -> its value for a size, given the capacity in bytes; `None` is left out."""


def write_events(
    folder: Path,
    record: RunRecord,
    advice: Advice,
    *,
    text: str,
    steps: Mapping[int, Sequence[tuple[float, float]]],
) -> None:
    """Writes `folder` and one `batch_size=0064` below it for each size as TensorBoard runs.

    Args:
        folder: log directory of the run; traces are in the same runs.
        text: the answer as Markdown.
        steps: seconds per timed step and seconds of it that waited for the loader, by the ordinal
            of the trial.
    """
    ended_s = _ended_s(record)
    rows = size_rows(record, advice)
    capacity = float(record.device.capacity_bytes) if record.device is not None else None
    values = [(row, _values(row, capacity)) for row in rows]
    summary = [_experiment(values), _text(text)]
    summary += [_scalar(tag, number, row.batch_size) for row, own in values for tag, number in own]
    _write(folder, ended_s, summary)
    for row, own in values:
        one = [_session_start(row, ended_s), _session_end(row, ended_s)]
        one += [_scalar(tag, number, row.batch_size) for tag, number in own]
        for tag, position in ((STEP_TAG, 0), (INPUT_TAG, 1)):
            times = steps.get(row.trial.ordinal, ())
            stride = math.ceil(len(times) / MAX_STEPS)
            one += [
                _scalar(tag, 1e3 * times[number][position], number, first=number == 0)
                for number in range(0, len(times), stride or 1)
            ]
        _write(folder / f"batch_size={row.batch_size:04d}", ended_s, one)


def _median(spread: Spread | None) -> float | None:
    return None if spread is None else spread.median


def _over(value: float | None, unit: float) -> float | None:
    return None if value is None or unit <= 0 else value / unit


def _values(row: SizeRow, capacity: float | None) -> list[tuple[str, float]]:
    found = [(tag, value(row, capacity)) for tag, value in _METRICS.items()]
    return [(tag, number) for tag, number in found if number is not None]


def _ended_s(record: RunRecord) -> float:
    """Seconds since the epoch at which the record was complete; the same record, the same time."""
    try:
        started_s = datetime.fromisoformat(record.started_at).timestamp()
    except ValueError:
        started_s = 0.0
    return started_s + record.elapsed_s


def _scalar(tag: str, value: float, step: int, *, first: bool = True) -> tuple[int, Any]:
    """One point; what kind of data its tag has is said with the first."""
    from tensorboard.compat.proto import summary_pb2, tensor_pb2, tensor_shape_pb2, types_pb2
    from tensorboard.plugins.scalar import metadata

    tensor = tensor_pb2.TensorProto(
        dtype=types_pb2.DT_FLOAT,
        tensor_shape=tensor_shape_pb2.TensorShapeProto(),
        float_val=[value],
    )
    about = metadata.create_summary_metadata(display_name=tag, description="") if first else None
    return step, summary_pb2.Summary.Value(tag=tag, tensor=tensor, metadata=about)


def _text(text: str) -> tuple[int, Any]:
    from tensorboard.compat.proto import summary_pb2, tensor_pb2, tensor_shape_pb2, types_pb2
    from tensorboard.plugins.text import metadata

    tensor = tensor_pb2.TensorProto(
        dtype=types_pb2.DT_STRING,
        tensor_shape=tensor_shape_pb2.TensorShapeProto(),
        string_val=[text.encode("utf-8", "replace")],
    )
    about = metadata.create_summary_metadata(display_name=ADVICE_TAG, description="")
    return 0, summary_pb2.Summary.Value(tag=ADVICE_TAG, tensor=tensor, metadata=about)


def _hparams(tag: str, **content: Any) -> tuple[int, Any]:
    from tensorboard.compat.proto import summary_pb2
    from tensorboard.plugins.hparams import metadata, plugin_data_pb2

    data = plugin_data_pb2.HParamsPluginData(**content)
    about = metadata.create_summary_metadata(data)
    value = summary_pb2.Summary.Value(tag=tag, metadata=about, tensor=metadata.NULL_TENSOR)
    return 0, value


def _experiment(values: Sequence[tuple[SizeRow, list[tuple[str, float]]]]) -> tuple[int, Any]:
    """Columns of the HParams table: only metrics that a size has."""
    from tensorboard.plugins.hparams import api_pb2, metadata

    known = {tag for _, own in values for tag, _ in own}
    experiment = api_pb2.Experiment(
        hparam_infos=[
            api_pb2.HParamInfo(name="batch_size", type=api_pb2.DATA_TYPE_FLOAT64),
            api_pb2.HParamInfo(name="outcome", type=api_pb2.DATA_TYPE_STRING),
            api_pb2.HParamInfo(name="note", type=api_pb2.DATA_TYPE_STRING),
        ],
        metric_infos=[
            api_pb2.MetricInfo(
                name=api_pb2.MetricName(tag=tag), display_name=tag.removeprefix("sweep/")
            )
            for tag in _METRICS
            if tag in known
        ],
    )
    return _hparams(metadata.EXPERIMENT_TAG, experiment=experiment)


def _session_start(row: SizeRow, ended_s: float) -> tuple[int, Any]:
    from tensorboard.plugins.hparams import metadata, plugin_data_pb2

    start = plugin_data_pb2.SessionStartInfo(start_time_secs=ended_s - row.trial.elapsed_s)
    start.hparams["batch_size"].number_value = row.batch_size
    start.hparams["outcome"].string_value = outcome_words(row, short=False)
    start.hparams["note"].string_value = ", ".join(row.marks)
    return _hparams(metadata.SESSION_START_INFO_TAG, session_start_info=start)


def _session_end(row: SizeRow, ended_s: float) -> tuple[int, Any]:
    from tensorboard.plugins.hparams import api_pb2, metadata, plugin_data_pb2

    good = row.trial.ran and row.failed_later is None
    end = plugin_data_pb2.SessionEndInfo(
        status=api_pb2.STATUS_SUCCESS if good else api_pb2.STATUS_FAILURE, end_time_secs=ended_s
    )
    return _hparams(metadata.SESSION_END_INFO_TAG, session_end_info=end)


def _write(folder: Path, wall_s: float, values: Iterable[tuple[int, Any]]) -> None:
    """One event file, whole or not at all, in place of the one that an earlier part left."""
    from tensorboard.compat.proto import event_pb2, summary_pb2
    from tensorboard.summary.writer.record_writer import RecordWriter

    folder.mkdir(parents=True, exist_ok=True)
    name = f"events.out.tfevents.{int(wall_s):010d}{SUFFIX}"
    draft = folder / f".draft-{SUFFIX}"
    try:
        with draft.open("wb") as file:
            writer = RecordWriter(file)
            first = event_pb2.Event(wall_time=wall_s, file_version="brain.Event:2")
            writer.write(first.SerializeToString())
            for step, value in values:
                summary = summary_pb2.Summary(value=[value])
                event = event_pb2.Event(wall_time=wall_s, step=step, summary=summary)
                writer.write(event.SerializeToString())
        for old in folder.glob(f"events.out.tfevents.*{SUFFIX}"):
            old.unlink()
        draft.replace(folder / name)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
