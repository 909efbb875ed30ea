"""Every fix that is offered removes its finding and leaves steps; the known bad ones are gone."""

import itertools
import math
import random
import re
from types import SimpleNamespace

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
from batchadvisor.cli.tails import SETUPS
from batchadvisor.errors import UsageError
from torch.utils.data import DataLoader, IterableDataset

from .pages import as_loader
from .said import case_of, planned

BATCH_NORM = ModelFacts(batch_norm=1, batch_norm_values=1)
SINGLE = ("dataloader", "keras-tensorflow", "keras-jax")


def facts_of(rng):
    """The fields of a pipeline; `batchadvisor.tails` may refuse them as contradictory."""
    setup, pick = rng.choice(SETUPS), rng.choice
    ranks = 1 if setup in SINGLE else pick((1, 2, 3, 4, 8))
    facts = {
        "num_samples": rng.randint(1, pick((40, 400, 100_000))),
        "batch_size": rng.randint(1, pick((16, 64, 256))),
        "setup": setup,
        "num_ranks": ranks,
        "drop_last": rng.random() < 0.3,
        "iterable": rng.random() < 0.2,
        "num_workers": pick((0, 0, 2, 3)),
        "micro_batches": pick((1, 1, 2, 4)),
        "stage": pick(("train", "train", "train", "validate", "predict")),
        "batch_is": pick((None, None, None, "global", "per rank")),
        "model": model_of(rng),
    }
    if setup in ("ddp", "lightning", "join"):
        facts["sampler"] = pick((None, "distributed", "plain", "shards"))
    if setup in ("ddp", "distributed-sampler", "lightning"):
        facts["sampler_drop_last"] = rng.random() < 0.2
    if setup in ("accelerate", "trainer"):
        facts["even_batches"] = rng.random() < 0.6
        facts["split_batches"] = rng.random() < 0.2
        facts["dispatch_batches"] = pick((None, True, False))
    if setup == "ddp" and rng.random() < 0.15:
        facts["rank_batch_sizes"] = tuple(rng.randint(0, 9) for _ in range(ranks))
        facts["batch_size"] = sum(facts["rank_batch_sizes"])
    return facts


def model_of(rng):
    """Facts of a model, half of them unknown."""
    pick = rng.choice
    return ModelFacts(
        batch_norm=pick((None, 0, 2)),
        batch_norm_values=pick((None, 1, 9)),
        sync_batch_norm=pick((None, None, 1)),
        group_norm=pick((None, 1)),
        group_norm_values=pick((None, 1, 2)),
        instance_norm=pick((None, None, 1)),
        instance_norm_values=pick((None, 4, 4, 4, 1)),
        optimizer=pick((None, "SGD", "Adam")),
        compiled=pick((None, "default", "static", "dynamic")),
        loss=pick(("mean", "mean", "sum", "contrastive")),
        loss_in_forward=rng.random() < 0.3,
    )


def reports(number, seed, plan):
    """`number` reports that `plan` made of random pipelines."""
    rng = random.Random(seed)
    while number:
        try:
            report = plan(**facts_of(rng))
        except UsageError:
            continue
        yield report
        number -= 1


def holds(report, finding):
    """Whether each fix of a finding, applied, leaves steps and not the finding."""
    for fix in finding.fixes:
        changed = msgspec.structs.replace(report.pipeline, **fix.changes)
        check(changed)
        row = row_of(changed)
        assert row.steps > 0, (report.pipeline, finding.id, fix)
        assert finding.id not in row.ids, (report.pipeline, finding.id, fix)
        assert finding.harmful or finding.id not in row.also, (report.pipeline, finding.id, fix)


@pytest.mark.parametrize("number", [2_000, pytest.param(10_000, marks=pytest.mark.slow)])
def test_every_fix_of_random_pipelines_holds(number):
    """Every fix of every finding, applied through the engine."""
    offered = mended = without = 0
    for report in reports(number, 0, batchadvisor.tails):
        for finding in report.findings:
            holds(report, finding)
            offered += len(finding.fixes)
            mended += bool(finding.fixes)
            without += finding.harmful and not finding.fixes
    assert offered > 1.5 * number
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


def code_by_case(report):
    """The code of all fixes of a pipeline, by case; they are applied on the way."""
    for finding in report.findings:
        holds(report, finding)
    return {one.id: [fix.snippet for fix in one.fixes] for one in report.findings}


def snippets(name, report):
    """The code of one case, or of all."""
    found = code_by_case(report)
    return found[name] if name else [code for codes in found.values() for code in codes]


SAMPLER_DROPS = """\
sampler = DistributedSampler(dataset, drop_last=True)
loader = DataLoader(dataset, batch_size=4, sampler=sampler)"""
STREAM = {"iterable": True, "drop_last": True}
ONE_WORKER = "DataLoader(dataset, num_workers=1, batch_size={}, drop_last=True)"


@pytest.mark.parametrize(
    ("name", "report", "code"),
    [
        # A smaller batch, never drop_last at the same size; and nothing is filled.
        ("loader.below-one-batch", planned(20, 32, model=BATCH_NORM), ["batch_size = 20"]),
        ("loader.below-one-batch", planned(20, 32, "ddp", 4, model=BATCH_NORM), ["batch_size = 5"]),
        ("loader.below-one-batch", planned(20, 32, "accelerate", 4), ["batch_size = 5"]),
        ("", planned(3, 64, model=BATCH_NORM), ["batch_size = 3"]),
        # Neither dropping nor repeating samples feeds 8 GPUs with 4 samples.
        (
            "",
            planned(100, 4, "data-parallel", 8),
            [
                "DataLoader(dataset, batch_size=8, shuffle=True, drop_last=True)",
                "torch.nn.DataParallel(model, device_ids=list(range(4)))",
            ],
        ),
        # A size is never its own remedy.
        (
            "mirrored.first-batch",
            planned(22, 56, "mirrored", 4),
            ["batch_size = 12  # a multiple of 4", "batch_size = 12"],
        ),
        # 25 a batch would make a step, and MirroredStrategy refuse it.
        ("loader.no-steps", planned(100, 128, "mirrored", 4, drop_last=True), ["batch_size = 100"]),
        # Of a setup that does not train on several devices: several workers are several.
        (
            "",
            planned(1024, 64, "multi-worker-mirrored", 4),
            ["torchrun --nproc-per-node=4 train.py  # torch DDP, batch_size=16"],
        ),
        # Every rank draws 4 of 15 samples: one is repeated, and no batch is short to be dropped.
        (
            "distributed.duplicates",
            planned(15, 4, "ddp", 4),
            [SAMPLER_DROPS, "batch_size, drop_last = 3, True  # Keras: drop_remainder=True"],
        ),
        # Each worker of a stream cuts batches of its own share.
        *(
            (
                "loader.no-steps",
                planned(1000, size, num_workers=workers, **STREAM),
                [f"batch_size = {1000 // workers}", ONE_WORKER.format(size)],
            )
            for size, workers in ((128, 10), (60, 20), (501, 2))
        ),
    ],
)
def test_what_is_offered(name, report, code):
    assert snippets(name, report) == code


@pytest.mark.parametrize("channels", [1, 2, 3, 5, 12, 16, 32, 48, 64, 100])
def test_group_norm_fits_any_number_of_channels(channels):
    """Groups of at least two values, so that one sample on 1x1 maps is enough."""
    found = snippets("norm.one-value", planned(9, 4, model=BATCH_NORM))
    code = next(snippet for snippet in found if "GroupNorm" in snippet)
    names = {"math": math, "torch": torch, "channels": channels}
    exec(code, names)
    values = torch.randn(1 if channels > 1 else 2, channels, 1, 1)
    assert names["norm"](values).shape == values.shape


@pytest.mark.parametrize(("batch", "gradient"), [(15, 1.0), (16, 4.0)])
def test_lightning_rescales_a_stream(batch, gradient):
    """Of a stream Lightning knows no number of batches: it is infinite there."""
    report = planned(1020, 60, "lightning", iterable=True, micro_batches=4)
    names = {}
    exec(snippets("accumulation.tail", report)[0], names)
    weight = torch.nn.Parameter(torch.ones(1))
    weight.grad = torch.ones(1)
    loop = SimpleNamespace(epoch_loop=SimpleNamespace(batch_idx=batch))
    module = SimpleNamespace(
        trainer=SimpleNamespace(fit_loop=loop, num_training_batches=math.inf, is_last_batch=True),
        parameters=lambda: iter([weight]),
    )
    names["on_before_optimizer_step"](module, None)
    assert weight.grad.item() == gradient


@pytest.mark.parametrize(
    "facts",
    [
        {"batch_size": 64},
        {"batch_size": 16, "num_ranks": 4, "setup": "ddp"},
        {"batch_size": 64, "num_ranks": 4, "setup": "ddp", "batch_is": "global"},
        {"batch_size": 64, "num_ranks": 2, "setup": "ddp", "rank_batch_sizes": (48, 16)},
        {"batch_size": 80, "num_ranks": 3, "setup": "ddp", "rank_batch_sizes": (40, 24, 16)},
        {
            "batch_size": 64, "num_ranks": 4, "setup": "accelerate", "split_batches": True,
            "even_batches": False,
        },
    ],
)  # fmt: skip
def test_a_scaled_loss_weighs_each_sample_alike(facts):
    """In every step, whatever the ranks have: 1 over the samples of a full one, after DDP."""
    report = planned(num_samples=1100, model=ModelFacts(optimizer="SGD"), **facts)
    layout, ranks = report.layout, report.pipeline.num_ranks
    code = next(each for each in snippets("loader.short", report) if each.startswith("loss = "))
    for own in filter(None, (*layout.full, *layout.last)):
        names = {"loss": 1.0 / own, "target": range(own), "world_size": ranks}
        exec(code, names)
        assert names["loss"] / ranks == pytest.approx(1 / layout.full_samples)


class Numbers(IterableDataset):
    """Ten numbers without a length."""

    def __iter__(self):
        return iter(range(10))


class TestIterable:
    def test_the_code_runs(self):
        """A loader of an iterable dataset refuses shuffle=True, and has no len(dataset)."""
        names = {"DataLoader": DataLoader, "dataset": Numbers()}
        code = snippets("loader.short", planned(10, 4, iterable=True))
        drop = next(snippet for snippet in code if "drop_last" in snippet)
        assert [len(batch) for batch in eval(drop, names)] == [4, 4]
        assert not any("shuffle" in snippet or "len(dataset)" in snippet for snippet in code)

    def test_dropping_in_each_worker_is_no_remedy(self):
        report = planned(10, 4, iterable=True, num_workers=3)
        for code in snippets("iterable.worker-tails", report):
            assert "drop_last" not in code or "num_workers=1" in code

    def test_each_rank_takes_its_share(self):
        """The fix of ranks that all draw everything, executed for every rank."""
        (code,) = snippets("ddp.no-sampler", planned(10, 3, "ddp", 3, iterable=True))
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
            exec(as_loader(fix.snippet), names)
            if "loader" not in names:
                names["loader"] = DataLoader(dataset, names["batch_size"])
            lengths = [len(batch[0]) for batch in names["loader"]]
            assert len(lengths) == after.layout.steps
            assert lengths[-1] == after.layout.last_samples
            ran += 1
        assert ran >= 2


class TestCodeForThePipeline:
    """Snippets that are pasted as they are: of the loader's own size, order and drop_last."""

    def test_a_stream_is_not_shuffled(self):
        for size in (50, 64, 66):
            report = planned(1030, size, "data-parallel", 4, iterable=True)
            assert not any("shuffle" in code for code in snippets("", report))

    def test_the_loader_gets_the_size_of_all_gpus(self):
        found = code_by_case(planned(1030, 16, "data-parallel", 4, batch_is="per rank"))
        assert "batch_size = 52" in found["dataparallel.chunks"]
        codes = [code for codes in found.values() for code in codes if "torchrun" not in code]
        assert min(map(int, re.findall(r"batch_size ?= ?(\d+)", "\n".join(codes)))) > 4 * 8

    @pytest.mark.parametrize(
        ("case", "fields"),
        [
            ("ddp.no-sampler", {"sampler": "plain"}),
            ("ddp.no-sampler", {"sampler": "plain", "iterable": True}),
            ("distributed.no-samples", {"num_samples": 3, "sampler_drop_last": True}),
        ],
    )
    def test_drop_last_stays(self, case, fields):
        given = {"num_samples": 1030, "batch_size": 1, "setup": "ddp", "num_ranks": 4, **fields}
        dropping = snippets(case, planned(**given, drop_last=True))
        loaders = [code for code in dropping if "DataLoader(" in code]
        assert loaders
        assert all("drop_last=True)" in code.split("DataLoader(")[1] for code in loaders)
        for code in snippets(case, planned(**given)):
            assert "drop_last=True" not in code.partition("DataLoader(")[2].partition("\n")[0]

    @pytest.mark.parametrize("size", [50, 64, 66])
    def test_jax_places_what_a_fix_leaves(self, size):
        report = planned(1030, size, "jax", 4)
        assert report.findings
        for finding in report.findings:
            assert "( by rank)" not in finding.message
            for fix in finding.fixes:
                changed = msgspec.structs.replace(report.pipeline, **fix.changes)
                assert "jax.indivisible" not in row_of(changed).ids

    def test_unequal_parts_say_what_they_fail_with(self):
        """An output whose batch is not in axis 0 is put together wrongly: torch's own words."""
        found = case_of(planned(1030, 66, "data-parallel", 4), "dataparallel.chunks")
        assert "3 x 17, 15" in found.message
        assert "not in axis 0" in found.message


def test_every_rank_reads_all_of_a_stream_that_lightning_predicts():
    """Its sampler is not put in, and drop_last is kept."""
    given = (1030, 64, "lightning", 4)
    report = planned(*given, stage="predict", iterable=True)
    assert case_of(report, "ddp.no-sampler") is not None
    assert report.layout.batches == (17,) * 4
    dropping = planned(*given, stage="predict", iterable=True, drop_last=True)
    assert dropping.layout.batches == (16,) * 4
    dealt = planned(*given, stage="predict", drop_last=True)
    assert sum(dealt.layout.batches) * 64 >= 1030  # of a dataset with a length: all of it
