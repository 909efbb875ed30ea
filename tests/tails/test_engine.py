"""The engine as a whole: bad input, fixes, sweeps, sizes near by."""

import random
import re
import time

import batchadvisor
import msgspec
import pytest
from batchadvisor import ModelFacts, Pipeline
from batchadvisor.advisor.measured.epoch_end import tail_of
from batchadvisor.advisor.tails import remedies
from batchadvisor.advisor.tails.cases import BY_ID, CASES, case_of
from batchadvisor.advisor.tails.engine import report_of
from batchadvisor.advisor.tails.remedies import REMEDIES, Snippet
from batchadvisor.advisor.tails.sweeps import WHATEVER_THE_SIZE, nearest_clean, sweep
from batchadvisor.cli.tails import SETUPS
from batchadvisor.errors import UsageError
from batchadvisor.records import Setup
from hypothesis import given
from hypothesis import strategies as st

from ..on_paper import discovery_of, loader_of
from .said import case_of as said_of
from .said import planned

SNIPPETS = {name: each for name, each in vars(remedies).items() if isinstance(each, Snippet)}
MODELS = (
    ModelFacts(),
    ModelFacts(batch_norm=2, batch_norm_values=1, optimizer="SGD", compiled="default"),
    ModelFacts(sync_batch_norm=1, instance_norm=1, instance_norm_values=1),
)


def pipelines():
    """Pipelines of every setup, at random."""
    rng = random.Random(0)
    for setup in SETUPS:
        ranks = 1 if setup in ("dataloader", "keras-tensorflow", "keras-jax") else 4
        for _ in range(60):
            yield Pipeline(
                num_samples=rng.randint(1, 400),
                batch_size=rng.randint(1, 64),
                setup=setup,
                num_ranks=ranks,
                drop_last=rng.random() < 0.3,
                micro_batches=rng.choice((1, 1, 4)),
                stage=rng.choice(("train", "train", "validate", "predict")),
                model=rng.choice(MODELS),
            )


def test_the_command_line_knows_every_setup():
    assert Setup.__args__ == SETUPS


class TestEveryPipeline:
    def test_the_sweep_says_what_the_report_says(self):
        seen = set()
        for pipeline in pipelines():
            report = report_of(pipeline)
            for finding in report.findings:
                seen.add(finding.id)
                assert finding.message
                assert finding.severity == BY_ID[finding.id].severity
            (row,) = sweep(pipeline, [pipeline.batch_size])
            harm = [finding.id for finding in report.findings if finding.harmful]
            assert sorted(row.ids) == sorted(harm), pipeline
            if report.layout is None:
                assert report.unavailable["layout"]
                continue
            layout = report.layout
            assert (row.steps, row.dropped) == (layout.steps, layout.dropped)
            assert (row.duplicates, row.weight) == (layout.duplicates, layout.weight)
            also = [finding.id for finding in report.findings if not finding.harmful]
            assert sorted(row.also) == sorted(also)
        assert len(seen) >= 18

    def test_sizes_near_by_are_clean(self):
        for pipeline in list(pipelines())[::7]:
            for trial in nearest_clean(pipeline):
                assert trial.batch_size != pipeline.batch_size
                (row,) = sweep(pipeline, [trial.batch_size])
                assert row.steps
                assert set(row.ids) <= WHATEVER_THE_SIZE
                assert row.weight == trial.weight
                assert trial.weight <= 2 or pipeline.stage != "train"


class TestCases:
    def test_numbers_and_names(self):
        assert [case.number for case in CASES] == list(range(1, 34))
        assert case_of("14") is case_of("dataparallel.chunks") is CASES[13]
        assert case_of("0") is case_of("34") is case_of("nothing") is case_of("²") is None

    def test_every_remedy_is_used_and_every_use_is_one(self):
        assert {name for case in CASES for name in case.remedies} == set(REMEDIES)

    @pytest.mark.parametrize("name", SNIPPETS)
    def test_snippets_are_python_or_a_command(self, name):
        code = SNIPPETS[name].code
        if not code.startswith("torchrun"):
            compile(re.sub(r"\{[a-z_]+\}", "name", code), name, "exec")


BAD = [
    ({"num_samples": 0}, "0 samples"),
    ({"num_samples": -5}, "-5 samples"),
    ({"batch_size": 0}, "0 cannot be the batch size"),
    ({"batch_size": -1}, "-1 cannot be the batch size"),
    ({"num_ranks": 0}, "number of ranks"),
    ({"micro_batches": 0}, "micro-batches"),
    ({"num_workers": -1}, "workers"),
    ({"num_ranks": 2}, "one device"),
    ({"setup": "ddp", "num_ranks": 3, "batch_is": "global"}, "cannot be shared evenly"),
    ({"sampler": "plain"}, "sampler says nothing"),
    ({"sampler_drop_last": True}, "has none"),
    ({"split_batches": True}, "belong to Accelerate"),
    ({"even_batches": False}, "belong to Accelerate"),
    ({"dispatch_batches": False}, "belong to Accelerate"),
    ({"setup": "accelerate", "split_batches": True, "batch_is": "per rank"}, "of all ranks"),
    ({"setup": "distributed-sampler", "sampler": "plain"}, "contradicts"),
    ({"setup": "ddp", "sampler": "distributed", "iterable": True}, "has no sampler"),
    ({"setup": "ddp", "num_ranks": 2, "rank_batch_sizes": (4,)}, "1 batch sizes"),
    ({"setup": "ddp", "num_ranks": 2, "rank_batch_sizes": (4, 8)}, "add up to 12"),
    ({"setup": "ddp", "num_ranks": 2, "rank_batch_sizes": (-4, 8)}, "cannot be batch sizes"),
    ({"setup": "nothing"}, "cannot be described"),
    ({"batch_size": "eight"}, "cannot be described"),
    ({"batches": 3}, "has no batches"),
]


class TestBadInput:
    @pytest.mark.parametrize(("facts", "part"), BAD)
    def test_one_clear_error(self, facts, part):
        with pytest.raises(UsageError) as caught:
            batchadvisor.tails(**{"num_samples": 100, "batch_size": 8, **facts})
        assert part in caught.value.what
        assert caught.value.remedy

    def test_a_sweep_of_sizes_by_rank(self):
        facts = {"setup": "ddp", "num_ranks": 2, "rank_batch_sizes": (6, 2)}
        pipeline = Pipeline(num_samples=100, batch_size=8, **facts)
        with pytest.raises(UsageError, match="one size for all"):
            sweep(pipeline, [8])
        assert report_of(pipeline).nearest_clean == ()

    @pytest.mark.parametrize("sizes", [(1, 7), (7, 1)])
    def test_the_rank_with_one_sample_is_found_wherever_it_is(self, sizes):
        model = ModelFacts(batch_norm=3, batch_norm_values=1)
        report = planned(80, 8, "ddp", 2, rank_batch_sizes=sizes, model=model)
        assert "norm.one-value" in {finding.id for finding in report.findings}

    def test_a_sweep_of_global_sizes(self):
        """Sizes that the ranks cannot share are no pipelines, and never proposed."""
        facts = {"setup": "ddp", "num_ranks": 4, "batch_is": "global"}
        pipeline = Pipeline(num_samples=1000, batch_size=60, **facts)
        rows = sweep(pipeline, range(56, 61))
        assert [row.steps > 0 for row in rows] == [True, False, False, False, True]
        assert all(trial.batch_size % 4 == 0 for trial in nearest_clean(pipeline))

    def test_unknown_length(self):
        report = planned(None, 8)
        assert report.layout is None
        assert "--samples" in report.unavailable["layout"]


def message(name, *arguments, **facts):
    """What is said of a case, empty where it did not fire."""
    finding = said_of(planned(*arguments, **facts), name)
    return "" if finding is None else finding.message


class TestWhatIsSaid:
    def test_the_layer_that_raises_is_named(self):
        maps = ModelFacts(batch_norm=1, batch_norm_values=49, group_norm=1, group_norm_values=1)
        assert "GroupNorm over one value per group" in message("norm.one-value", 9, 4, model=maps)
        both = msgspec.structs.replace(maps, batch_norm_values=1)
        assert "BatchNorm over one value" in message("norm.one-value", 9, 4, model=both)
        in_eval = message("norm.one-value", 9, 4, model=both, stage="validate")
        assert "GroupNorm" in in_eval

    def test_maps_that_nobody_saw(self):
        unknown = ModelFacts(sync_batch_norm=1)
        assert message("syncbn.short-rank", 9, 4, model=unknown).endswith("maps are 1x1")
        known = msgspec.structs.replace(unknown, batch_norm_values=1)
        assert message("syncbn.short-rank", 9, 4, model=known).endswith("one rank")

    def test_one_sample_of_a_full_batch(self):
        """10 samples on 4 GPUs are 3, 3, 3, 1 in every step, whatever the epoch ends in."""
        model = ModelFacts(batch_norm=1, batch_norm_values=1)
        found = planned(108, 10, "data-parallel", 4, model=model)
        assert "part of a full batch" in said_of(found, "norm.one-value").message
        assert all("drop" not in fix.title for fix in said_of(found, "norm.one-value").fixes)
        sizes = {"rank_batch_sizes": (63, 1), "model": model}
        assert "part of a full batch" in message("norm.one-value", 138, 64, "ddp", 2, **sizes)
        assert message("norm.one-value", 108, 12, "data-parallel", 4, model=model) == ""

    def test_a_contrastive_loss_is_of_one_rank(self):
        model = ModelFacts(loss="contrastive")
        sizes = {"rank_batch_sizes": (48, 16), "model": model}
        assert message("loss.contrastive", 112, 64, "ddp", 2, **sizes) == ""  # 48 as ever, and none
        short = message("loss.contrastive", 64 + 50, 64, "ddp", 2, **sizes)
        assert "1 negatives and not 15" in short
        assert message("loss.contrastive", 1025, 64, "jax", 4, model=model) == ""  # refused

    def test_a_rank_that_has_all_or_nothing_has_no_new_shape(self):
        facts = {"even_batches": False, "model": ModelFacts(compiled="default")}
        assert message("compiled.shape", 320, 64, "accelerate", 4, **facts) == ""
        assert message("compiled.shape", 330, 64, "accelerate", 4, **facts)

    def test_epochs_without_a_full_batch(self):
        stream = {"iterable": True, "num_workers": 3}
        said = message("loader.below-one-batch", 10, 64, **stream)
        assert "an epoch is 3 batches of 4, 3, 3 samples" in said
        assert message("loader.short", 10, 64, **stream) == ""  # there are no full ones
        whole = {"sampler": "plain"}
        assert message("loader.below-one-batch", 100, 64, "ddp", 4, **whole) == ""  # 64, then 36
        assert "one step" in message("loader.below-one-batch", 60, 64, "ddp", 4, **whole)

    def test_no_step_without_drop_last(self):
        facts = {"sampler": "shards", "stops_together": True}
        said = message("loader.no-steps", 3, 64, "ddp", 4, **facts)
        assert "drop_last" not in said
        assert "stop" in said

    def test_predict_is_named_where_it_runs(self):
        name = "distributed.no-samples"
        assert "predict" in message(name, 3, 64, "lightning", 4, stage="predict")
        for stage in ("train", "predict"):
            assert message(name, 3, 64, "lightning", 4, sampler="shards", stage=stage) == ""

    @pytest.mark.parametrize("stage", ["validate", "predict"])
    def test_only_training_has_gradients(self, stage):
        facts = {"sampler": "shards", "stage": stage}
        assert message("ddp.uneven-sizes", 1022, 256, "ddp", 4, **facts) == ""
        assert message("join.divisor", 1025, 64, "join", 4, stage=stage) == ""

    @pytest.mark.parametrize(
        ("sizes", "harmful", "weights"),
        [((1002, 1000), False, "0.999 to 1"), ((6, 2), True, "0.667 to 2")],
    )
    def test_ranks_of_nearly_the_same_size_do_little_harm(self, sizes, harmful, weights):
        facts = {"num_ranks": 2, "rank_batch_sizes": sizes}
        name = "ddp.uneven-sizes"
        report = planned(10 * sum(sizes), sum(sizes), "ddp", **facts)
        finding = next(each for each in report.findings if each.id == name)
        assert finding.harmful == harmful
        assert weights in finding.message

    def test_what_the_trainer_repeats_it_leaves_out_again(self):
        name = "accelerate.even-batches"
        said = message(name, 1030, 64, "trainer", 4, stage="validate")
        assert "metrics" not in said
        assert "leaves them out" in said
        assert "metrics count them twice" in message(name, 1030, 64, "trainer", 4)

    def test_a_last_step_that_is_even_is_no_every_step(self):
        said = message("dataparallel.chunks", 108, 10, "data-parallel", 4)
        assert said.startswith("a full step is cut into 3 x 3, 1")
        assert message("dataparallel.chunks", 100, 10, "data-parallel", 4).startswith("every step")


def test_a_pipeline_and_changes():
    model = ModelFacts(batch_norm=1, batch_norm_values=1)
    pipeline = Pipeline(num_samples=50_000, batch_size=128, model=model)
    assert batchadvisor.tails(pipeline).pipeline == pipeline
    changed = batchadvisor.tails(pipeline, batch_size=125)
    assert changed.pipeline == msgspec.structs.replace(pipeline, batch_size=125)
    assert changed.findings == ()


@given(st.integers(1, 100_000), st.integers(1, 1000), st.integers(2, 16))
def test_global_and_per_rank_agree(num_samples, own, ranks):
    facts = {"num_samples": num_samples, "num_ranks": ranks, "setup": "ddp"}
    each = batchadvisor.tails(batch_size=own, **facts)
    whole = batchadvisor.tails(batch_size=own * ranks, batch_is="global", **facts)
    assert whole.layout == each.layout


def test_a_sweep_is_quick():
    """The bench measures it; this only refuses a fall by an order of magnitude."""
    pipeline = Pipeline(num_samples=1_281_167, batch_size=256, num_ranks=8, setup="ddp")
    start = time.process_time()
    assert len(sweep(pipeline, range(1, 4097))) == 4096
    assert time.process_time() - start < 2


def test_near_a_huge_size_not_all_are_tried():
    start = time.process_time()
    report = planned(27 * 36_000_000 + 7, 36_000_000)
    assert time.process_time() - start < 2
    assert all(abs(size.batch_size - 36_000_000) <= 4000 for size in report.nearest_clean)
    assert report.nearest_clean or "36,004,000" in report.unavailable["nearest_clean"]


def test_a_tpu_has_what_is_documented_and_nothing_that_only_mirrored_strategy_showed():
    facts = {"setup": "tpu", "num_ranks": 8, "model": ModelFacts(batch_norm=1)}
    report = report_of(Pipeline(num_samples=1029, batch_size=64, **facts))
    cases = {finding.id: finding.message for finding in report.findings}
    assert "not run on a TPU" in next(
        text for rule, text in cases.items() if "compiled.shape" in rule
    )
    assert not any("mirrored" in rule for rule in cases)
    whole = report_of(Pipeline(num_samples=1024, batch_size=64, **facts))
    assert not any("compiled.shape" in finding.id for finding in whole.findings)


@pytest.mark.parametrize(
    ("sampler", "full"),
    [
        ("Keras on jax, DataParallel", (16,) * 4),
        ("Keras on tensorflow, MirroredStrategy", (16,) * 4),
        ("Keras on tensorflow, TPUStrategy", (16,) * 4),
        ("Keras on jax", ()),
    ],
)
def test_what_keras_spreads_a_batch_with_is_known_again(sampler, full):
    loader = loader_of(1029, batch_size=64, sampler=sampler)
    discovery = discovery_of(64, loader=loader, door="keras", num_replicas=4 if full else 1)
    tail = tail_of(discovery, 64)
    assert (tail.num_ranks, tail.full) == (4 if full else 1, full)
