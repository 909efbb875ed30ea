"""Every fix that is offered removes its finding and leaves steps; the known bad ones are gone."""

import re

import batchadvisor
import msgspec
import pytest
import torch
from batchadvisor import ModelFacts
from batchadvisor.advisor.tails.cases import CASES
from batchadvisor.advisor.tails.conditions import made
from batchadvisor.advisor.tails.fixes import fixes_without
from batchadvisor.advisor.tails.layouts import layout_of
from batchadvisor.advisor.tails.pipeline import check
from batchadvisor.advisor.tails.sweeps import row_of
from torch.utils.data import DataLoader, IterableDataset

from .drawn import reports
from .said import case_of

BATCH_NORM = ModelFacts(batch_norm=1, batch_norm_values=1)


def holds(report, finding):
    """Whether each fix of a finding, applied, leaves steps and not the finding."""
    for fix in finding.fixes:
        changed = msgspec.structs.replace(report.pipeline, **fix.changes)
        check(changed)
        row = row_of(changed)
        assert row.steps > 0, (report.pipeline, finding.id, fix)
        assert finding.id not in row.ids, (report.pipeline, finding.id, fix)
        assert finding.harmful or finding.id not in row.also, (report.pipeline, finding.id, fix)


@pytest.mark.slow
def test_ten_thousand_pipelines():
    """Every fix of every finding, applied through the engine."""
    offered = mended = without = 0
    for report in reports(10_000, 0, batchadvisor.tails):
        for finding in report.findings:
            holds(report, finding)
            offered += len(finding.fixes)
            mended += bool(finding.fixes)
            without += finding.harmful and not finding.fixes
    assert offered > 15_000
    assert without < 0.15 * (mended + without)


def test_a_step_that_failed_is_not_made_again():
    """Whatever made it fail: no remedy leaves a step of its length, or none at all."""
    offered = 0
    for report in reports(2_000, 1, batchadvisor.tails):
        if report.layout is None or not report.layout.last:
            continue
        samples = report.layout.last[0]
        for fix in fixes_without(report.pipeline, samples):
            changed = msgspec.structs.replace(report.pipeline, **fix.changes)
            check(changed)
            layout = layout_of(changed)
            assert layout.steps, (report.pipeline, fix)
            assert not any(samples in sizes for sizes in made(layout)), (report.pipeline, fix)
            assert set(row_of(changed).ids) <= set(row_of(report.pipeline).ids)
            offered += 1
    assert offered > 500


@pytest.mark.parametrize("case", CASES, ids=lambda known: known.id)
def test_the_example_of_a_page(case):
    """It meets the case, and a page shows at least one fix."""
    report = batchadvisor.tails(case.example)
    finding = case_of(report, case.id)
    assert finding is not None
    assert finding.fixes
    holds(report, finding)
    assert "{" not in "".join(fix.snippet for fix in finding.fixes).replace("{'", "")


def snippets(name=None, **facts):
    """All code that a report offers, of one case or of all; it is checked on the way."""
    report = batchadvisor.tails(**facts)
    for finding in report.findings:
        holds(report, finding)
    return [
        fix.snippet
        for finding in report.findings
        if name in (None, finding.id)
        for fix in finding.fixes
    ]


@pytest.mark.parametrize("setup", ["dataloader", "ddp", "accelerate", "lightning", "trainer"])
def test_dropping_never_leaves_no_step(setup):
    """N below one global batch: a smaller batch, never drop_last at the same size."""
    ranks = 1 if setup == "dataloader" else 4
    facts = {"num_samples": 20, "batch_size": 32, "setup": setup, "num_ranks": ranks}
    report = batchadvisor.tails(**facts, model=BATCH_NORM)
    assert case_of(report, "loader.below-one-batch").fixes[0].changes["batch_size"] == 20 // ranks
    for finding in report.findings:
        holds(report, finding)


def test_idle_gpus_in_every_step():
    """Neither dropping nor repeating samples feeds 8 GPUs with 4 samples."""
    code = snippets(num_samples=100, batch_size=4, num_ranks=8, setup="data-parallel")
    assert code == [
        "DataLoader(dataset, batch_size=8, shuffle=True, drop_last=True)",
        "torch.nn.DataParallel(model, device_ids=list(range(4)))",
    ]


def test_a_size_is_never_its_own_remedy():
    code = snippets(
        "mirrored.first-batch", num_samples=22, batch_size=56, num_ranks=4, setup="mirrored"
    )
    assert code
    assert not any("56" in line for line in code)


def test_no_remedy_leads_into_an_error():
    """100 samples, 128 a batch: 25 a batch would make a step, and MirroredStrategy refuse it."""
    facts = {"num_samples": 100, "batch_size": 128, "num_ranks": 4, "setup": "mirrored"}
    assert snippets("loader.no-steps", **facts, drop_last=True) == ["batch_size = 100"]
    for size in (96, 100):
        report = batchadvisor.tails(**{**facts, "batch_size": size}, drop_last=True)
        assert report.layout.steps == 1
        assert case_of(report, "mirrored.first-batch") is None


def test_nothing_is_filled_below_one_batch():
    code = "\n".join(snippets(num_samples=3, batch_size=64, model=BATCH_NORM))
    assert "order" not in code
    assert "batch_size = 3" in code


def test_several_workers_are_several():
    """Of a setup that does not train on several devices."""
    for setup in ("multi-worker-mirrored", "keras-torch"):
        (code,) = snippets(num_samples=1024, batch_size=64, num_ranks=4, setup=setup)
        assert code.startswith("torchrun --nproc-per-node=4 ")
        assert code.endswith("batch_size=16")


def test_a_full_last_step_is_not_dropped():
    """Every rank draws 4 of 15 samples: the sampler repeats one, and no batch is short."""
    report = batchadvisor.tails(num_samples=15, batch_size=4, setup="ddp", num_ranks=4)
    finding = case_of(report, "distributed.duplicates")
    assert not any("short" in fix.title for fix in finding.fixes)
    assert not any("drop_last=True)" in fix.snippet.splitlines()[-1] for fix in finding.fixes)


@pytest.mark.parametrize("channels", [1, 2, 3, 5, 12, 16, 32, 48, 64, 100])
def test_group_norm_fits_any_number_of_channels(channels):
    """Groups of at least two values, so that one sample on 1x1 maps is enough."""
    import math

    facts = {"num_samples": 9, "batch_size": 4, "model": BATCH_NORM}
    code = next(
        snippet for snippet in snippets("norm.one-value", **facts) if "GroupNorm" in snippet
    )
    names = {"math": math, "torch": torch, "channels": channels}
    exec(code, names)
    values = torch.randn(1 if channels > 1 else 2, channels, 1, 1)
    assert names["norm"](values).shape == values.shape


class Numbers(IterableDataset):
    """Ten numbers without a length."""

    def __iter__(self):
        return iter(range(10))


class TestIterable:
    def test_the_code_runs(self):
        """A loader of an iterable dataset refuses shuffle=True, and has no len(dataset)."""
        facts = {"num_samples": 10, "batch_size": 4, "iterable": True}
        names = {"DataLoader": DataLoader, "dataset": Numbers()}
        code = snippets("loader.short", **facts)
        drop = next(snippet for snippet in code if "drop_last" in snippet)
        assert [len(batch) for batch in eval(drop, names)] == [4, 4]
        assert not any("shuffle" in snippet or "len(dataset)" in snippet for snippet in code)

    def test_dropping_in_each_worker_is_no_remedy(self):
        facts = {"num_samples": 10, "batch_size": 4, "iterable": True, "num_workers": 3}
        for code in snippets("iterable.worker-tails", **facts):
            assert "drop_last" not in code or "num_workers=1" in code

    def test_each_rank_takes_its_share(self):
        """The fix of ranks that all draw everything, executed for every rank."""
        import itertools

        facts = {"num_samples": 10, "batch_size": 3, "iterable": True}
        (code,) = snippets("ddp.no-sampler", **facts, setup="ddp", num_ranks=3)
        seen = []
        for rank in range(3):
            names = {
                "torch": torch, "itertools": itertools, "DataLoader": DataLoader,
                "dataset": Numbers(), "rank": rank, "world_size": 3,
            }  # fmt: skip
            exec(code, names)
            seen.append([int(value) for batch in names["loader"] for value in batch])
        assert seen == [[0, 3, 6], [1, 4, 7], [2, 5, 8]]


class TestOneProcess:
    """Code for a DataLoader, executed: the batches are those that the engine predicts."""

    @pytest.mark.parametrize(("num_samples", "size"), [(10, 4), (129, 64), (1000, 300)])
    def test_loaders(self, num_samples, size):
        dataset = torch.utils.data.TensorDataset(torch.arange(num_samples))
        report = batchadvisor.tails(num_samples=num_samples, batch_size=size)
        ran = 0
        for fix in case_of(report, "loader.short").fixes:
            after = batchadvisor.tails(report.pipeline, **fix.changes)
            names = {"torch": torch, "DataLoader": DataLoader, "dataset": dataset}
            if re.match(r"\w+ = \d+", fix.snippet):
                exec(fix.snippet, names)
                names["loader"] = DataLoader(dataset, names["batch_size"])
            else:
                exec(
                    fix.snippet.replace("DataLoader(", "loader = DataLoader(", 1)
                    if "loader =" not in fix.snippet
                    else fix.snippet,
                    names,
                )
            lengths = [len(batch[0]) for batch in names["loader"]]
            assert len(lengths) == after.layout.steps
            assert lengths[-1] == after.layout.last_samples
            ran += 1
        assert ran >= 2


def code_by_case(**fields):
    """The code of all fixes of a pipeline, by case."""
    report = batchadvisor.tails(**fields)
    return {one.id: [fix.snippet for fix in one.fixes] for one in report.findings}


class TestCodeForThePipeline:
    """Snippets that are pasted as they are: of the loader's own size, order and drop_last."""

    def test_a_worker_of_a_stream_is_a_share(self):
        """1,000 samples in 10 workers: 100 each; a smaller batch or one worker makes steps."""
        report = batchadvisor.tails(
            num_samples=1000, batch_size=128, iterable=True, num_workers=10, drop_last=True
        )
        found = {finding.id: finding for finding in report.findings}["loader.no-steps"]
        assert "each of 10 workers cuts batches of its own 100 samples" in found.message
        assert [fix.snippet for fix in found.fixes] == [
            "batch_size = 100",
            "DataLoader(dataset, num_workers=1, batch_size=128, drop_last=True)",
        ]

    @pytest.mark.parametrize(("size", "workers"), [(60, 20), (501, 2)])
    def test_other_streams(self, size, workers):
        given = {"num_samples": 1000, "batch_size": size, "iterable": True, "drop_last": True}
        found = code_by_case(**given, num_workers=workers)["loader.no-steps"]
        assert found[0] == f"batch_size = {1000 // workers}"
        assert "loader.no-steps" not in code_by_case(**given, num_workers=1)

    def test_a_stream_is_not_shuffled(self):
        for size in (50, 64, 66):
            for name, found in code_by_case(
                num_samples=1030, batch_size=size, num_ranks=4, setup="data-parallel", iterable=True
            ).items():
                assert not [code for code in found if "shuffle" in code], name

    def test_the_loader_gets_the_size_of_all_gpus(self):
        given = {"num_samples": 1030, "num_ranks": 4, "setup": "data-parallel"}
        found = code_by_case(**given, batch_size=16, batch_is="per rank")
        assert "batch_size = 52" in found["dataparallel.chunks"]
        sizes = {
            int(size)
            for codes in found.values()
            for code in codes
            for size in re.findall(r"batch_size ?= ?(\d+)", code)
            if "torchrun" not in code
        }
        assert min(sizes) > 4 * 8

    @pytest.mark.parametrize(
        ("case", "fields"),
        [
            ("ddp.no-sampler", {"sampler": "plain"}),
            ("ddp.no-sampler", {"sampler": "plain", "iterable": True}),
            ("distributed.no-samples", {"num_samples": 3, "sampler_drop_last": True}),
        ],
    )
    def test_drop_last_stays(self, case, fields):
        given = {"num_samples": 1030, "batch_size": 1, "num_ranks": 4, "setup": "ddp"}
        dropping = code_by_case(**{**given, **fields, "drop_last": True})[case]
        loaders = [code for code in dropping if "DataLoader(" in code]
        assert loaders
        assert all("drop_last=True)" in code.split("DataLoader(")[1] for code in loaders)
        for code in code_by_case(**{**given, **fields})[case]:
            assert "drop_last=True" not in code.partition("DataLoader(")[2].partition("\n")[0]

    @pytest.mark.parametrize("size", [50, 64, 66])
    def test_jax_places_what_a_fix_leaves(self, size):
        report = batchadvisor.tails(num_samples=1030, batch_size=size, num_ranks=4, setup="jax")
        assert report.findings
        for finding in report.findings:
            assert "( by rank)" not in finding.message
            for fix in finding.fixes:
                changed = msgspec.structs.replace(report.pipeline, **fix.changes)
                assert "jax.indivisible" not in row_of(changed).ids

    def test_unequal_parts_say_what_they_fail_with(self):
        """An output whose batch is not in axis 0 is put together wrongly: torch's own words."""
        report = batchadvisor.tails(
            num_samples=1030, batch_size=66, num_ranks=4, setup="data-parallel"
        )
        found = {finding.id: finding for finding in report.findings}["dataparallel.chunks"]
        assert "3 x 17, 15" in found.message
        assert "not in axis 0" in found.message


class TestLightningPredictsAStream:
    """Its sampler is not put in: each rank reads all, and drop_last is kept."""

    def test_every_rank_reads_all(self):
        given = {"num_samples": 1030, "batch_size": 64, "num_ranks": 4, "setup": "lightning"}
        report = batchadvisor.tails(**given, stage="predict", iterable=True)
        assert "ddp.no-sampler" in {finding.id for finding in report.findings}
        assert report.layout.batches == (17,) * 4
        dropping = batchadvisor.tails(**given, stage="predict", iterable=True, drop_last=True)
        assert dropping.layout.batches == (16,) * 4
        dealt = batchadvisor.tails(**given, stage="predict", drop_last=True)
        assert sum(dealt.layout.batches) * 64 >= 1030  # of a dataset with a length: all of it
