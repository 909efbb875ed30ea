"""Tokens of a batch, for every form that a batch of sequences has."""

import warnings
from collections import UserDict, namedtuple

import pytest
import torch
from batchadvisor.probes.loader.token_counts import tokens_in
from batchadvisor.probes.loader.token_parts import parts_of
from torch.nn.utils.rnn import pack_sequence, pad_sequence

LENGTHS = [3, 5, 2, 4]
APART = [3, 9, 2, 4]
WITH_EMPTY = [3, 0, 2]


def count_tokens(batch, pad_id=None):
    return tokens_in(parts_of(batch), pad_id)


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


def masked(mask=None, **more):
    """A batch with an attention mask."""
    return {"input_ids": rows(), "attention_mask": mask_of() if mask is None else mask, **more}


def ids_of(*shape):
    """Random ids, none of which is 0 or 1."""
    return torch.randint(5, 90, shape)


def each(make, lengths=LENGTHS):
    """A tensor for each length."""
    return [make(length) for length in lengths]


def frames(num):
    """Features of so many time steps."""
    return torch.randn(num, 6)


def nested(layout):
    with warnings.catch_warnings(action="ignore"):  # of a prototype
        return {"input_ids": torch.nested.nested_tensor(each(torch.arange), layout=layout)}


def packed(make):
    return pack_sequence(each(make), enforce_sorted=False)


def at_places(*places, **more):
    """A batch of ids with their position ids."""
    places = torch.stack(places) if len(places) > 1 else places[0]
    return {"input_ids": 7 + places, "position_ids": places, **more}


PADDED = masked()
FULL = ids_of(3, 7)
SEGMENTS = torch.zeros(4, 8).long()
SEGMENTS[:, 5:] = 1
LABELS = torch.zeros(4).long()
AGAIN = torch.cat(each(torch.arange)).unsqueeze(0)
TEXT = torch.randint(0, 40, (8, 33))
Batch = namedtuple("Batch", ["features", "lengths"])  # noqa: PYI024
PADDED_FRAMES = pad_sequence(each(frames), batch_first=True)
LENGTHS_FIRST = {"tokens": rows(), "lengths": torch.tensor(LENGTHS)}

SAID = {
    "a mask": (PADDED, "attention mask", 20, 14, LENGTHS),
    "a mask in another mapping": (UserDict(PADDED), "attention mask", 20, 14, LENGTHS),
    "a mask in a tuple": ((PADDED, torch.ones(4)), "attention mask", 20, 14, LENGTHS),
    "a mask of truths": (masked(mask_of().bool()), "attention mask", 20, 14, LENGTHS),
    "a mask of int32": (masked(mask_of().int()), "attention mask", 20, 14, LENGTHS),
    "a mask of floats": (masked(mask_of().float()), "attention mask", 20, 14, LENGTHS),
    "a mask of all ones": (
        {"input_ids": FULL, "attention_mask": torch.ones_like(FULL)},
        "attention mask", 21, 21, [7, 7, 7]),
    "a mask before other signs": (
        masked(lengths=torch.ones(4).long()), "attention mask", 20, 14, LENGTHS),
    "torch has true for padding": (
        {"src": rows(), "src_key_padding_mask": mask_of() == 0}, "padding mask", 20, 14, LENGTHS),
    "a mask beside the tokens": (
        [rows(), mask_of(), LABELS], "mask beside the tokens", 20, 14, LENGTHS),
    "padding at the beginning": (
        (rows().flip(1), mask_of().flip(1)), "mask beside the tokens", 20, 14, LENGTHS),
    "segments are no mask": ((ids_of(4, 8), SEGMENTS), "shape", 32, None, None),
    "a mask of an empty sequence": (
        {"input_ids": rows(WITH_EMPTY), "attention_mask": mask_of(WITH_EMPTY)},
        "attention mask", 9, 5, WITH_EMPTY),
    "nested": (nested(torch.strided), "nested tensor", 14, 14, LENGTHS),
    "nested, jagged": (nested(torch.jagged), "nested tensor", 14, 14, LENGTHS),
    "position ids that begin again": (
        at_places(AGAIN, labels=7 + AGAIN), "position ids", 14, 14, LENGTHS),
    "position ids of one sequence a row": (
        at_places(torch.arange(6).expand(2, 6)), "shape", 12, None, None),
    "rows of several sequences have no lengths": (
        at_places(torch.tensor([0, 1, 2, 0, 1]), torch.tensor([0, 1, 0, 1, 2]),
                  attention_mask=torch.ones(2, 5).bool()),
        "attention mask", 10, 10, None),
    "bounds of sequences": (
        {"input_ids": torch.arange(16)[None],
         "cu_seqlens": torch.tensor([0, 3, 8, 10, 14], dtype=torch.int32)},
        "cu_seqlens", 16, 14, LENGTHS),
    "bounds as a collator calls them": (
        {"input_ids": torch.arange(14), "cu_seq_lens_q": torch.tensor([0, 3, 8, 10, 14])},
        "cu_seqlens", 14, 14, LENGTHS),
    "lengths": (LENGTHS_FIRST, "lengths", 20, 14, LENGTHS),
    "lengths of int32": (
        {"tokens": rows(), "lengths": torch.tensor(LENGTHS).int()}, "lengths", 20, 14, LENGTHS),
    "lengths with time first": (
        {**LENGTHS_FIRST, "tokens": rows().t()}, "lengths", 20, 14, LENGTHS),
    "lengths of rows of a fixed length": (
        {"input_ids": rows(length=9), "length": torch.tensor(LENGTHS)},
        "lengths", 36, 14, LENGTHS),
    "lengths of empty sequences": (
        {"tokens": rows(WITH_EMPTY), "lengths": torch.tensor(WITH_EMPTY)},
        "lengths", 9, 5, WITH_EMPTY),
    "a list of rows": (each(torch.arange), "list of sequences", None, 14, LENGTHS),
    "a list beside labels": (
        (each(torch.arange), LABELS), "list of sequences", None, 14, LENGTHS),
    "a list of plain numbers": (
        {"input_ids": [list(range(n)) for n in LENGTHS]}, "list of sequences", None, 14, LENGTHS),
    "a run of one id": ((rows(APART), LABELS), "run of one id", 36, 18, APART),
    "a run at the beginnings": (
        (rows(APART).flip(1), torch.zeros(4)), "run of one id", 36, 18, APART),
    "input and target": ((TEXT[:, :-1], TEXT[:, 1:]), "shape", 256, None, None),
    "one block": (TEXT, "shape", 264, None, None),
    "ids by their name": ({"input_ids": TEXT[:, 1:]}, "shape", 256, None, None),
}  # fmt: skip
OF_FEATURES = {
    "a mask": ({"input_values": torch.randn(4, 5), "attention_mask": mask_of()},
               "attention mask", 20, 14, LENGTHS),
    "lengths": (Batch(PADDED_FRAMES, torch.tensor(LENGTHS)), "lengths", 20, 14, LENGTHS),
    "lengths without a name": ((PADDED_FRAMES, torch.tensor(LENGTHS), LABELS),
                               "lengths beside the sequences", 20, 14, LENGTHS),
    "a list of lengths without a name": ((PADDED_FRAMES, LENGTHS, LABELS),
                                         "lengths beside the sequences", 20, 14, LENGTHS),
    "packed": (packed(frames), "packed sequence", 14, 14, sorted(LENGTHS, reverse=True)),
}  # fmt: skip
UNKNOWN = {
    "other values than 0 and 1": (
        masked(2 * mask_of()), 20, "attention_mask holds other values than 0 and 1"),
    "a mask of three axes": (masked(torch.ones(4, 5, 5)), 20, "attention_mask has 3 axes, not two"),
    "a mask that does not fit": (masked(torch.ones(4, 9), labels=torch.ones(4, 9)), None, ""),
    "a device that would be waited for": (masked(mask_of().to("meta")), 20, "hold up the step"),
    "position ids that end in zeros": (
        at_places(torch.cat([torch.arange(3), torch.arange(4), torch.zeros(2).long()])[None]),
        9, "zeros"),
    "bounds beyond the batch": (
        {"input_ids": torch.arange(16)[None], "cu_seqlens": torch.tensor([0, 3, 20]).int()},
        16, "ends at 20"),
    "input and target": ((TEXT[:, :-1], TEXT[:, 1:]), 256, "no mask and no lengths"),
}  # fmt: skip
NOTHING = {
    "a column of lengths beside a table": {
        "features": torch.randn(4, 30), "length": torch.tensor(LENGTHS)},
    "classes beside images": (torch.rand(4, 5, 6), torch.tensor(LENGTHS)),
    "classes beside rows": (torch.rand(4, 5), torch.tensor(LENGTHS)),
    "columns of one length": [torch.arange(4), torch.arange(4)],
    "boxes of a detector": (
        [torch.rand(3, 8 + n, 8) for n in LENGTHS],
        [{"boxes": torch.rand(n, 4), "labels": torch.arange(n)} for n in LENGTHS]),
    "images": (torch.rand(4, 3, 8, 8), torch.arange(4)),
    "a table": (torch.rand(4, 12), torch.arange(4)),
    "images by their name": {"pixel_values": torch.rand(4, 3, 8, 8), "labels": torch.arange(4)},
    "images of bytes": (torch.randint(0, 255, (4, 3, 8, 8), dtype=torch.uint8),
                        torch.randint(0, 9, (4, 8, 8))),
    "images with a mask": {"image": torch.rand(4, 1, 8, 8), "mask": torch.ones(4, 8, 8)},
    "one axis of numbers": torch.arange(7),
    "one axis of floats": torch.rand(7),
    "an empty list": [],
    "an empty mapping": {},
    "None": None,
    "a text": "text",
    "texts and labels": [["a", "text"], [1, 0]],
    "plain numbers": [3, 1, 4],
}  # fmt: skip


def said(batch, pad_id=None):
    counted = count_tokens(batch, pad_id)
    assert counted is not None
    lengths = None if counted.lengths is None else list(counted.lengths)
    return counted.evidence, counted.positions, counted.real, lengths


@pytest.mark.parametrize("kind", SAID)
def test_tokens(kind):
    batch, *expected = SAID[kind]
    assert said(batch) == tuple(expected)
    assert count_tokens(batch).unit == "tokens"


@pytest.mark.parametrize("kind", OF_FEATURES)
def test_features_are_counted_in_time_steps(kind):
    batch, *expected, lengths = OF_FEATURES[kind]
    counted = count_tokens(batch)
    assert list(counted[:3]) == expected
    assert sorted(counted.lengths) == sorted(lengths)
    assert counted.unit == "time steps"


@pytest.mark.parametrize("kind", UNKNOWN)
def test_real_tokens_that_are_not_known_have_a_reason(kind):
    batch, positions, why = UNKNOWN[kind]
    counted = count_tokens(batch)
    assert (counted.positions, counted.real) == (positions, None)
    assert why in counted.why


@pytest.mark.parametrize("kind", NOTHING)
def test_nothing_is_said_of_other_batches(kind):
    assert count_tokens(NOTHING[kind]) is None


def test_a_mask_that_the_script_changed_since():
    mask = mask_of()
    parts = parts_of({"input_ids": rows(), "attention_mask": mask})
    mask.fill_(1)
    counted = tokens_in(parts)
    assert counted.real is None
    assert "in place" in counted.why


@pytest.mark.parametrize("shape", [(0, 5), (4, 0)])
def test_a_mask_of_nothing(shape):
    nothing = torch.zeros(shape).long()
    assert said({"input_ids": nothing, "attention_mask": nothing})[1:3] == (0, 0)


def test_a_packed_sequence():
    evidence, positions, real, lengths = said((packed(torch.arange), torch.zeros(4)))
    assert (evidence, positions, real) == ("packed sequence", 14, 14)
    assert sorted(lengths) == sorted(LENGTHS)


def test_a_list_is_padded_after_it_arrived():
    assert "after it arrived" in count_tokens(each(torch.arange)).why


class TestTentative:
    def test_classes_as_large_as_the_row_prove_nothing_alone(self):
        counted = count_tokens((torch.rand(1, 5), torch.tensor([5])))
        assert counted is None or counted.tentative

    def test_a_table_of_categories(self):
        assert count_tokens((torch.randint(0, 40, (8, 12)), torch.rand(8))).tentative


class TestRun:
    """A run of one id at the ends of rows."""

    def test_its_id_is_told(self):
        assert count_tokens((rows(APART), LABELS)).pad_id == 0

    def test_the_id_stands_inside_a_row_too(self):
        ids = rows(APART)
        ids[1, 1] = 0
        counted = count_tokens((ids, LABELS))
        assert counted.real is None
        assert counted.tentative

    def test_two_candidates(self):
        ids = rows(APART)
        ids[0, 3:] = 1
        assert count_tokens((ids, LABELS)).real is None

    @pytest.mark.parametrize("lengths", [LENGTHS, [3, 0, 9]])
    def test_too_few_to_be_no_chance_and_a_row_of_nothing_else(self, lengths):
        assert count_tokens((rows(lengths), torch.zeros(len(lengths)).long())).real is None

    def test_known_from_a_batch_before(self):
        full = (ids_of(1, 7), torch.zeros(1))
        assert said(full, pad_id=0)[:3] == ("run of one id", 7, 7)


class TestTrained:
    def test_labels_that_count(self):
        labels = rows()
        labels[mask_of() == 0] = -100
        labels[:, 0] = -100  # a prompt
        assert count_tokens(masked(labels=labels)).trained == 10

    def test_say_nothing_of_padding(self):
        labels = torch.full((4, 5), -100)
        labels[:, 0] = 3
        counted = count_tokens({"input_ids": ids_of(4, 5), "labels": labels})
        assert (counted.real, counted.trained) == (None, 4)

    def test_one_label_a_sample(self):
        assert count_tokens(masked(labels=torch.arange(4))).trained is None
