"""Tokens of a batch, for every form that a batch of sequences has."""

import warnings
from collections import UserDict, namedtuple

import pytest
import torch
from batchadvisor.probes.loader.token_counts import count_tokens, tokens_in
from batchadvisor.probes.loader.token_parts import parts_of
from torch.nn.utils.rnn import pack_sequence, pad_sequence

LENGTHS = [3, 5, 2, 4]
APART = [3, 9, 2, 4]


def rows(lengths=LENGTHS, length=None, pad=0):
    """Ids from 10 on, padded to the longest; no two batches have the id 1."""
    length = length or max(lengths)
    ids = torch.full((len(lengths), length), pad)
    for row, real in enumerate(lengths):
        ids[row, :real] = torch.arange(10, 10 + real) + row
    return ids


def mask_of(lengths=LENGTHS, length=None):
    places = torch.arange(length or max(lengths))
    return (places < torch.tensor(lengths).unsqueeze(1)).long()


def said(batch, pad_id=None):
    counted = count_tokens(batch, pad_id)
    assert counted is not None
    lengths = None if counted.lengths is None else list(counted.lengths)
    return counted.evidence, counted.positions, counted.real, lengths


class TestMask:
    @pytest.mark.parametrize("kind", [dict, UserDict, lambda parts: (parts, torch.ones(4))])
    def test_by_its_name(self, kind):
        batch = kind({"input_ids": rows(), "attention_mask": mask_of()})
        assert said(batch) == ("attention mask", 20, 14, LENGTHS)

    @pytest.mark.parametrize("dtype", [torch.bool, torch.int32, torch.float32])
    def test_of_any_type(self, dtype):
        batch = {"input_ids": rows(), "attention_mask": mask_of().to(dtype)}
        assert said(batch) == ("attention mask", 20, 14, LENGTHS)

    def test_all_ones_are_no_padding(self):
        full = torch.randint(5, 90, (3, 7))
        batch = {"input_ids": full, "attention_mask": torch.ones_like(full)}
        assert said(batch) == ("attention mask", 21, 21, [7, 7, 7])

    def test_before_other_signs(self):
        batch = {"input_ids": rows(), "attention_mask": mask_of(), "lengths": torch.ones(4).long()}
        assert said(batch)[0] == "attention mask"

    def test_of_features_counts_time_steps(self):
        batch = {"input_values": torch.randn(4, 5), "attention_mask": mask_of()}
        assert said(batch) == ("attention mask", 20, 14, LENGTHS)
        assert count_tokens(batch).unit == "time steps"

    def test_torch_has_true_for_padding(self):
        batch = {"src": rows(), "src_key_padding_mask": mask_of() == 0}
        assert said(batch) == ("padding mask", 20, 14, LENGTHS)

    def test_beside_the_tokens_of_a_tuple(self):
        batch = [rows(), mask_of(), torch.zeros(4).long()]
        assert said(batch) == ("mask beside the tokens", 20, 14, LENGTHS)

    def test_padding_at_the_beginning(self):
        batch = (rows().flip(1), mask_of().flip(1))
        assert said(batch) == ("mask beside the tokens", 20, 14, LENGTHS)

    def test_segments_are_no_mask(self):
        full = torch.randint(5, 90, (4, 8))
        segments = torch.zeros_like(full)
        segments[:, 5:] = 1
        assert said((full, segments)) == ("shape", 32, None, None)

    def test_other_values_than_0_and_1(self):
        batch = {"input_ids": rows(), "attention_mask": 2 * mask_of()}
        counted = count_tokens(batch)
        assert (counted.positions, counted.real) == (20, None)
        assert counted.why == "attention_mask holds other values than 0 and 1"

    def test_of_three_axes(self):
        batch = {"input_ids": rows(), "attention_mask": torch.ones(4, 5, 5)}
        counted = count_tokens(batch)
        assert (counted.positions, counted.real) == (20, None)
        assert counted.why == "attention_mask has 3 axes, not two"

    def test_that_does_not_fit(self):
        batch = {"input_ids": rows(), "attention_mask": torch.ones(4, 9)}
        assert count_tokens({**batch, "labels": torch.ones(4, 9)}).positions is None

    def test_on_another_device_is_not_waited_for(self):
        batch = {"input_ids": rows(), "attention_mask": mask_of().to("meta")}
        counted = count_tokens(batch)
        assert (counted.positions, counted.real) == (20, None)
        assert "hold up the step" in counted.why

    def test_that_the_script_changed_since(self):
        mask = mask_of()
        parts = parts_of({"input_ids": rows(), "attention_mask": mask})
        mask.fill_(1)
        counted = tokens_in(parts)
        assert counted.real is None
        assert "in place" in counted.why

    def test_of_an_empty_sequence(self):
        lengths = [3, 0, 2]
        batch = {"input_ids": rows(lengths), "attention_mask": mask_of(lengths)}
        assert said(batch) == ("attention mask", 9, 5, lengths)

    @pytest.mark.parametrize("shape", [(0, 5), (4, 0)])
    def test_of_nothing(self, shape):
        nothing = torch.zeros(shape).long()
        batch = {"input_ids": nothing, "attention_mask": nothing}
        assert said(batch)[1:3] == (0, 0)


class TestPacked:
    def test_sequence(self):
        packed = pack_sequence([torch.arange(n) for n in LENGTHS], enforce_sorted=False)
        evidence, positions, real, lengths = said((packed, torch.zeros(4)))
        assert (evidence, positions, real) == ("packed sequence", 14, 14)
        assert sorted(lengths) == sorted(LENGTHS)

    def test_sequence_of_features(self):
        packed = pack_sequence([torch.randn(n, 6) for n in LENGTHS], enforce_sorted=False)
        assert count_tokens(packed)[1:3] == (14, 14)
        assert count_tokens(packed).unit == "time steps"

    @pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
    def test_nested_tensor(self, layout):
        with warnings.catch_warnings(action="ignore"):  # of a prototype
            nested = torch.nested.nested_tensor([torch.arange(n) for n in LENGTHS], layout=layout)
        assert said({"input_ids": nested}) == ("nested tensor", 14, 14, LENGTHS)

    def test_position_ids_that_begin_again(self):
        places = torch.cat([torch.arange(n) for n in LENGTHS]).unsqueeze(0)
        batch = {"input_ids": 7 + places, "labels": 7 + places, "position_ids": places}
        assert said(batch) == ("position ids", 14, 14, LENGTHS)

    def test_position_ids_of_one_sequence_a_row_say_nothing(self):
        places = torch.arange(6).expand(2, 6)
        batch = {"input_ids": 7 + places, "position_ids": places}
        assert said(batch) == ("shape", 12, None, None)

    def test_position_ids_that_end_in_zeros(self):
        places = torch.cat([torch.arange(3), torch.arange(4), torch.zeros(2).long()])
        counted = count_tokens({"input_ids": 7 + places[None], "position_ids": places[None]})
        assert (counted.positions, counted.real) == (9, None)
        assert "zeros" in counted.why

    def test_bounds_of_sequences(self):
        bounds = torch.tensor([0, 3, 8, 10, 14], dtype=torch.int32)
        batch = {"input_ids": torch.arange(16)[None], "cu_seqlens": bounds}
        assert said(batch) == ("cu_seqlens", 16, 14, LENGTHS)

    def test_bounds_beyond_the_batch(self):
        bounds = torch.tensor([0, 3, 20], dtype=torch.int32)
        counted = count_tokens({"input_ids": torch.arange(16)[None], "cu_seqlens": bounds})
        assert (counted.positions, counted.real) == (16, None)

    def test_rows_of_several_sequences_have_no_lengths(self):
        places = torch.tensor([[0, 1, 2, 0, 1], [0, 1, 0, 1, 2]])
        batch = {"input_ids": 7 + places, "attention_mask": places >= 0, "position_ids": places}
        assert said(batch) == ("attention mask", 10, 10, None)


class TestLengths:
    @pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
    def test_by_their_name(self, dtype):
        batch = {"tokens": rows(), "lengths": torch.tensor(LENGTHS, dtype=dtype)}
        assert said(batch) == ("lengths", 20, 14, LENGTHS)

    def test_of_features(self):
        frames = pad_sequence([torch.randn(n, 6) for n in LENGTHS], batch_first=True)
        Batch = namedtuple("Batch", ["features", "lengths"])  # noqa: PYI024
        batch = Batch(frames, torch.tensor(LENGTHS))
        assert said(batch) == ("lengths", 20, 14, LENGTHS)
        assert count_tokens(batch).unit == "time steps"

    def test_with_time_first(self):
        batch = {"tokens": rows().t(), "lengths": torch.tensor(LENGTHS)}
        assert said(batch) == ("lengths", 20, 14, LENGTHS)

    def test_of_rows_of_a_fixed_length(self):
        batch = {"input_ids": rows(length=9), "length": torch.tensor(LENGTHS)}
        assert said(batch) == ("lengths", 36, 14, LENGTHS)

    def test_a_column_of_lengths_beside_a_table(self):
        batch = {"features": torch.randn(4, 30), "length": torch.tensor(LENGTHS)}
        assert count_tokens(batch) is None

    @pytest.mark.parametrize("as_list", [False, True])
    def test_without_a_name_rows_have_to_end_there(self, as_list):
        frames = pad_sequence([torch.randn(n, 6) for n in LENGTHS], batch_first=True)
        lengths = LENGTHS if as_list else torch.tensor(LENGTHS)
        batch = (frames, lengths, torch.zeros(4).long())
        assert said(batch) == ("lengths beside the sequences", 20, 14, LENGTHS)

    def test_classes_are_no_lengths(self):
        images = torch.rand(4, 5, 6)
        assert count_tokens((images, torch.tensor(LENGTHS))) is None
        assert count_tokens((torch.rand(4, 5), torch.tensor(LENGTHS))) is None

    def test_classes_as_large_as_the_row_prove_nothing_alone(self):
        counted = count_tokens((torch.rand(1, 5), torch.tensor([5])))
        assert counted is None or counted.tentative

    def test_empty_sequences(self):
        lengths = [3, 0, 2]
        batch = {"tokens": rows(lengths), "lengths": torch.tensor(lengths)}
        assert said(batch) == ("lengths", 9, 5, lengths)


class TestLists:
    def test_of_rows(self):
        batch = [torch.arange(n) for n in LENGTHS]
        assert said(batch) == ("list of sequences", None, 14, LENGTHS)
        assert "after it arrived" in count_tokens(batch).why

    def test_beside_labels(self):
        batch = ([torch.arange(n) for n in LENGTHS], torch.zeros(4).long())
        assert said(batch) == ("list of sequences", None, 14, LENGTHS)

    def test_of_plain_numbers(self):
        batch = {"input_ids": [list(range(n)) for n in LENGTHS]}
        assert said(batch) == ("list of sequences", None, 14, LENGTHS)

    def test_columns_of_one_length_are_no_sequences(self):
        assert count_tokens([torch.arange(4), torch.arange(4)]) is None

    def test_boxes_of_a_detector_are_no_sequences(self):
        images = [torch.rand(3, 8 + n, 8) for n in LENGTHS]
        targets = [{"boxes": torch.rand(n, 4), "labels": torch.arange(n)} for n in LENGTHS]
        assert count_tokens((images, targets)) is None


class TestRun:
    def test_of_one_id_at_the_ends_of_rows(self):
        counted = count_tokens((rows(APART), torch.zeros(4).long()))
        assert counted[:4] == ("run of one id", 36, 18, APART)
        assert counted.pad_id == 0

    def test_at_the_beginnings(self):
        assert count_tokens((rows(APART).flip(1), torch.zeros(4)))[:3] == ("run of one id", 36, 18)

    def test_too_few_to_be_no_chance(self):
        assert count_tokens((rows(), torch.zeros(4).long())).real is None

    def test_the_id_stands_inside_a_row_too(self):
        ids = rows(APART)
        ids[1, 1] = 0
        counted = count_tokens((ids, torch.zeros(4).long()))
        assert counted.real is None
        assert counted.tentative

    def test_a_row_of_nothing_else(self):
        counted = count_tokens((rows([3, 0, 9]), torch.zeros(3).long()))
        assert counted.real is None

    def test_two_candidates(self):
        ids = rows(APART)
        ids[0, 3:] = 1
        assert count_tokens((ids, torch.zeros(4).long())).real is None

    def test_known_from_a_batch_before(self):
        full = torch.randint(5, 90, (1, 7))
        assert count_tokens((full, torch.zeros(1)), pad_id=0)[:3] == ("run of one id", 7, 7)


class TestShape:
    def test_input_and_target(self):
        text = torch.randint(0, 40, (8, 33))
        assert said((text[:, :-1], text[:, 1:])) == ("shape", 256, None, None)
        assert count_tokens((text[:, :-1], text[:, 1:])).why

    def test_one_block(self):
        assert said(torch.randint(0, 40, (8, 33))) == ("shape", 264, None, None)

    def test_by_the_name(self):
        assert said({"input_ids": torch.randint(0, 40, (8, 32))}) == ("shape", 256, None, None)

    def test_a_table_of_categories_is_tentative(self):
        assert count_tokens((torch.randint(0, 40, (8, 12)), torch.rand(8))).tentative


class TestNothingIsSaidOf:
    @pytest.mark.parametrize(
        "batch",
        [
            (torch.rand(4, 3, 8, 8), torch.arange(4)),
            (torch.rand(4, 12), torch.arange(4)),
            {"pixel_values": torch.rand(4, 3, 8, 8), "labels": torch.arange(4)},
            (
                torch.randint(0, 255, (4, 3, 8, 8), dtype=torch.uint8),
                torch.randint(0, 9, (4, 8, 8)),
            ),
            {"image": torch.rand(4, 1, 8, 8), "mask": torch.ones(4, 8, 8)},
            torch.arange(7),
            torch.rand(7),
            [],
            {},
            None,
            "text",
            [["a", "text"], [1, 0]],
            [3, 1, 4],
        ],
    )
    def test_other_batches(self, batch):
        assert count_tokens(batch) is None


class TestTrained:
    def test_labels_that_count(self):
        labels = rows()
        labels[mask_of() == 0] = -100
        labels[:, 0] = -100  # a prompt
        batch = {"input_ids": rows(), "attention_mask": mask_of(), "labels": labels}
        assert count_tokens(batch).trained == 10

    def test_say_nothing_of_padding(self):
        labels = torch.full((4, 5), -100)
        labels[:, 0] = 3
        counted = count_tokens({"input_ids": torch.randint(5, 90, (4, 5)), "labels": labels})
        assert (counted.real, counted.trained) == (None, 4)

    def test_one_label_a_sample(self):
        batch = {"input_ids": rows(), "attention_mask": mask_of(), "labels": torch.arange(4)}
        assert count_tokens(batch).trained is None
