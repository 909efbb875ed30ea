"""`batchadvisor analyze`: traces that exist already, of one job or of none in common."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path

import msgspec

from ..advisor.explain.job_verdict import job_verdict
from ..advisor.explain.limits import losses_of, wait_notes
from ..advisor.explain.verdict import verdict_of, without_steps
from ..errors import UsageError
from ..probes.trace import metrics, ranks
from ..probes.trace.flames import flames_of
from ..probes.trace.memory_curves import memory_curves
from ..probes.trace.reader import read_trace
from ..probes.trace.results import DeviceMetrics, StepMetrics, TraceMetrics
from ..probes.trace.summary import profile_of
from ..records import Analysis, MemoryCurve, StepTimes, TraceReport, Verdict
from ..records.anatomy import TraceAnatomy
from .pages import terminal_text
from .recording.store import RECORD, TRACE_SUFFIXES, write_output

NUM_ROWS = 50
"""Rows of the tables of kernels and operators on a page."""
GRAPH_KERNELS = 2.0
"""Kernels per launch from which on graphs are spoken of."""


def analyze(paths: Sequence[Path], num_kernels: int = 10) -> Analysis:
    """Reads traces and says what limits their steps.

    Args:
        paths: files, or folders that hold traces.
        num_kernels: rows of each table of kernels and operators.

    Raises:
        UsageError: a path is no trace, or a folder holds none.
    """
    return _read(paths, num_kernels, lenient=False, pictures=False)[0]


def analyze_for_page(
    paths: Sequence[Path], *, lenient: bool = False
) -> tuple[Analysis, tuple[TraceAnatomy, ...]]:
    """Reads traces with all that a page shows: more kernels, flame graphs, pictures of steps.

    Args:
        lenient: a named file that is no trace is skipped, as those of folders are.
    """
    analysis, drawn = _read(paths, NUM_ROWS, lenient=lenient, pictures=True)
    return analysis, tuple(drawn)


def write_page(paths: Sequence[Path], output: Path) -> Analysis:
    """Writes the page of traces whole or not at all; returns what it is of.

    Raises:
        UsageError: a path is no trace, or a folder holds none.
        RunError: the page cannot be written.
    """
    from ..reports.builder.anatomy import of_analysis
    from ..reports.builder.traces import trace_page
    from ..reports.html.page import render_traces

    analysis, drawn = analyze_for_page(paths)
    listed = ", ".join(_text(path) for path in paths[:3]) + (" ..." if len(paths) > 3 else "")
    text = render_traces(trace_page(analysis), of_analysis(analysis, drawn), f"traces in {listed}")
    write_output(output, text)
    return analysis


def _read(
    paths: Sequence[Path], num_kernels: int, *, lenient: bool, pictures: bool
) -> tuple[Analysis, list[TraceAnatomy]]:
    """Every trace; with flame graphs and what pictures of its steps show, if these are wanted."""
    from ..probes.trace.anatomy import anatomy_of, chosen_steps

    chosen = None
    drawn: list[TraceAnatomy] = []
    files, listed = _files(paths)
    reports: list[TraceReport] = []
    skipped: dict[str, str] = {}
    results: list[tuple[TraceMetrics, dict[ranks.Key, int]]] = []
    for path in files:
        try:
            analysis = metrics.Analysis(read_trace(path))
            result = analysis.result()
            if result.window_source == "none":
                msg = f"{path} holds no step, no GPU work and no operator."
                raise UsageError(msg, "Profile with activities=[CPU, CUDA].")
        except UsageError as error:
            if path in listed and not lenient:
                raise
            skipped[_text(path)] = error.what.encode("utf-8", "backslashreplace").decode()
            continue
        results.append((result, ranks.collectives_of(analysis)))
        memory = memory_curves(analysis, chosen)
        reports += _reports(path, analysis, result, memory, num_kernels)
        if pictures and result.stacks:
            reports[-1] = msgspec.structs.replace(reports[-1], flames=flames_of(analysis))
        if pictures:
            drawn.append(anatomy_of(analysis, _text(path), chosen))
            chosen = chosen or chosen_steps(drawn[-1])
    if not reports:
        msg = f"{', '.join(map(str, paths))}: no trace of torch.profiler is in there."
        raise UsageError(msg, "Give .json or .json.gz files that the profiler exported.")
    return _joined(reports, results, skipped), drawn


def analysis_json(analysis: Analysis) -> str:
    """The output of `--json`."""
    return msgspec.json.format(msgspec.json.encode(analysis), indent=2).decode()


def analysis_text(
    analysis: Analysis,
    paths: Sequence[Path],
    *,
    steps: bool,
    kernels: int,
    width: int,
    color: bool,
) -> str:
    """The output of `analyze`."""
    from ..reports.builder.analysis import build_analysis

    return terminal_text(
        build_analysis(analysis, steps=steps, kernels=kernels),
        next_command=_next_command(paths, steps=steps, kernels=kernels),
        width=width,
        color=color,
    ).rstrip("\n")


def _next_command(paths: Sequence[Path], *, steps: bool, kernels: int) -> str:
    """The tables that were not shown yet, else TensorBoard on the folder."""
    listed = shlex.join(map(str, paths))
    if not kernels:
        return f"batchadvisor analyze --kernels 10 {'' if steps else '--steps '}{listed}"
    folder = paths[0] if _is_folder(paths[0]) else paths[0].parent
    return f"batchadvisor view {shlex.quote(str(folder))}"


def _files(paths: Sequence[Path]) -> tuple[list[Path], set[Path]]:
    """All files to read, and those among them that were named one by one."""
    files: list[Path] = []
    for path in paths:
        if _is_folder(path):
            files += sorted(
                file
                for file in path.rglob("*")
                if file.name.endswith(TRACE_SUFFIXES)
                and file.name != RECORD
                and not file.name.startswith(".")
                and _is_file(file)
            )
        else:
            files.append(path)
    return list(dict.fromkeys(files)), {path for path in paths if not _is_folder(path)}


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:  # a name too long, a folder that may not be entered: reading says which
        return False


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:
        return True


def _text(path: Path) -> str:
    """The path as text that JSON can hold; names of files need not be UTF-8."""
    return os.fspath(path).encode("utf-8", "backslashreplace").decode()


def _reports(
    path: Path,
    analysis: metrics.Analysis,
    result: TraceMetrics,
    memory: Sequence[MemoryCurve],
    num_rows: int,
) -> list[TraceReport]:
    """One report for each GPU of a trace, one for the CPU where there is none."""
    devices: Sequence[DeviceMetrics | None] = result.devices or (None,)
    reports = []
    for device in devices:
        kernels = result.kernels
        if device is not None and len(devices) > 1:
            kernels = analysis.kernels_of(device.device)
        own = [curve for curve in memory if device is None or curve.device == device.device]
        profile = profile_of(
            result,
            _text(path),
            device,
            kernels=kernels,
            memory=own if len(devices) > 1 else memory,
            num_rows=num_rows,
        )
        verdict = verdict_of(profile)
        losses = losses_of(profile)
        if result.window_source != "steps":
            verdict = without_steps(verdict)
        reports.append(
            TraceReport(
                trace=_text(path),
                rank=result.rank,
                world_size=result.world_size,
                device=None if device is None else device.device,
                device_name="" if device is None else device.name,
                window_s=result.window_s,
                window_source=result.window_source,
                step_s=result.step_s,
                step_source=result.step_source,
                profile=profile,
                breakdown=result.breakdown,
                input_pct=None if losses is None else 100 * losses.input,
                host_pct=None if losses is None else 100 * losses.host,
                synchronisation_pct=None if losses is None else 100 * losses.synchronisation,
                copies=() if device is None else device.copies,
                steps=tuple(_step(step, device) for step in result.steps),
                verdict=verdict,
                notes=(*_notes(result, device, len(devices)), *wait_notes(profile)),
            )
        )
    return reports


def _step(step: StepMetrics, device: DeviceMetrics | None) -> StepTimes:
    own = next(
        (part for part in step.devices if device and part.device == device.device),
        None,
    )
    if own is None or own.idle is None:
        return StepTimes(
            name=step.name,
            window_s=step.window_s,
            host_s=step.host_s,
            breakdown=step.breakdown,
        )
    idle = own.idle
    late = idle.synchronize_pct + idle.launch_pct + idle.call_pct + idle.host_pct
    return StepTimes(
        name=step.name,
        window_s=step.window_s,
        host_s=step.host_s,
        busy_pct=own.busy_pct,
        compute_pct=own.compute_pct,
        exposed_communication_pct=own.exposed_communication_pct,
        exposed_copy_pct=own.exposed_copy_pct,
        input_pct=idle.input_pct,
        host_pct=late + idle.launch_latency_pct,
        breakdown=step.breakdown,
    )


def _notes(result: TraceMetrics, device: DeviceMetrics | None, num_devices: int) -> tuple[str, ...]:
    """Notes to read before the numbers are believed."""
    notes = []
    if device is None:
        why = result.unrecorded or "the trace holds no GPU activity"
        notes.append(f"{why}: these are the CPU's shares")
    if result.window_source != "steps":
        what = {
            "GPU span": "from the first GPU activity to the last",
            "operators": "the CPU's",
            "calls": "from the first call of the GPU's API to the last",
        }
        notes.append(
            f"the trace has no steps: the window is {what[result.window_source]}, which may hold "
            "start-up; call profiler.step() in the loop"
        )
    elif len(result.steps) == 1:
        notes.append("the trace has one step: nothing says whether others are like it")
    if num_devices > 1:
        notes.append(f"{num_devices} GPUs worked in this trace, each has a row")
    if device is not None and device.num_launches:
        per_launch = device.num_kernels / device.num_launches
        if per_launch >= GRAPH_KERNELS:
            notes.append(
                f"{device.num_kernels} kernels came from {device.num_launches} launches: graphs"
            )
    notes += [f"left out: {clause}" for clause in result.left_out]
    if result.losses.any:
        notes.append(f"the trace is damaged: {result.losses}")
    return tuple(notes)


def _joined(
    reports: list[TraceReport],
    results: Sequence[tuple[TraceMetrics, dict[ranks.Key, int]]],
    skipped: dict[str, str],
) -> Analysis:
    """The reports with what they say together, where they are ranks of one job."""
    unavailable: dict[str, str] = {}
    collectives = None
    verdict: Verdict | None = None
    reason = _no_job([result for result, _ in results])
    if reason:
        unavailable["collectives"] = reason
    else:
        reports = sorted(reports, key=lambda report: (report.rank or 0, report.device or 0))
        compared = ranks.compare(
            {result.rank: own for result, own in results if result.rank is not None},
            results[0][0].world_size,
        )
        if isinstance(compared, str):
            unavailable["collectives"] = compared
        else:
            collectives = compared
        verdict = job_verdict(reports, collectives)
    return Analysis(
        traces=tuple(reports),
        collectives=collectives,
        verdict=verdict,
        skipped=skipped,
        unavailable=unavailable,
    )


def _no_job(results: Sequence[TraceMetrics]) -> str:
    """Why the traces are not the ranks of one job; empty if they are."""
    if len(results) < 2:
        return "one trace alone cannot tell transfer from waiting for slower ranks"
    own = [result.rank for result in results]
    if None in own:
        return "a trace does not state its rank"
    if len(set(own)) < len(own):
        return "two traces have the same rank: they are not of one job"
    if len({result.world_size for result in results}) > 1:
        return "the traces are of jobs with different numbers of ranks"
    return ""
