"""`batchadvisor tails`: the end of an epoch planned, explained, swept; nothing runs."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources

import msgspec

from ..advisor.tails import tails
from ..advisor.tails.cases import CASES, case_of
from ..advisor.tails.sweeps import sweep as sweep_sizes
from ..errors import UsageError
from ..records import Explained, Pipeline, Proof, Record, SweepRow, TailReport
from ..reports.blocks import Document
from .pages import terminal_text

MAX_SWEEP = 100_000
"""More sizes make no table that anybody reads."""


def plan(pipeline: Pipeline) -> TailReport:
    """The report of one pipeline."""
    return tails(pipeline)


def sweep(pipeline: Pipeline, low: int, high: int, step: int) -> tuple[SweepRow, ...]:
    """The rows of all sizes from `low` to `high`, both included.

    Raises:
        UsageError: the range is empty or far too long.
    """
    sizes = range(low, high + 1, step)
    if not sizes or low < 1 or step < 1:
        msg = f"{low}:{high}:{step} holds no batch size."
        raise UsageError(msg, "Write LOW:HIGH or LOW:HIGH:STEP, such as 64:256:8.")
    if len(sizes) > MAX_SWEEP:
        msg = f"{low}:{high}:{step} are {len(sizes)} sizes."
        raise UsageError(msg, f"At most {MAX_SWEEP}; take a larger step.")
    return sweep_sizes(pipeline, sizes)


def default_range(pipeline: Pipeline) -> tuple[int, int, int]:
    """Sizes around the pipeline's: from half to double, at most about forty of them."""
    low, high = max(1, pipeline.batch_size // 2), max(2, pipeline.batch_size * 2)
    wanted = max(1, (high - low) // 40)
    step = next(number for number in (1, 2, 4, 8, 16, 32, 64) if number >= wanted or number == 64)
    step = max(step, wanted // 64 * 64)
    multiple = pipeline.model.multiple_of
    step = -(-step // multiple) * multiple
    return max(multiple, low // multiple * multiple), max(high, 2 * multiple), step


def explain(name: str) -> Explained:
    """The page of one case.

    Raises:
        UsageError: no case has this id.
    """
    case = case_of(name)
    if case is None:
        near = [known.id for known in CASES if name and name.lower() in known.id]
        hint = f"Did you mean {', '.join(near)}?" if near else "--explain all lists the ids."
        msg = f"No case has the id {name!r}."
        raise UsageError(msg, hint)
    example = case.example
    shown = next((met.fixes for met in tails(example).findings if met.id == case.id), ())
    return Explained(case=case.page, example=example, fixes=shown, proofs=proofs().get(case.id, ()))


def proofs() -> dict[str, tuple[Proof, ...]]:
    """For each case what the tests provoked, as their last full run stored it."""
    place = resources.files(__package__.rpartition(".")[0]) / "advisor" / "tails" / "proofs.json"
    return msgspec.json.decode(place.read_bytes(), type=dict[str, tuple[Proof, ...]])


def catalogue() -> tuple[Explained, ...]:
    """All pages, in order."""
    return tuple(explain(case.id) for case in CASES)


def as_json(answer: TailReport | Explained | Sequence[Record]) -> str:
    """The output of `--json`."""
    return msgspec.json.format(msgspec.json.encode(answer), indent=2).decode()


def report_text(report: TailReport, *, width: int) -> str:
    """The output of `tails`."""
    from ..reports.builder.tails import build_tails

    return _text(build_tails(report), width, _next(report))


def sweep_text(pipeline: Pipeline, rows: Sequence[SweepRow], *, width: int, every: bool) -> str:
    """The output of `tails --sweep`."""
    from ..reports.builder.tails import build_sweep

    return _text(build_sweep(pipeline, rows, every=every), width)


def explained_text(page: Explained, *, width: int) -> str:
    """The output of `tails --explain ID`."""
    from ..reports.builder.tails import build_case

    return _text(build_case(page, num_cases=len(CASES)), width)


def catalogue_text(pages: Sequence[Explained], *, width: int) -> str:
    """The output of `tails --explain all`."""
    from ..reports.builder.tails import build_catalogue

    return _text(build_catalogue(pages), width, "batchadvisor tails --explain ID")


def _text(page: Document, width: int, next_command: str = "") -> str:
    return terminal_text(page, width=width, next_command=next_command).rstrip("\n")


def _next(report: TailReport) -> str:
    harmful = [finding.id for finding in report.findings if finding.harmful]
    return f"batchadvisor tails --explain {harmful[0]}" if harmful else ""
