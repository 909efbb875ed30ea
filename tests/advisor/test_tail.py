"""The arithmetic of the last batch, against a real DataLoader, and what hangs on the loss."""

import shlex

import msgspec
import pytest
from batchadvisor.advisor.advise import advise
from batchadvisor.advisor.measured.epoch_end import (
    has_harmful_tail,
    last_batch,
    own_samples,
    pipeline_of,
    plan_command,
    tail_of,
    unknown_reason,
)
from batchadvisor.advisor.measured.measurements import Measurements
from batchadvisor.advisor.tails.engine import report_of
from batchadvisor.advisor.tails.sweeps import (
    MAX_CLEAN,
    NEAR_SHARE,
    is_clean,
    near_by,
    nearest_clean,
    sweep,
)
from batchadvisor.cli import cli
from batchadvisor.records import Goal, NormLayers, Pipeline, RunRecord, TailCheck, TailReport
from batchadvisor.records.checks import LossCheck
from batchadvisor.reports.builder.sections.tail import tail_texts
from batchadvisor.reports.builder.sections.training import training_rows
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from ..on_paper import GIB, discovery_of, failure_of, loader_of, numbered, record_of, trial_of


def discovery(num_samples, *, drop_last=False, micro_batches=1, **changes):
    loader = loader_of(num_samples, drop_last=drop_last, **changes)
    return discovery_of(loader=loader, micro_batches=micro_batches)


def cases_at(script, size):
    return {finding.id for finding in report_of(pipeline_of(script, size)).findings}


class TestAgainstDataLoader:
    @pytest.mark.parametrize("drop_last", [False, True])
    def test_every_small_case(self, drop_last):
        for num_samples in (1, 2, 7, 12, 30, 31, 64, 97):
            for size in (*range(1, 20), 31, 64, 97, 200):
                loader = DataLoader(range(num_samples), batch_size=size, drop_last=drop_last)
                lengths = [len(batch) for batch in loader]
                tail = tail_of(discovery(num_samples, drop_last=drop_last), size)
                assert tail.steps_per_epoch == len(lengths)
                assert tail.dropped == num_samples - sum(lengths)
                short = lengths[-1] if lengths and lengths[-1] < size else 0
                assert tail.last_batch == short
                assert last_batch(discovery(num_samples, drop_last=drop_last), size) == short
                assert tail.weight == (size / short if short else 1.0)

    @given(st.integers(1, 10**6), st.integers(1, 10**4), st.booleans())
    def test_samples_are_conserved(self, num_samples, size, drop_last):
        tail = tail_of(discovery(num_samples, drop_last=drop_last), size)
        full = tail.steps_per_epoch - (1 if tail.last_batch else 0)
        assert full * size + tail.last_batch + tail.dropped == num_samples

    @pytest.mark.parametrize(
        ("num_samples", "size", "micro", "steps"),
        [(100, 10, 4, 3), (100, 10, 5, 2), (101, 10, 5, 3)],
    )
    def test_accumulation(self, num_samples, size, micro, steps):
        tail = tail_of(discovery(num_samples, micro_batches=micro), size)
        assert tail.steps_per_epoch == steps

    def test_several_steps_on_a_batch(self):
        tail = tail_of(discovery_of(8, 100, steps_per_batch=4), 30)
        assert (tail.steps_per_epoch, tail.last_batch, tail.steps_known) == (16, 10, True)

    def test_nobody_knows_how_many(self):
        """Batches are counted then."""
        unknown = {"optimizer_steps": "not as many for each"}
        tail = tail_of(discovery_of(8, 100, 3, unavailable=unknown), 30)
        assert (tail.steps_per_epoch, tail.steps_known) == (4, False)


class TestLeftOutByTheLoop:
    """`if len(x) < batch_size: break` does what drop_last does."""

    HOW = "train.py:14 (len(x) < batch_size)"

    def advice(self, *trials, **changes):
        found = discovery_of(16, 2050, norm_layers=NormLayers(batch_norm=1), **changes)
        trials = numbered(trial_of(16, 0.1), trial_of(32, 0.11), *trials)
        return advise(record_of(trials, discovery=found, goal=Goal(kind="memory")))

    def rules(self, advice):
        return {finding.rule for finding in advice.findings}

    def test_as_its_text_says(self):
        advice = self.advice(leaves_out=self.HOW)
        assert (advice.tail.dropped, advice.tail.last_batch, advice.tail.harmful) == (2, 0, False)
        assert not any(rule.startswith("tails.") for rule in self.rules(advice))
        ((text, bad),) = tail_texts(advice)
        assert text == (
            "2050 samples in batches of 32: 64 optimizer steps per epoch, the loop leaves out the "
            "last batch of 2 samples (<1%): train.py:14 (len(x) < batch_size)."
        )
        assert not bad

    @pytest.mark.parametrize("purpose", ["tail", "search"])
    def test_as_was_seen(self, purpose):
        """No step followed batches as long as the last, or longer ones below the script's own."""
        size = 2 if purpose == "tail" else 8
        advice = self.advice(failure_of(size, "no_step", purpose=purpose))
        assert advice.tail.left_out_by == (
            f"batches of {size} went into it, and no optimizer stepped"
        )
        assert not any(rule.startswith("tails.") for rule in self.rules(advice))

    @pytest.mark.parametrize(
        "trial",
        [failure_of(1, "no_step"), failure_of(20, "no_step"), failure_of(2, "script_ended")],
        ids=["shorter ones", "longer than its own", "the script ended"],
    )
    def test_what_shows_nothing(self, trial):
        advice = self.advice(trial)
        assert (advice.tail.last_batch, advice.tail.left_out_by) == (2, "")
        assert "tails.loader.short" in self.rules(advice)

    def test_ranks_and_workers_end_apart(self):
        """Of ranks one alone may have a short batch; each worker's stream ends in one."""
        ranks = discovery_of(16, 2050, leaves_out=self.HOW, num_ranks=2)
        stream = loader_of(2050, batch_size=16, iterable=True, num_workers=2)
        workers = discovery_of(16, loader=stream, leaves_out=self.HOW)
        for found in (ranks, workers):
            assert not pipeline_of(found, 16).drop_last


class TestUnknown:
    @pytest.mark.parametrize(
        ("script", "why", "plan"),
        [
            (discovery(None), "the dataset has no length", "--samples N --batch-size 8"),
            # Each worker cuts its own share; the length does not tell where.
            (
                discovery(100, iterable=True, num_workers=2),
                "each of 2 workers",
                "--samples 100 --batch-size 8 --iterable --workers 2",
            ),
        ],
    )
    def test_it_is_said_and_how_to_plan_it(self, script, why, plan):
        reason = tail_of(script, 8)
        assert reason.startswith(why)
        assert f"batchadvisor tails {plan}" in reason
        assert last_batch(script, 8) is None
        assert not has_harmful_tail(script, 8)

    @pytest.mark.parametrize(
        ("num_samples", "iterable", "told"),
        [
            (10**10, True, "30 days"),
            (10**10, False, ""),
            (10**11, False, "a year"),
            (101, True, ""),
        ],
    )
    def test_a_length_that_nobody_could_train_on_is_not_believed(self, num_samples, iterable, told):
        """At 1,000 samples a second, 10^10 of them take 116 days."""
        script = discovery(num_samples, iterable=iterable)
        trials = numbered(trial_of(8, 0.008, peak=GIB), trial_of(16, 0.016, peak=2 * GIB))
        advice = advise(record_of(trials, discovery=script))
        rows = dict(training_rows(advice, advice.training))
        assert ("is not taken at its word" in rows["steps per epoch"]) is bool(told)
        assert ("is not taken at its word" in advice.unavailable.get("tail", "")) is bool(told)
        assert told in rows["steps per epoch"]
        assert rows["epoch time"].startswith("not known") is bool(told)

    def test_one_worker_leaves_one_end(self):
        assert last_batch(discovery(100, iterable=True, num_workers=1), 8) == 4


@pytest.mark.parametrize(
    "changes",
    [{}, {"drop_last": True}, {"micro_batches": 4}, {"iterable": True, "num_workers": 2}],
)
def test_one_process_draws_all_samples(changes):
    assert own_samples(discovery(101, **changes)) == 101
    assert own_samples(discovery(None, **changes)) is None


class TestRanks:
    """What discovery saw of several ranks, as a pipeline."""

    @staticmethod
    def ranks(num_samples, *, ranks=2, replicas=1, norms=None, **changes):
        loader = loader_of(num_samples, **changes)
        return discovery_of(
            loader=loader, num_ranks=ranks, num_replicas=replicas, norm_layers=norms or NormLayers()
        )

    @pytest.mark.parametrize(
        ("num_samples", "whole", "changes", "duplicates", "last", "short"),
        [
            (9, 17, {"sampler": "DistributedSampler"}, 1, (1, 1), 1),
            (17, 17, {"sampler": "RandomSampler"}, 17, (1, 1), 1),
            (17, 17, {"sampler": "BatchSamplerShard", "even_batches": True}, 7, (4, 4), 0),
            (13, 13, {"sampler": "BatchSamplerShard", "even_batches": False}, 0, (4, 1), 4),
            (9, 9, {"sampler": "SequentialSampler", "dispatch_batches": True}, 1, (1, 1), 1),
        ],
        ids=["distributed", "none", "even shards", "uneven shards", "dispatcher"],
    )
    def test_two_ranks(self, num_samples, whole, changes, duplicates, last, short):
        job = self.ranks(num_samples, dataset_samples=whole, **changes)
        tail = tail_of(job, 4)
        assert (tail.num_samples, tail.num_ranks, tail.duplicates) == (whole, 2, duplicates)
        assert tail.last == last
        assert tail.last_batch == last_batch(job, 4) == short

    def test_data_parallel(self):
        job = self.ranks(73, ranks=1, replicas=8, norms=NormLayers(batch_norm=1))
        tail = tail_of(job, 64)
        assert tail.last == (2, 2, 2, 2, 1, 0, 0, 0)
        assert tail.last_batch == 9
        assert has_harmful_tail(job, 64)

    @pytest.mark.parametrize(
        ("num_samples", "own", "changes"),
        [
            (26, 26, {"sampler": "DistributedSampler"}),
            (101, 101, {"sampler": "RandomSampler"}),
            (101, 26, {"sampler": "BatchSamplerShard", "even_batches": True}),
            (101, 26, {"sampler": "Shard", "even_batches": True, "split_batches": True}),
            (101, 101, {"sampler": "RandomSampler", "ranks": 1, "replicas": 4}),
            (101, 101, {"sampler": "OfTheScript"}),
        ],
        ids=["distributed", "none", "shards", "split", "replicas", "unknown"],
    )
    def test_samples_of_a_process(self, num_samples, own, changes):
        job = self.ranks(num_samples, dataset_samples=101, **{"ranks": 4, **changes})
        assert own_samples(job) == own

    @pytest.mark.parametrize("backend", ["torch", "tensorflow", "jax"])
    def test_keras_has_rules_of_its_own(self, backend):
        """BatchNormalization on one sample is no error there, and silent."""
        loader = loader_of(9, sampler=f"Keras on {backend}")
        norms = NormLayers(batch_norm=1)
        script = discovery_of(loader=loader, door="keras", norm_layers=norms)
        assert pipeline_of(script, 4).setup == f"keras-{backend}"
        assert tail_of(script, 4).last_batch == 1
        ids = cases_at(script, 4)
        assert "keras.one-sample" in ids
        assert "norm.one-value" not in ids

    def test_a_sampler_of_the_scripts_own_is_not_guessed(self):
        job = self.ranks(9, sampler="MySampler", dataset_samples=17)
        assert pipeline_of(job, 4) == pipeline_of(self.ranks(9, ranks=1), 4)


class TestNormLayers:
    """What one sample gives to the layers decides what a last batch of one sample is."""

    @pytest.mark.parametrize(
        ("values", "fires"),
        [(None, "norm.one-value"), (1, "norm.one-value"), (64, "norm.few-samples")],
    )
    def test_values_that_were_seen(self, values, fires):
        norms = NormLayers(batch_norm=2, batch_norm_values=values)
        ids = cases_at(discovery_of(loader=loader_of(9), norm_layers=norms), 4)
        assert ids & {"norm.one-value", "norm.few-samples"} == {fires}

    def test_the_plan_of_an_unknown_epoch_holds_what_was_seen(self):
        norms = NormLayers(batch_norm=2, batch_norm_values=49)
        loader = loader_of(None, iterable=True, num_workers=2, drop_last=True)
        script = discovery_of(loader=loader, norm_layers=norms, micro_batches=3)
        assert unknown_reason(script, 8).endswith(
            "batchadvisor tails --samples N --batch-size 8 --iterable --workers 2 --drop-last "
            "--accumulate 3 --batch-norm-values 49"
        )
        ranks = discovery_of(loader=loader, num_ranks=2, norm_layers=NormLayers())
        assert "--setup ddp --ranks 2 --iterable" in unknown_reason(ranks, 8)


class TestHarm:
    @pytest.mark.parametrize(
        ("left", "harmful"), [(0, False), (31, True), (32, False), (63, False)]
    )
    def test_half_a_batch_is_the_limit(self, left, harmful):
        assert has_harmful_tail(discovery(640 + left), 64) is harmful
        assert tail_of(discovery(640 + left), 64).weight == (64 / left if left else 1.0)

    def test_no_step_at_all(self):
        assert has_harmful_tail(discovery(10, drop_last=True), 16)
        assert not has_harmful_tail(discovery(33, drop_last=True), 16)

    @given(st.integers(2, 5000), st.lists(st.integers(1, 300)))
    def test_the_first_clean_size_is_clean(self, num_samples, sizes):
        record = record_of(discovery=discovery(num_samples))
        first = Measurements.of(record).first_clean(sizes)
        harmless = [size for size in sizes if not has_harmful_tail(discovery(num_samples), size)]
        assert first == (harmless[0] if harmless else None)


def near(num_samples, size, **options):
    """The clean sizes of a plain loader."""
    pipeline = Pipeline(num_samples=num_samples, batch_size=size)
    return [clean.batch_size for clean in nearest_clean(pipeline, **options)]


class TestNearestClean:
    def test_sizes_that_leave_nothing_come_first_and_the_nearest_is_named(self):
        assert near(2000, 240) == [200, 250, 235]
        assert near(2000, 256) == []  # 208 that are left do no harm

    @given(st.integers(1, 10_000), st.integers(2, 300))
    def test_the_nearest_is_among_them(self, num_samples, size):
        pipeline = Pipeline(num_samples=num_samples, batch_size=size)
        low, high = near_by(pipeline)
        rows = sweep(pipeline, range(low, high + 1))
        (own,) = sweep(pipeline, [size])
        harmless = [abs(row.batch_size - size) for row in rows if is_clean(row)]
        named = [abs(clean - size) for clean in near(num_samples, size)]
        assert bool(named) is (not is_clean(own) and bool(harmless))
        assert not named or min(named) == min(harmless)

    @given(st.integers(1, 10_000), st.integers(1, 500))
    def test_they_are_near_and_clean(self, num_samples, size):
        sizes = near(num_samples, size)
        assert len(sizes) == len(set(sizes)) <= MAX_CLEAN
        for clean in sizes:
            assert clean != size
            assert abs(clean - size) <= NEAR_SHARE * size + 1
            left = num_samples % clean
            assert left == 0 or left >= clean / 2

    def test_given_only_where_the_tail_does_harm(self):
        assert tail_of(discovery(640), 64).nearest_clean == ()
        assert tail_of(discovery(650, drop_last=True), 64).nearest_clean == ()
        assert tail_of(discovery(650), 64).nearest_clean == (65, 50, 56)

    def test_a_law_ranks_them(self):
        fast = near(2000, 240, predict=lambda size: size / (0.1 + 0.001 * size))
        assert fast[0] > 240
        assert all(clean <= 250 for clean in near(2000, 240, largest=250, predict=float))
        flat = near(2000, 240, predict=lambda size: 100 + size / 1e6)
        assert flat == [200, 250, 235]  # no law tells finer than a hundredth


# how the loss reduces a batch ----------------------------------------------------------------

ASKED = "batchadvisor tails --samples 6409 --batch-size 64 --loss sum"


def with_loss(loss=None, num_samples=6409, **changes):
    """Batches of 64: the last one has 9 samples."""
    script = discovery_of(64, loader=loader_of(num_samples, **changes))
    tail = trial_of(9, purpose="tail", tail=TailCheck(num_samples=9, outcome="ok"))
    return record_of(numbered(trial_of(64, 0.1), tail), discovery=script, loss=loss)


def measured(reduction):
    """As a version that measured it wrote it."""
    check = {"reduction": reduction, "num_samples": 58, "ratio": 2.0, "apart": 0.3, "noise": 0.0}
    raw = msgspec.to_builtins(with_loss()) | {"loss": check}
    return msgspec.json.decode(msgspec.json.encode(raw), type=RunRecord)


def rules(advice):
    return {finding.rule for finding in advice.findings if finding.rule.startswith("tails.")}


@pytest.mark.parametrize("loss", [None, LossCheck()])
def test_a_mean_is_taken_and_the_question_named(loss):
    advice = advise(with_loss(loss))
    assert rules(advice) == {"tails.loader.short"}
    assert advice.tail.harmful
    assert advice.loss_question == ASKED
    assert any(text.endswith(f"ask: {ASKED}") for text, _ in tail_texts(advice))


@pytest.mark.parametrize(
    ("reduction", "said"),
    [
        ("mean", {"tails.loader.short"}),
        ("sum", set()),
        ("contrastive", {"tails.loss.contrastive"}),
    ],
)
def test_what_an_older_version_measured_is_not_asked(reduction, said):
    advice = advise(measured(reduction))
    assert rules(advice) == said
    assert advice.tail.harmful is bool(said)
    assert advice.loss_question == ""


@pytest.mark.parametrize(
    ("num_samples", "changes", "wanted"),
    [
        (6409, {}, True),
        (6400, {}, False),  # no short batch
        (6440, {}, False),  # 40 of 64 do no harm
        (6409, {"drop_last": True}, False),
        (60, {}, False),  # one batch is all
        (None, {}, False),
        (6409, {"iterable": True, "num_workers": 2}, False),
    ],
)
def test_asked_only_where_the_answer_hangs_on_it(num_samples, changes, wanted):
    assert bool(advise(with_loss(None, num_samples, **changes)).loss_question) is wanted
    script = discovery_of(64, loader=loader_of(num_samples, **changes))
    assert wanted is (has_harmful_tail(script, 64) != has_harmful_tail(script, 64, "sum"))


RANKS = {"dataset_samples": 6409, "sampler": "DistributedSampler"}


@pytest.mark.parametrize(
    ("loader", "facts"),
    [
        ({}, {}),
        ({"num_samples": 1603, **RANKS}, {"num_ranks": 4}),  # one rank's part of the data
        ({"num_samples": 1602, "sampler_drop_last": True, **RANKS}, {"num_ranks": 4}),
        ({"dataset_samples": 6409}, {"num_ranks": 4}),  # every rank draws all of it
        ({"dataset_samples": 6409, "even_batches": False}, {"num_ranks": 4}),
        ({"dataset_samples": 6409, "even_batches": True, "split_batches": True}, {"num_ranks": 2}),
        (
            {"dataset_samples": 6409, "even_batches": True, "dispatch_batches": True},
            {"num_ranks": 4},
        ),
        ({}, {"num_replicas": 4}),
        ({}, {"norm_layers": NormLayers(group_norm=2, group_norm_values=1)}),
    ],
)
def test_the_command_that_plans_it_again_is_of_the_same_pipeline(loader, facts):
    script = discovery_of(64, loader=loader_of(**{"num_samples": 6409, **loader}), **facts)
    pipeline = pipeline_of(script, 64)
    words = shlex.split(plan_command(script, 64))
    done = CliRunner().invoke(cli, [*words[1:], "--json"])
    assert done.exit_code == 0, done.output
    again = msgspec.json.decode(done.output, type=TailReport)
    report = report_of(pipeline)
    assert again.layout == report.layout
    assert {each.id for each in again.findings} == {each.id for each in report.findings}
