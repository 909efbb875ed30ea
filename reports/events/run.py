"""A run as TensorBoard's own dashboards read it: scalars, a row of HParams, the advice as text.

The protocol buffers and the record format are TensorBoard's; neither torch nor TensorFlow is needed
for them. Written between two trials, so that nothing of it disturbs a window.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from ...records import RunRecord, Spread
from ...units import GIB
from ..sizes import SizeRow, outcome_words
from .event_files import EventRun

ADVICE_TAG = "advice"
STEP_TAG = "steps/step time (ms)"
INPUT_TAG = "steps/input wait (ms)"
MAX_POINTS = 1000
"""Timed steps of one trial that get a point; of more every second, third, ... has one."""

_METRICS: dict[str, Callable[[SizeRow, float | None], float | None]] = {
    "sweep/samples per second": lambda row, _: _median(row.samples_per_s),
    "sweep/tokens per second": lambda row, _: _median(row.real_tokens_per_s),
    "sweep/tokens per second, padding included": lambda row, _: _median(row.positions_per_s),
    "sweep/padding (%)": lambda row, _: row.padding_pct,
    "sweep/model TFLOP per second": lambda row, _: _median(row.tflops_per_s),
    "sweep/MFU (%)": lambda row, _: row.mfu_pct,
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


class EventFiles:
    """The event files of one run, kept up to date while it goes on.

    Args:
        folder: log directory of the run; its traces are in the same runs. Is made when needed.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._whole = EventRun(folder)
        self._sizes: dict[int, EventRun] = {}
        self._steps: dict[int, set[int]] = {}
        self._known: dict[tuple[int, str], object] = {}
        self._text = ""

    def update(
        self,
        record: RunRecord,
        rows: Sequence[SizeRow],
        *,
        text: str,
        steps: Mapping[int, Sequence[tuple[float, float]]],
    ) -> None:
        """Writes the folder's own run and one `batch_size=0064` below it for each size.

        While the record says that the run goes on, what is new or has changed is added, and the
        folder's own run is the text alone: the curve over all sizes, in their order, and which one
        is recommended follow when it is over.

        Args:
            rows: of the sizes that were tried, smallest first.
            text: the answer as Markdown.
            steps: seconds per timed step and seconds of it that waited for the loader, by the
                ordinal of the trial.

        Raises:
            OSError: a file cannot be written.
        """
        over = record.state != "running"
        wall_s = _ended_s(record)
        capacity = float(record.device.capacity_bytes) if record.device is not None else None
        values = [(row, _values(row, capacity)) for row in rows]
        for row, own in values:
            size = row.batch_size
            new = self._new_steps(record, size, steps)
            # What a callback watched was not chosen among others.
            watched = record.observed is not None
            marks = [mark for mark in row.marks if not watched or mark == "yours"]
            note = ", ".join(marks) if over else ""
            about = (outcome_words(row, short=False), note)
            session = [_session_start(row, wall_s, *about), _session_end(row, wall_s)]
            if over:
                points = [_scalar(tag, number, size) for tag, number in own]
                self._run_of(size).append(wall_s, new)
                self._run_of(size).finish(wall_s, [*session, *points])
                continue
            points = [
                _scalar(tag, number, size)
                for tag, number in own
                if self._changed(size, tag, number)
            ]
            told = session if self._changed(size, "session", about) else []
            self._run_of(size).append(wall_s, [*told, *new, *points])
        self._summary(values, text, len(record.trials), wall_s, over=over)

    def _summary(
        self,
        values: Sequence[tuple[SizeRow, list[tuple[str, float]]]],
        text: str,
        num_trials: int,
        wall_s: float,
        *,
        over: bool,
    ) -> None:
        told = _text(text, num_trials)
        if over:
            curve = [
                _scalar(tag, number, row.batch_size) for row, own in values for tag, number in own
            ]
            self._whole.finish(wall_s, [_experiment(values), told, *curve])
        elif self._text != text:
            self._whole.append(wall_s, [told])
        self._text = text

    def _run_of(self, size: int) -> EventRun:
        if size not in self._sizes:
            folder = self._folder / f"batch_size={size:04d}"
            self._sizes[size] = EventRun(folder, (STEP_TAG, INPUT_TAG))
        return self._sizes[size]

    def _changed(self, size: int, what: str, value: object) -> bool:
        changed = self._known.get((size, what)) != value
        self._known[size, what] = value
        return changed

    def _new_steps(
        self,
        record: RunRecord,
        size: int,
        steps: Mapping[int, Sequence[tuple[float, float]]],
    ) -> list[tuple[int, Any]]:
        """Timed steps of trials that have no points yet; those of later ones go on counting."""
        own = [trial.ordinal for trial in record.trials if trial.batch_size == size]
        if size not in self._steps:
            # An earlier process wrote those of the trials that it left.
            self._steps[size] = set(own) if self._run_of(size).exists() else set()
        points: list[tuple[int, Any]] = []
        first = 0
        for ordinal in own:
            times = steps.get(ordinal, ())
            if ordinal not in self._steps[size]:
                stride = math.ceil(len(times) / MAX_POINTS) or 1
                points += [
                    _scalar(tag, 1e3 * times[number][position], first + number, first=number == 0)
                    for tag, position in ((STEP_TAG, 0), (INPUT_TAG, 1))
                    for number in range(0, len(times), stride)
                ]
            first += len(times)
        self._steps[size] |= set(own)
        return points


def _median(spread: Spread | None) -> float | None:
    return None if spread is None else spread.median


def _over(value: float | None, unit: float) -> float | None:
    return None if value is None or unit <= 0 else value / unit


def _values(row: SizeRow, capacity: float | None) -> list[tuple[str, float]]:
    values = [(tag, value(row, capacity)) for tag, value in _METRICS.items()]
    return [(tag, number) for tag, number in values if number is not None]


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


def _text(text: str, step: int) -> tuple[int, Any]:
    from tensorboard.compat.proto import summary_pb2, tensor_pb2, tensor_shape_pb2, types_pb2
    from tensorboard.plugins.text import metadata

    tensor = tensor_pb2.TensorProto(
        dtype=types_pb2.DT_STRING,
        tensor_shape=tensor_shape_pb2.TensorShapeProto(),
        string_val=[text.encode("utf-8", "replace")],
    )
    about = metadata.create_summary_metadata(display_name=ADVICE_TAG, description="")
    return step, summary_pb2.Summary.Value(tag=ADVICE_TAG, tensor=tensor, metadata=about)


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


def _session_start(row: SizeRow, ended_s: float, outcome: str, note: str) -> tuple[int, Any]:
    from tensorboard.plugins.hparams import metadata, plugin_data_pb2

    start = plugin_data_pb2.SessionStartInfo(start_time_secs=ended_s - row.trial.elapsed_s)
    start.hparams["batch_size"].number_value = row.batch_size
    start.hparams["outcome"].string_value = outcome
    start.hparams["note"].string_value = note
    return _hparams(metadata.SESSION_START_INFO_TAG, session_start_info=start)


def _session_end(row: SizeRow, ended_s: float) -> tuple[int, Any]:
    from tensorboard.plugins.hparams import api_pb2, metadata, plugin_data_pb2

    good = row.trial.ran and row.failed_later is None
    end = plugin_data_pb2.SessionEndInfo(
        status=api_pb2.STATUS_SUCCESS if good else api_pb2.STATUS_FAILURE, end_time_secs=ended_s
    )
    return _hparams(metadata.SESSION_END_INFO_TAG, session_end_info=end)
