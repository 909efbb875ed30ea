"""Tokens of real runs: padded texts, blocks of characters, and a script without sequences."""

import random

import pytest
from batchadvisor.advisor.explain.token_findings import GROUPED_CODE
from batchadvisor.advisor.measured.measurements import Measurements

from ..scripts.padded_texts import length_of
from .driver import SCRIPTS, run_well

pytestmark = pytest.mark.slow

QUICK = ("--budget", "30s", "--no-profile", "-q", "--json")


def measured(folder, script, sizes, *arguments):
    return run_well("run", *QUICK, "--sizes", sizes, SCRIPTS / script, *arguments, folder=folder)


def timed_of(result):
    timed = [trial for trial in result.record.trials if trial.kind == "timed"]
    trials = [trial for trial in timed if trial.step_s is not None]
    assert trials
    return trials


def padding_of(size, num_batches=4000):
    """The share of padding in batches of the script's data, counted directly."""
    lengths = [length_of(place) for place in range(4000)]
    rng = random.Random(7)
    real = positions = 0
    for _ in range(num_batches):
        drawn = rng.sample(lengths, size)
        real += sum(drawn)
        positions += size * max(drawn)
    return 1 - real / positions


@pytest.fixture(scope="module")
def padded(tmp_path_factory):
    return measured(tmp_path_factory.mktemp("padded"), "padded_texts.py", "16,64")


class TestPaddedTexts:
    def test_the_share_of_padding_is_that_of_a_direct_count(self, padded):
        for size in (16, 64):
            trials = [trial for trial in timed_of(padded) if trial.batch_size == size]
            # All batches of a size together: a short trial draws few.
            num = sum(trial.tokens.num_batches for trial in trials)
            share = sum(t.tokens.padding_share * t.tokens.num_batches for t in trials) / num
            # Within a point, or within what so few batches may differ by chance (3.5 errors).
            spread = 0.09 if size == 16 else 0.045
            assert share == pytest.approx(padding_of(size), abs=max(0.01, 3.5 * spread / num**0.5))

    def test_of_batches_that_are_padded_alike_it_is_exact(self, tmp_path):
        result = measured(tmp_path, "padded_texts.py", "16,64", "--in-turn")
        lengths = [4 + 8 * place for place in range(8)]
        for trial in timed_of(result):
            tokens = trial.tokens
            assert tokens.padding_share == pytest.approx(1 - sum(lengths) / (8 * max(lengths)))
            assert tokens.real_per_step == 2 * trial.batch_size * sum(lengths) / 8
            assert tokens.positions_per_step == 2 * trial.batch_size * 60
            assert (tokens.lengths.shortest, tokens.lengths.longest) == (4, 60)
            assert tokens.lengths.median == 32

    def test_the_micro_batches_of_a_step_are_summed(self, padded):
        for trial in timed_of(padded):
            tokens, samples = trial.tokens, 2 * trial.batch_size
            assert trial.micro_batches == 2
            assert tokens.evidence == "attention mask"
            assert 20 * samples < tokens.real_per_step < 50 * samples
            assert tokens.real_per_step < tokens.positions_per_step <= 64 * samples
            assert tokens.lengths.num_sequences == tokens.num_batches * trial.batch_size
            assert 5 <= tokens.lengths.shortest <= tokens.lengths.longest <= 64
            # Tokens a second follow from single steps, of many of which every second, third, ...
            # is kept.
            real = sum(step.real for step in tokens.steps)
            seconds = sum(step.step_s for step in tokens.steps)
            assert tokens.real_per_s.median == pytest.approx(real / seconds, rel=0.3)

    def test_samples_drawn_at_random_have_one_factor(self, padded):
        assert "tokens.padding" in padded.findings
        rates = [
            choice.real_tokens_per_s.median / choice.samples_per_s.median
            for choice in padded.advice.sizes
        ]
        assert rates == [pytest.approx(rates[0])] * len(rates)
        assert 20 < rates[0] < 50

    def test_a_step_of_each_size_was_counted(self, padded):
        for trial in timed_of(padded):
            if trial.purpose != "search" or trial.flops is None:
                assert trial.unavailable.get("flops") or trial.purpose == "confirm"
                continue
            samples = 2 * trial.batch_size  # two micro-batches; the texts are pooled first
            forward = 2 * samples * (32 * 64 + 64 * 2)
            assert trial.flops.forward == forward
            assert trial.flops.backward == 2 * forward
            assert trial.flops.positions <= 64 * samples

    def test_the_printed_lines_take_the_finding_away(self, tmp_path):
        lines = GROUPED_CODE.replace("{size}", "16").splitlines()
        text = (SCRIPTS / "padded_texts.py").read_text()
        code = [line for line in lines if not line.startswith("#")]
        plain = "Texts(), batch_size=8, shuffle=not IN_TURN, collate_fn=collate, drop_last=True"
        assert plain in text
        asked = lines[-1].removeprefix("# ").replace("dataset", "Texts()")
        text = text.replace(f"DataLoader(\n        {plain}\n    )", "DataLoader(PLAIN)")
        text = text.replace("DataLoader(PLAIN)", asked.replace("...", "collate_fn=collate"))
        text = text.replace("class Classifier", "\n".join(code) + "\n\n\nclass Classifier")
        seed = "torch.manual_seed(1)"
        text = text.replace(seed, f"{seed}\n    lengths = [length_of(i) for i in range(4000)]", 1)
        script = tmp_path / "grouped_texts.py"
        script.write_text(text)
        result = run_well("run", *QUICK, "--sizes", "16,32", script, folder=tmp_path)
        assert "tokens.padding" not in result.findings
        for trial in timed_of(result):
            assert trial.tokens.padding_share < 0.1
        # Batches of a few steps are not those of an epoch: tokens decide.
        assert result.record.discovery.primary.sampler == "GroupedByLength"
        measurements = Measurements.of(result.record)
        assert measurements.rated_by_tokens


class TestOthers:
    def test_blocks_of_characters(self, tmp_path):
        for trial in timed_of(measured(tmp_path, "characters.py", "16,32")):
            tokens = trial.tokens
            assert tokens.positions_per_step == 32 * trial.batch_size
            rate = 32 * trial.samples_per_s.median  # its middle step; tokens are those of all steps
            assert tokens.positions_per_s.median == pytest.approx(rate, rel=0.3)
            assert (tokens.real_per_s, tokens.padding_share) == (None, None)
            assert "no mask" in tokens.unavailable["padding_share"]

    @pytest.mark.parametrize("script", ["plain.py", "tiny_images.py"])
    def test_nothing_is_said_of_vectors_and_images(self, tmp_path, script):
        result = measured(tmp_path, script, "16,32")
        for trial in timed_of(result):
            assert trial.tokens is None
            assert "tokens" not in trial.unavailable
        assert not any(rule.startswith("tokens") for rule in result.findings)
