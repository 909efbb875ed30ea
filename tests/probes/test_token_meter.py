"""Tokens of timed steps: what their batches say together, and what becomes of it in a trial."""

import pytest
import torch
from batchadvisor.probes.distributed.merged_trial import merged
from batchadvisor.probes.loader.token_meter import MAX_FAILURES, MIXED, TokenMeter
from batchadvisor.probes.windows.token_rates import StepMeans, tokens_of
from batchadvisor.probes.windows.window import Window
from batchadvisor.records import TokenLengths, Tokens, TrialRequest
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader

from ..on_paper import exactly, trial_of
from .test_token_counts import APART, LENGTHS, PADDED, mask_of, rows
from .window_loop import Device

FULL = {"input_ids": torch.ones(4, 6).long(), "attention_mask": torch.ones(4, 6).long()}
TABLE = (torch.randint(5, 40, (4, 12)), torch.rand(4))
TEXT = (rows(APART), torch.rand(4))


def counted(*steps):
    """A meter that was told of steps, each a list of batches."""
    meter = TokenMeter()
    told = []
    for batches in steps:
        meter.begin_step()
        for batch in batches:
            meter.note(batch)
        told.append(meter.end_step())
    return meter, told


class TestMeter:
    def test_sums_the_micro_batches_of_a_step(self):
        meter, told = counted([PADDED, FULL], [PADDED])
        assert told == [(44, 38, None, 244, 8), (20, 14, None, 100, 4)]
        assert meter.num_batches == 3
        assert meter.evidence == "attention mask"
        assert meter.padding_share == pytest.approx(1 - 52 / 64)

    def test_of_a_batch_that_is_fetched_ahead_the_one_before_counts(self):
        meter = TokenMeter()
        meter.note(PADDED, ahead=True)  # before anything is timed
        told = []
        for batch in (FULL, PADDED):
            meter.begin_step()
            meter.note(batch, ahead=True)
            told.append(meter.end_step())
        assert [step.real for step in told] == [14, 24]

    def test_lengths_of_all_sequences(self):
        meter, _ = counted([PADDED], [FULL])
        lengths = meter.lengths
        assert lengths.num_sequences == 8
        assert (lengths.shortest, lengths.median, lengths.longest) == (2, 5.5, 6)

    def test_counts_in_timed_steps_only(self):
        meter, _ = counted([PADDED])
        meter.note(PADDED)
        assert meter.end_step() is None
        assert meter.num_batches == 1

    @pytest.mark.parametrize(
        ("widths", "evidence"),
        [((6, 9, 12), "lengths beside the sequences"), ((6, 6, 6), None), ((6, 9), None)],
    )
    def test_batches_of_like_length_show_together_what_none_shows_alone(self, widths, evidence):
        """Each is as wide as the longest of its lengths, with one position of padding."""
        batches = []
        for width in widths:
            ids = torch.randint(5, 40, (4, width))
            ids[0, -1] = 0
            lengths = torch.full((4,), width)
            lengths[0] -= 1
            batches.append((ids, lengths, torch.tensor([0, 1, 1, 0])))
        meter, _ = counted(batches)
        assert meter.evidence == evidence

    def test_a_trial_begins_anew(self):
        meter, _ = counted([PADDED])
        meter.begin()
        assert (meter.num_batches, meter.evidence, meter.lengths) == (0, None, None)

    def test_a_batch_that_shows_nothing_makes_all_unknown(self):
        meter, told = counted([PADDED, torch.rand(4)], [PADDED])
        assert told[0] is None
        assert meter.evidence is None

    def test_a_table_stays_one(self):
        assert counted([TABLE], [TABLE])[0].evidence is None
        assert counted([TABLE], [TABLE], [TEXT])[0].evidence is None

    def test_an_id_that_pads_is_remembered(self):
        full = (torch.randint(10, 40, (4, 5)), torch.rand(4))
        meter, told = counted([TEXT], [full])
        assert [step[:3] for step in told] == [(36, 18, None), (20, 20, None)]
        assert meter.evidence == "run of one id"

    @pytest.mark.parametrize(
        ("batch", "share"),
        [
            ({"input_ids": rows([5, 0]), "attention_mask": mask_of([5, 0])}, 0.5),
            ({"input_ids": torch.arange(8)[None], "cu_seqlens": torch.tensor([0, 3, 8])}, 0),
            (
                {"input_ids": torch.zeros(0, 0).long(), "attention_mask": torch.zeros(0, 0).long()},
                None,
            ),
            ({"input_ids": rows()}, None),
        ],
    )
    def test_the_share_of_padding(self, batch, share):
        meter, _ = counted([batch])
        assert meter.padding_share == share

    def test_padding_that_comes_after_a_list_arrived_is_not_known(self):
        meter, _ = counted([[torch.arange(4), torch.arange(8)]])
        assert meter.padding_share is None
        assert "added after it arrived" in meter.why_no_positions
        assert meter.lengths.longest == 8

    def test_real_loaders_against_a_direct_count(self):
        """Of rows in order and of rows that are grouped by their lengths."""
        lengths = [2 + (37 * place) % 89 for place in range(320)]
        by_length = sorted(range(320), key=lengths.__getitem__)

        def collated(samples):
            ids = pad_sequence(samples, batch_first=True)
            return {"input_ids": ids, "attention_mask": (ids != 0).long()}

        for order in (range(320), by_length):
            batches = [list(order[start : start + 16]) for start in range(0, 320, 16)]
            texts = [torch.arange(1, length + 1) for length in lengths]
            meter, _ = counted(list(DataLoader(texts, batch_sampler=batches, collate_fn=collated)))
            places = sum(16 * max(lengths[place] for place in batch) for batch in batches)
            assert meter.padding_share == pytest.approx(1 - sum(lengths) / places)
            assert meter.lengths.num_sequences == 320

    def test_signs_that_differ(self):
        meter, _ = counted([PADDED], [{"input_ids": rows()[:, :2]}])
        assert meter.why_no_real == MIXED
        assert meter.padding_share is None
        assert meter.lengths is None

    def test_a_batch_that_cannot_be_read_ends_no_script(self):
        class Broken(dict):
            def items(self):
                raise RuntimeError("not to be looked at")

        batches = [Broken(a=1)] * (MAX_FAILURES + 1)
        meter, told = counted(*[[batch] for batch in batches])
        assert told == [None] * len(batches)
        assert meter.evidence is None


class TestRecord:
    def test_rates_are_those_of_the_step_time(self):
        meter, _ = counted([PADDED], [FULL])
        steps = [StepMeans(20, 14, None, step_s=0.4), StepMeans(24, 24, None, step_s=0.6)]
        tokens = tokens_of(meter, steps, exactly(0.5, 0.1))
        assert (tokens.positions_per_step, tokens.real_per_step) == (22, 19)
        assert tokens.real_per_s.median == pytest.approx(38)
        assert tokens.real_per_s.low < 38 < tokens.real_per_s.high
        assert [(step.step_s, step.real) for step in tokens.steps] == [(0.4, 14), (0.6, 24)]
        assert tokens.unavailable == {}

    def test_what_is_unknown_has_a_reason(self):
        ids = torch.randint(5, 90, (4, 6))
        meter, _ = counted([(ids, ids)])
        tokens = tokens_of(meter, [StepMeans(24, None, None, step_s=0.5)], exactly(0.5))
        assert tokens.positions_per_s.median == pytest.approx(48)
        unknown = ("real_per_step", "real_per_s", "padding_share", "lengths")
        assert [getattr(tokens, name) for name in unknown] == [None] * 4
        assert set(tokens.unavailable) == set(unknown)

    def test_no_steps_no_record(self):
        meter, _ = counted([PADDED])
        assert tokens_of(meter, [], exactly(0.5)) is None
        assert tokens_of(meter, [StepMeans(20, 14, None)], None) is None


class TestWindow:
    """The window of a trial and a meter, with a clock on paper."""

    @staticmethod
    def run(batches, parts=1):
        device, meter = Device(), TokenMeter()
        request = TrialRequest(batch_size=4, kind="timed", purpose="search", profile=False)
        window = Window(request, device, clock=device.clock, meter=meter)
        for _ in range(1000):
            window.resume()
            for batch in batches:
                window.arrived(4, "shape", 0.0, primary=True)
                meter.note(batch)
            device.now += 0.1 * parts
            if window.boundary(parts):
                return window.result(0, 0)
        pytest.fail("the window does not end")

    def test_a_trial_of_sequences(self):
        trial = self.run([PADDED, FULL])
        tokens = trial.tokens
        assert trial.micro_batches == 2
        assert tokens.num_batches == 2 * trial.quality.num_steps  # those of the warm-up are not
        assert (tokens.positions_per_step, tokens.real_per_step) == (44, 38)
        assert tokens.real_per_s.median == pytest.approx(
            trial.samples_per_s.median * (sum(LENGTHS) + 24) / 8
        )

    def test_several_steps_that_are_timed_together(self):
        tokens = self.run([PADDED, FULL], parts=2).tokens
        assert (tokens.positions_per_step, tokens.real_per_step) == (22, 19)

    def test_a_trial_of_images(self):
        trial = self.run([(torch.rand(4, 3, 8, 8), torch.arange(4))])
        assert trial.tokens is None
        assert "tokens" not in trial.unavailable


def part(step_s, positions, real, **changes):
    values = {
        "num_batches": 10,
        "evidence": "attention mask",
        "positions_per_step": positions,
        "real_per_step": real,
        "padding_share": None if real is None else 1 - real / positions,
        "lengths": TokenLengths(num_sequences=20, shortest=3, median=real or 1, longest=positions),
    }
    return trial_of(8, step_s, tokens=Tokens(**{**values, **changes}))


class TestRanks:
    """Tokens of a trial that several ranks ran: what a rank has, at the pace of the slowest."""

    def test_the_mean_at_the_pace_of_the_slowest(self):
        trial = merged([part(0.1, 100, 50), part(0.2, 300, 210)])
        tokens = trial.tokens
        assert (tokens.positions_per_step, tokens.real_per_step) == (200, 130)
        assert tokens.padding_share == pytest.approx(1 - 260 / 400)
        assert tokens.real_per_s.median == pytest.approx(130 / 0.2)
        assert tokens.positions_per_s.median == pytest.approx(200 / 0.2)
        assert (tokens.num_batches, tokens.lengths.num_sequences) == (20, 40)
        assert (tokens.lengths.shortest, tokens.lengths.longest) == (3, 300)

    def test_one_rank_that_cannot_tell_makes_them_unknown(self):
        unknown = part(0.1, 100, None, unavailable={"real_per_s": "why"}, lengths=None)
        tokens = merged([part(0.1, 100, 50), unknown]).tokens
        assert (tokens.positions_per_step, tokens.real_per_step) == (100, None)
        assert (tokens.padding_share, tokens.real_per_s, tokens.lengths) == (None, None, None)
        assert tokens.unavailable == {"real_per_s": "why"}

    @pytest.mark.parametrize("other", [trial_of(8, 0.1), part(0.1, 100, 50, evidence="lengths")])
    def test_a_rank_without_tokens_or_with_another_sign(self, other):
        assert merged([part(0.1, 100, 50), other]).tokens is None
