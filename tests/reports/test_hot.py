"""Tables of kernels and operators, and what grew from one size or run to another: planted."""

import dataclasses

import msgspec
import pytest
from batchadvisor.records import KernelTime, Launcher, OperatorTime, Profile
from batchadvisor.reports.builder import growth, hot
from batchadvisor.reports.builder.run import build_report
from batchadvisor.reports.builder.sizes.rows import size_rows
from batchadvisor.reports.html.page import render

from ..on_paper import exactly
from . import samples

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


class TestTables:
    def test_shares_calls_and_means_are_of_a_step(self):
        (table,) = hot.hot_tables(
            profile([GEMM, OTHER], stacks=True), hot.Window(3, 0.005), " at batch size 8"
        )
        assert table.title == "Kernels at batch size 8"
        assert cells(table, "kernel") == ["gemm", "triton_poi"]
        assert cells(table, "of all kernels") == ["75.0", "25.0"]
        assert cells(table, "of the step") == ["60.0", "20.0"]
        assert cells(table, "time") == ["3 ms", "1 ms"]
        assert cells(table, "calls") == ["3", "2"]
        assert cells(table, "mean") == ["1 ms", "500 µs"]
        assert cells(table, "occupancy") == ["37", "-"]
        assert cells(table, "tensor cores") == ["yes", "?"]
        assert cells(table, "launched in") == ["aten::mm", "-"]
        assert cells(table, "from") == ["model.py(12): forward, 2x Linear, 1 more place", "-"]

    def test_keys_sort_as_the_values_do(self):
        (table,) = hot.hot_tables(profile([GEMM, OTHER]), hot.Window(3, 0.005), "")
        at = [column.title for column in table.columns].index("mean")
        assert [row[at] for row in table.keys] == pytest.approx([1e-3, 5e-4])
        assert all(len(row) == len(table.columns) for row in table.keys)

    def test_what_is_not_listed_is_said(self):
        whole = profile([GEMM], kernels_s=0.012, num_kernels=4)
        (table,) = hot.hot_tables(whole, hot.Window(3, 0.005), "")
        assert "3 further kernels with 25.0% of the time" in table.notes[0]
        assert cells(table, "of all kernels") == ["75.0"]

    def test_older_records_say_what_they_lack(self):
        unknown = ("kernels_s", "num_kernels", "operators_s", "num_operators")
        operators = (OperatorTime(name="a", num_calls=1, self_s=1.0),)
        old = profile([kernel("gemm", 0.009)], operators, **dict.fromkeys(unknown))
        for table in hot.hot_tables(old, hot.Window(3, None), ""):
            assert any("older version" in note for note in table.notes)
            titles = [column.title for column in table.columns]
            assert "of those listed" in titles
            assert not {"of the step", "tensor cores", "launched in"} & set(titles)

    def test_without_steps_all_is_of_the_window(self):
        (table,) = hot.hot_tables(profile([GEMM], num_steps=0), hot.Window(0, 0.018), "")
        assert cells(table, "of the window") == ["50.0"]
        assert cells(table, "calls") == ["9"]
        assert table.notes[0] == "Of the whole window."

    def test_launches_that_the_trace_does_not_hold(self):
        some = msgspec.structs.replace(GEMM, launchers=(PLACE,), num_launchers=1)
        (table,) = hot.hot_tables(profile([some]), hot.Window(3, 0.005), "")
        assert cells(table, "launched in") == ["aten::mm (3 of 9 launches not known)"]

    def test_a_kernel_of_two_operators(self):
        two = (PLACE, msgspec.structs.replace(BACK, operator="aten::addmm"))
        (table,) = hot.hot_tables(
            profile([msgspec.structs.replace(GEMM, launchers=two)]), hot.Window(3, 0.005), ""
        )
        assert cells(table, "launched in") == ["aten::mm 67%, aten::addmm 33%"]

    def test_operators_with_their_work_on_the_gpu(self):
        mm = OperatorTime(
            name="aten::mm", num_calls=9, self_s=0.003, device_s=0.009, callers=(PLACE,),
            num_callers=1,
        )  # fmt: skip
        _, table = hot.hot_tables(profile([GEMM], (mm,), stacks=True), hot.Window(3, 0.005), "")
        assert cells(table, "on the GPU") == ["3 ms"]
        assert cells(table, "called from") == ["model.py(12): forward, 2x Linear"]


def side(size, kernels, operators=(), **fields):
    return growth.Side(
        f"batch size {size}", size, profile(kernels, operators, **fields), hot.Window(3, 0.01)
    )


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


class TestGrowth:
    """From 8 to 16: `with` doubles, `fixed` stays, `part` grows by 1.4, `gone` and `new` change."""

    BEFORE = side(8, [kernel("with", 0.006), kernel("fixed", 0.003), kernel("part", 0.003),
                      kernel("gone", 0.0015)])  # fmt: skip
    AFTER = side(16, [kernel("with", 0.012), kernel("fixed", 0.00306), kernel("part", 0.0042),
                      kernel("new", 0.003)])  # fmt: skip

    def table(self, before=None, after=None):
        found = growth.tables(before or self.BEFORE, after or self.AFTER)
        return next(table for table in found if "by kernel" in table.title)

    def test_what_grew(self):
        table = self.table()
        assert table.title == "GPU time by kernel: batch size 8 → batch size 16"
        assert cells(table, "kernel") == ["with", "new", "gone", "part", "fixed"]
        assert cells(table, "change") == ["+2 ms", "+1 ms", "-500 µs", "+400 µs", "+20 µs"]
        assert cells(table, "ratio") == ["x2.00", "-", "-", "x1.40", "x1.02"]
        assert cells(table, "grows") == [
            "with the batch", "-", "-", "less than the batch", "not at all",
        ]  # fmt: skip
        assert cells(table, "batch size 8")[1:3] == ["none", "500 µs"]
        assert "4.5 ms → 7.42 ms a step (x1.65), with x2 the samples" in table.notes[0]

    def test_what_is_not_listed_is_not_nothing(self):
        cut = side(8, self.BEFORE.profile.kernels, num_kernels=70)
        table = self.table(before=cut)
        at = cells(table, "kernel").index("new")
        assert cells(table, "batch size 8")[at] == "below 500 µs"
        assert cells(table, "change")[at] == "over +500 µs"
        assert any("not among those" in note for note in table.notes)

    def test_the_same_size_has_no_growth(self):
        table = self.table(after=side(8, self.AFTER.profile.kernels))
        assert "grows" not in [column.title for column in table.columns]
        assert "samples" not in table.notes[0]

    def test_operators_on_a_cpu(self):
        def operators(scale):
            return (OperatorTime(name="aten::mm", num_calls=3, self_s=0.003 * scale),)

        (table,) = growth.tables(side(8, (), operators(1)), side(16, (), operators(2)))
        assert table.title.startswith("Self time on the CPU by operator")
        assert cells(table, "ratio") == ["x2.00"]

    def test_a_side_without_operators_is_not_one_with_none(self):
        """A trace that holds the GPU alone, beside one of a CPU."""
        mm = (OperatorTime(name="aten::mm", num_calls=3, self_s=0.003),)
        assert growth.tables(side(8, self.BEFORE.profile.kernels), side(16, (), mm)) == ()

    def test_on_a_gpu_operators_come_by_their_work_there(self):
        def operators(scale):
            return (
                OperatorTime(name="aten::mm", num_calls=3, self_s=0.003, device_s=0.003 * scale),
            )

        before = side(8, self.BEFORE.profile.kernels, operators(1))
        after = side(16, self.AFTER.profile.kernels, operators(2))
        first, second = growth.tables(before, after)
        assert first.title.startswith("GPU time by operator")
        assert (cells(first, "operator"), cells(first, "change")) == (["aten::mm"], ["+1 ms"])
        assert "by kernel" in second.title


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
                trial = msgspec.structs.replace(trial, profile=own)  # noqa: PLW2901
            trials.append(trial)
        return msgspec.structs.replace(record, trials=tuple(trials)), advice

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
        assert f"old, batch size {advice.recommended.batch_size}" in table.title
        assert cells(table, "kernel")[0] == "grows"
        assert cells(table, "change")[0].startswith("-")

    def test_a_run_without_profiles_has_none(self):
        record, advice = samples.cpu()
        (device,) = build_report(record, advice).devices
        assert (device.hot, device.operators, device.grown) == (None, None, ())

    def test_names_are_escaped(self):
        evil = "</td><script>alert(1)</script>" + "x" * 80
        record, advice = self.record((kernel(evil, 0.01, launchers=(
            msgspec.structs.replace(PLACE, operator=evil, line=evil, module=evil),
        ), num_launchers=1, ),))  # fmt: skip
        text = render(build_report(record, advice))
        assert "alert(1)" in text
        assert "<script>alert" not in text
