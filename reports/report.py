"""The report object: everything that HTML, Markdown, JSON and TensorBoard show of a run, as data.

`reports/builder/run.py` makes it from a record and its advice. Texts are cleaned (one line each,
nothing that a terminal obeys) and not escaped: each renderer escapes for its own format. Its JSON
is public: `reports/schema.json` describes it.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from ..records import Advice, Flame, Outcome, Record, RunState, SplitPlan, Spread
from .chart import Chart

REPORT_VERSION = "1.0"
"""Major.minor of the JSON: a minor version only adds fields."""


RowState = Literal["ok", "failed", "doubtful"]


class Fact(Record, frozen=True, kw_only=True):
    """A label and what stands beside it."""

    label: str
    text: str


class Column(Record, frozen=True, kw_only=True):
    """A column of a table; `unit` may be empty."""

    title: str
    unit: str = ""
    left: bool = False


class Row(Record, frozen=True, kw_only=True):
    """A row of a table.

    Attributes:
        cells: one for each column; `-` where nothing is known.
        marks: `recommended`, `fastest`, `largest`, `yours`.
        state: `failed` and `doubtful` rows are shown as such.
    """

    cells: tuple[str, ...]
    marks: tuple[str, ...] = ()
    state: RowState = "ok"


class Table(Record, frozen=True, kw_only=True):
    """A table for people. Legend and reasons for empty cells stand in `notes`."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()


class LongTable(Table, frozen=True, kw_only=True):
    """A table that a page can sort and filter.

    Attributes:
        keys: what the cells of each row sort by, numbers or texts; `None` comes last. Empty where
            the order is the only one.
    """

    keys: tuple[tuple[float | str | None, ...], ...] = ()


class Size(Record, frozen=True, kw_only=True):
    """One size that was tried, in base units.

    Attributes:
        samples_per_s, step_s: of an optimizer step, unprofiled, with the interval of the median.
        predicted_bytes: the peak that was expected before the size first ran, by steps on fake
            tensors and the peaks measured by then; an estimate.
        used_pct: peak over the capacity.
        real_tokens_per_s, positions_per_s: tokens without padding, and with it; of batches of
            sequences.
        padding_pct: share of the positions that hold padding: of an epoch, an estimate, where the
            advice has it; else of the batches that were counted.
        token_evidence: what tells padding from tokens.
        flops_per_step: floating point operations that the model needs for a step.
        tflops_per_s: what it achieves, in 10^12 operations per second.
        mfu_pct: the share of the device's dense peak for the types that are multiplied.
        unavailable: why a field is `None`.
    """

    batch_size: int
    outcome: Outcome
    detail: str = ""
    kind: Literal["fit", "timed"]
    marks: tuple[str, ...] = ()
    step_s: Spread | None = None
    samples_per_s: Spread | None = None
    real_tokens_per_s: Spread | None = None
    positions_per_s: Spread | None = None
    padding_pct: float | None = None
    token_evidence: str = ""
    flops_per_step: float | None = None
    tflops_per_s: Spread | None = None
    mfu_pct: float | None = None
    peak_bytes: int | None = None
    predicted_bytes: int | None = None
    used_pct: float | None = None
    busy_pct: float | None = None
    sm_efficiency_pct: float | None = None
    occupancy_pct: float | None = None
    tensor_core_pct: float | None = None
    operators_pct: float | None = None
    input_pct: float | None = None
    power_w: float | None = None
    samples_per_joule: float | None = None
    breakdown_pct: dict[str, float] = msgspec.field(default_factory=dict)
    unavailable: dict[str, str] = msgspec.field(default_factory=dict)


class TraceFile(Record, frozen=True, kw_only=True):
    """A trace of the run, for other viewers.

    Attributes:
        path: relative to the record's folder.
        href: the same as a link, relative to where the page is; empty where nothing is linked.
        stacks: whether it holds Python's stacks.
        problem: why nothing is drawn of it; empty if it was read, or need not be.
    """

    path: str
    batch_size: int
    href: str = ""
    stacks: bool = False
    problem: str = ""


class DeviceSection(Record, frozen=True, kw_only=True):
    """One device of the run.

    Attributes:
        name: `NVIDIA H100 (cuda:0)`; tells the devices of a run apart.
        headline: what is recommended for it.
        charts: over the batch size.
        timelines: what its counters said over time.
        hot: the most expensive kernels, on a CPU operators, at `hot_size`.
        operators: the operators beside the kernels.
        grown: what changed from one size to another, a pair after the other.
        trace: of the profiled steps at `hot_size`.
        flames: where their time went by stack, if stacks were recorded.
    """

    name: str
    headline: str
    sizes: tuple[Size, ...]
    table: Table
    charts: tuple[Chart, ...]
    timelines: tuple[Chart, ...] = ()
    hot: LongTable | None = None
    hot_size: int | None = None
    operators: LongTable | None = None
    grown: tuple[LongTable, ...] = ()
    trace: TraceFile | None = None
    flames: tuple[Flame, ...] = ()


class Finding(Record, frozen=True, kw_only=True):
    """Something the user should know; `evidence` and `remedy` may be empty.

    Attributes:
        numbers: the evidence as a table, where it is of several numbers.
        code: lines to paste.
    """

    severity: Literal["error", "warning", "info"]
    message: str
    evidence: str = ""
    numbers: Table | None = None
    remedy: str = ""
    code: tuple[str, ...] = ()
    estimate: bool = False


class LimitText(Record, frozen=True, kw_only=True):
    """What limits the step at the recommended size; `numbers` are the evidence as a table."""

    limit: str
    message: str
    evidence: str = ""
    numbers: Table | None = None
    larger: str = ""
    remedy: str = ""
    contributions: tuple[Fact, ...] = ()


class Block(Record, frozen=True, kw_only=True):
    """One batch of one rank, or several equal ones.

    Attributes:
        samples: in each; 0 for a step that this rank does not take.
        kind: `full`, `short` (the last batch), `dropped`, `empty`.
        count: how many batches the block stands for.
    """

    samples: int
    kind: Literal["full", "short", "dropped", "empty"]
    count: int = 1


class RankBlocks(Record, frozen=True, kw_only=True):
    """The batches of one rank in an epoch, in order."""

    rank: int
    blocks: tuple[Block, ...]


class TailSection(Record, frozen=True, kw_only=True):
    """The last batch of the epoch: sentences, and blocks to draw."""

    texts: tuple[str, ...]
    bad: bool = False
    batch_size: int = 0
    ranks: tuple[RankBlocks, ...] = ()


class SplitBar(Record, frozen=True, kw_only=True):
    """A device in a step: its samples, and how long it is predicted to work."""

    device: str
    batch_size: int
    step_s: float


class SplitGroup(Record, frozen=True, kw_only=True):
    """One way to divide a step, to draw: the slowest device sets the pace."""

    title: str
    step_s: float
    bars: tuple[SplitBar, ...]


class SplitSection(Record, frozen=True, kw_only=True):
    """One global batch over unlike devices; sentences alone where there is no plan.

    Attributes:
        shares: a row a device, in the order of ranks.
        options: a row for each way to divide a step.
        groups: what is drawn.
        snippet: Python code to paste.
        plan: in base units.
    """

    texts: tuple[str, ...]
    shares: Table | None = None
    options: Table | None = None
    groups: tuple[SplitGroup, ...] = ()
    snippet: str = ""
    plan: SplitPlan | None = None


class MemorySection(Record, frozen=True, kw_only=True):
    """One device of a snapshot of the memory, or one size of a run."""

    name: str
    facts: tuple[Fact, ...]
    tables: tuple[Table, ...]
    charts: tuple[Chart, ...] = ()


class Report(Record, frozen=True, kw_only=True, tag_field="kind", tag="run"):
    """One run, as people and machines read it.

    Attributes:
        notices: what to know before anything else is believed.
        circumstances: device, goal, run; one line each.
        overview: charts of several devices or ranks in one; empty with one device.
        tables: further tables, such as the devices of a run on several.
        split: of a global batch over several devices.
        watched: what a callback saw of a training that was not steered.
        distribution: ranks and what communication costs, for a job of several.
        limit, tail: `None` where nothing is recommended.
        identity: everything that identifies the run.
        memory: where it goes, at the recommended size and at those that were refused.
        advice: the answer in base units.
    """

    report_version: str = REPORT_VERSION
    title: str
    state: RunState
    notices: tuple[str, ...] = ()
    headline: str
    reason: str = ""
    sureness: str = ""
    change: str = ""
    circumstances: tuple[Fact, ...] = ()
    devices: tuple[DeviceSection, ...]
    overview: tuple[Chart, ...] = ()
    tables: tuple[Table, ...] = ()
    split: SplitSection | None = None
    watched: tuple[Fact, ...] = ()
    distribution: tuple[Fact, ...] = ()
    training: tuple[Fact, ...] = ()
    limit: LimitText | None = None
    tail: TailSection | None = None
    findings: tuple[Finding, ...] = ()
    faults: tuple[Fact, ...] = ()
    estimates: tuple[Fact, ...] = ()
    files: tuple[Fact, ...] = ()
    identity: tuple[Fact, ...] = ()
    memory: tuple[MemorySection, ...] = ()
    advice: Advice


class ComparisonReport(Record, frozen=True, kw_only=True, tag_field="kind", tag="comparison"):
    """Two runs side by side.

    Attributes:
        headline: what changed at the recommended sizes, or that it cannot be told.
        names: of the first and the second run.
        cautions: what differs besides, and what the intervals do not hold.
        circumstances: label, then the text of each run.
        table: size by size, for people.
        charts: both runs in one chart.
        grown: what changed in the profiled steps.
        before, after: the two reports whole.
    """

    report_version: str = REPORT_VERSION
    title: str
    headline: str
    names: tuple[str, str]
    cautions: tuple[str, ...] = ()
    circumstances: Table
    table: Table
    charts: tuple[Chart, ...] = ()
    grown: tuple[LongTable, ...] = ()
    before: Report
    after: Report
