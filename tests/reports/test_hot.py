"""Tables of kernels and operators, and what grew from one size or run to another: planted."""

import dataclasses

import pytest
from batchadvisor.records import KernelTime, Launcher, OperatorTime, Profile
from batchadvisor.reports.blocks import Document, Section
from batchadvisor.reports.builder import growth, hot
from batchadvisor.reports.builder.run import build_report
from batchadvisor.reports.builder.sizes.rows import size_rows
from batchadvisor.reports.html.page import render
from batchadvisor.reports.markdown.document import render as markdown
from msgspec.structs import replace

from ..on_paper import exactly
from . import samples
from .golden import agrees

PLACE = Launcher(
    operator="aten::mm", line="model.py(12): forward", module="Linear", num_modules=2,
    num_calls=6, total_s=0.006,
)  # fmt: skip
BACK = Launcher(
    operator="aten::mm", line="model.py(12): forward", module="Linear", num_modules=2,
    backward=True, num_calls=3, total_s=0.003,
)  # fmt: skip


def kernel(name, total_s, num_calls=3, **fields):
    return KernelTime(name=name, num_calls=num_calls, total_s=total_s, **fields)


def profile(kernels, operators=(), num_steps=3, **fields):
    known = {
        "kernels_s": sum(one.total_s for one in kernels),
        "num_kernels": len(kernels),
        "operators_s": sum(one.self_s for one in operators),
        "num_operators": len(operators),
    }
    return Profile(
        num_steps=num_steps,
        kernels=tuple(kernels),
        operators=tuple(operators),
        **{**known, **fields},
    )


GEMM = kernel("gemm", 0.009, 9, occupancy_pct=37.4, tensor_cores="yes", launchers=(PLACE, BACK),
              num_launchers=2)  # fmt: skip
OTHER = kernel("triton_poi", 0.003, 6, tensor_cores="cannot tell", launchers=(), num_launchers=0)


def cells(table, title):
    at = [column.title for column in table.columns].index(title)
    return [row.cells[at] for row in table.rows]


STEP = hot.Window(3, 0.005)
TWO = (PLACE, replace(BACK, operator="aten::addmm"))
MM = OperatorTime(
    name="aten::mm", num_calls=9, self_s=0.003, device_s=0.009, callers=(PLACE,), num_callers=1,
)  # fmt: skip
UNKNOWN = dict.fromkeys(("kernels_s", "num_kernels", "operators_s", "num_operators"))
HOT = {
    "shares, calls and means are of a step": (profile([GEMM, OTHER], stacks=True), STEP),
    "what is not listed is said": (profile([GEMM], kernels_s=0.012, num_kernels=4), STEP),
    "an older record says what it lacks": (
        profile([kernel("gemm", 0.009)], [replace(MM, callers=())], **UNKNOWN),
        hot.Window(3, None),
    ),
    "without steps all is of the window": (profile([GEMM], num_steps=0), hot.Window(0, 0.018)),
    "launches that the trace does not hold": (
        profile([replace(GEMM, launchers=(PLACE,), num_launchers=1)]), STEP,
    ),
    "a kernel of two operators": (profile([replace(GEMM, launchers=TWO)]), STEP),
    "operators with their work on the GPU": (profile([GEMM], [MM], stacks=True), STEP),
}  # fmt: skip


def side(size, kernels, operators=(), **fields):
    return growth.Side(
        f"batch size {size}", size, profile(kernels, operators, **fields), hot.Window(3, 0.01)
    )


BEFORE = [kernel("doubles", 0.006), kernel("stays", 0.003), kernel("grows by 1.4", 0.003),
          kernel("goes", 0.0015)]  # fmt: skip
AFTER = [kernel("doubles", 0.012), kernel("stays", 0.00306), kernel("grows by 1.4", 0.0042),
         kernel("comes", 0.003)]  # fmt: skip
ON_CPU = [[OperatorTime(name="aten::mm", num_calls=3, self_s=0.003 * n)] for n in (1, 2)]
ON_GPU = [
    [OperatorTime(name="aten::mm", num_calls=3, self_s=0.003, device_s=0.003 * n)] for n in (1, 2)
]
GROWN = {
    "from 8 to 16": (side(8, BEFORE), side(16, AFTER)),
    "what is not listed is not nothing": (side(8, BEFORE, num_kernels=70), side(16, AFTER)),
    "the same size has no growth": (side(8, BEFORE), side(8, AFTER)),
    "operators on a CPU": (side(8, (), ON_CPU[0]), side(16, (), ON_CPU[1])),
    "of a GPU alone, and of a CPU: none": (side(8, BEFORE), side(16, (), ON_CPU[0])),
    "of operators that are not listed their work on a GPU is not known": (
        side(8, BEFORE, ON_GPU[0], num_operators=70),
        side(16, AFTER, [*ON_GPU[1], replace(MM, name="aten::add")]),
    ),
    "on a GPU operators come by their work there": (
        side(8, BEFORE, ON_GPU[0]), side(16, AFTER, ON_GPU[1]),
    ),
}  # fmt: skip


def test_a_step_of_more_and_smaller_batches_has_no_more_samples():
    """Under --keep-effective-batch four batches of 16 make the step of one of 64."""
    four, one = side(16, BEFORE)._replace(micro_batches=4), side(64, AFTER)
    (table,) = growth.tables(four, one)
    assert "grows" not in {column.title for column in table.columns}
    assert not any("the samples" in note for note in table.notes)
    (table,) = growth.tables(four, one._replace(micro_batches=2))
    assert any("x2 the samples" in note for note in table.notes)


def test_sizes_that_are_budgets_of_tokens():
    before, after = (one._replace(axis="tokens") for one in GROWN["from 8 to 16"])
    (table,) = growth.tables(before, after)
    assert any(note.endswith(", with x2 the budget of tokens.") for note in table.notes)
    assert "with the batch" in cells(table, "grows")
    (table,) = growth.tables(before._replace(axis="samples"), after)
    assert not any("with x2" in note for note in table.notes)


def test_what_shrank_to_nearly_nothing_is_no_zero():
    before, after = ([OperatorTime(name="aten::mm", num_calls=3, self_s=s)] for s in (0.3, 1e-3))
    (table,) = growth.tables(side(64, (), before), side(8, (), after))
    at = [column.title for column in table.columns].index("ratio")
    assert table.rows[0].cells[at] == "x0.0033"


def test_bounds_are_explained_only_where_there_are_some():
    """Both sides list the same names, and neither all that it has."""
    both = (side(8, BEFORE, num_kernels=70), side(16, BEFORE, num_kernels=70))
    (table,) = growth.tables(*both)
    assert not any(note.startswith("below, over") for note in table.notes)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("hot.md", {case: hot.hot_tables(*known, ": hot") for case, known in HOT.items()}),
        ("grown.md", {case: growth.tables(*known) for case, known in GROWN.items()}),
    ],
)
def test_whole_tables(name, found):
    """Their titles, cells and notes, stored."""
    sections = [
        Section(title=case, blocks=tuple(Section(title=one.title, blocks=(one,)) for one in tables))
        for case, tables in found.items()
    ]
    agrees(name, markdown(Document(title=name, headline=name, blocks=tuple(sections))))


def test_keys_sort_as_the_values_do():
    (table,) = hot.hot_tables(*HOT["shares, calls and means are of a step"], "")
    mean = [column.title for column in table.columns].index("mean")
    assert [row[mean] for row in table.keys] == pytest.approx([1e-3, 5e-4])


class TestWindow:
    def row(self, timed_s, half_width, kernels=(GEMM,)):
        record, advice = samples.gpu()
        row = size_rows(record, advice)[0]
        own = profile(kernels, step_s=0.006)
        step_s = exactly(timed_s, half_width)
        return dataclasses.replace(row, profile=own, step_s=step_s)

    def test_a_timed_step_counts_where_it_is_shorter(self):
        assert hot.window_of(self.row(0.005, 0.01)) == hot.Window(3, 0.005, timed=True)
        assert hot.window_of(self.row(0.007, 0.01)) == hot.Window(3, 0.006)

    def test_but_not_where_it_is_noise_or_a_cpu(self):
        assert hot.window_of(self.row(0.005, 0.3)) == hot.Window(3, 0.006)
        assert hot.window_of(self.row(0.005, 0.01, kernels=())) == hot.Window(3, 0.006)


class TestRuns:
    def record(self, kernels=None):
        """The synthetic run on a GPU: one kernel that grows with the batch and one that stays."""
        record, advice = samples.gpu()
        trials = []
        for trial in record.trials:
            if trial.ran and trial.kind == "timed":
                made = kernels or (
                    kernel("grows", 3e-5 * trial.batch_size, launchers=(PLACE,), num_launchers=1),
                    kernel("stays", 0.003),
                )
                own = profile(made)
                trial = replace(trial, profile=own)  # noqa: PLW2901
            trials.append(trial)
        return replace(record, trials=tuple(trials)), advice

    def test_sizes_of_a_run_are_compared_in_pairs(self):
        record, advice = self.record()
        (device,) = build_report(record, advice).devices
        titles = [table.title for table in device.grown]
        assert device.hot.title == f"Kernels at batch size {device.hot_size}"
        recommended, native = advice.recommended.batch_size, advice.native.batch_size
        assert titles[0].endswith(f"batch size {native} → batch size {recommended}")
        assert len(titles) == len(set(titles))
        for table in device.grown:
            assert dict(zip(cells(table, "kernel"), cells(table, "grows"), strict=True)) == {
                "grows": "with the batch",
                "stays": "not at all",
            }

    def test_two_runs(self):
        first, advice = self.record()
        second, _ = self.record((kernel("grows", 1e-6), kernel("stays", 0.003)))
        rows = (size_rows(first, advice), size_rows(second, advice))
        (table,) = growth.of_runs(("old", "new"), rows, (advice, advice))
        size = advice.recommended.batch_size
        assert f"old, batch size {size}" in table.title
        budgets = replace(advice, axis="tokens", size_name="max_tokens")
        (table,) = growth.of_runs(("old", "new"), rows, (budgets, budgets))
        assert f"old, max_tokens {size}" in table.title
        (table,) = growth.of_runs(("old", "new"), rows, (advice, advice))
        assert cells(table, "kernel")[0] == "grows"
        assert cells(table, "change")[0].startswith("-")

    def test_a_run_without_profiles_has_none(self):
        record, advice = samples.cpu()
        (device,) = build_report(record, advice).devices
        assert (device.hot, device.operators, device.grown) == (None, None, ())

    def test_names_are_escaped(self):
        evil = "</td><script>alert(1)</script>" + "x" * 80
        record, advice = self.record((kernel(evil, 0.01, launchers=(
            replace(PLACE, operator=evil, line=evil, module=evil),
        ), num_launchers=1, ),))  # fmt: skip
        text = render(build_report(record, advice))
        assert "alert(1)" in text
        assert "<script>alert" not in text
