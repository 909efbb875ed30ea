"""The share of padding of batches from real loaders, against a direct count."""

import random

import pytest
import torch
from batchadvisor.probes.loader.token_meter import TokenMeter
from torch.nn.utils.rnn import pack_sequence, pad_sequence
from torch.utils.data import DataLoader, Dataset, IterableDataset

RNG = random.Random(11)
LENGTHS = [min(90, max(2, int(RNG.lognormvariate(3, 0.7)))) for _ in range(640)]
SIZE = 16


class Texts(Dataset):
    def __len__(self):
        return len(LENGTHS)

    def __getitem__(self, i):
        return torch.arange(1, LENGTHS[i] + 1)


class Stream(IterableDataset):
    def __iter__(self):
        return (Texts()[i] for i in range(len(LENGTHS)))


def padded(samples):
    ids = pad_sequence(samples, batch_first=True)
    return {"input_ids": ids, "attention_mask": (ids != 0).long()}


def flattened(samples):
    """As DataCollatorWithFlattening: one row, position ids that begin again."""
    places = torch.cat([torch.arange(len(sample)) for sample in samples])
    return {"input_ids": torch.cat(samples)[None], "position_ids": places[None]}


def bounds(samples):
    ends = torch.tensor([0, *(len(sample) for sample in samples)]).cumsum(0).int()
    return {"input_ids": torch.cat(samples), "cu_seq_lens_q": ends}


def with_lengths(samples):
    return pad_sequence(samples, batch_first=True), torch.tensor([len(each) for each in samples])


def grouped():
    order = sorted(range(len(LENGTHS)), key=LENGTHS.__getitem__)
    return [order[at : at + SIZE] for at in range(0, len(order), SIZE)]


def by_budget(most=400):
    batches, rows = [], []
    for place in sorted(range(len(LENGTHS)), key=LENGTHS.__getitem__):
        if rows and (len(rows) + 1) * LENGTHS[place] > most:
            batches.append(rows)
            rows = []
        rows.append(place)
    return [*batches, rows]


def counted(loader):
    meter = TokenMeter()
    for batch in loader:
        meter.begin_step()
        meter.note(batch)
        meter.end_step()
    return meter


def direct(batches):
    real = sum(LENGTHS[place] for rows in batches for place in rows)
    return 1 - real / sum(len(rows) * max(LENGTHS[place] for place in rows) for rows in batches)


IN_ORDER = [list(range(at, at + SIZE)) for at in range(0, len(LENGTHS), SIZE)]


@pytest.mark.parametrize(
    ("batches", "collate", "evidence"),
    [
        (IN_ORDER, padded, "attention mask"),
        (IN_ORDER, with_lengths, "lengths beside the sequences"),
        (grouped(), padded, "attention mask"),
        (grouped(), with_lengths, "lengths beside the sequences"),
        (by_budget(), padded, "attention mask"),
    ],
)
def test_padded_grouped_and_by_a_budget(batches, collate, evidence):
    meter = counted(DataLoader(Texts(), batch_sampler=batches, collate_fn=collate))
    assert meter.evidence == evidence
    assert meter.padding_share == pytest.approx(direct(batches))


@pytest.mark.parametrize(
    "collate", [flattened, bounds, lambda texts: pack_sequence(texts, enforce_sorted=False)]
)
def test_packed(collate):
    meter = counted(DataLoader(Texts(), batch_size=SIZE, collate_fn=collate))
    assert meter.padding_share == 0
    assert meter.lengths.num_sequences == len(LENGTHS)
    assert (meter.lengths.shortest, meter.lengths.longest) == (min(LENGTHS), max(LENGTHS))


def test_a_stream():
    meter = counted(DataLoader(Stream(), batch_size=SIZE, collate_fn=padded))
    assert meter.padding_share == pytest.approx(direct(IN_ORDER))


class TestBadInput:
    def test_empty_sequences(self):
        rows = [torch.arange(1, 6), torch.arange(0), torch.arange(1, 3)]
        ids = pad_sequence(rows, batch_first=True)
        meter = counted([{"input_ids": ids, "attention_mask": (ids != 0).long()}])
        assert meter.padding_share == pytest.approx(8 / 15)
        assert meter.lengths.shortest == 0

    def test_batches_of_nothing(self):
        nothing = torch.zeros(0, 0, dtype=torch.long)
        meter = counted([{"input_ids": nothing, "attention_mask": nothing}])
        assert meter.padding_share is None

    def test_masks_of_all_ones_say_that_nothing_is_padding(self):
        ids = torch.randint(1, 9, (4, 7))
        meter = counted([{"input_ids": ids, "attention_mask": torch.ones_like(ids)}])
        assert (meter.evidence, meter.padding_share) == ("attention mask", 0.0)

    def test_without_a_pad_id_padding_is_unknown(self):
        meter = counted([{"input_ids": torch.randint(1, 9, (4, 7))}])
        assert meter.padding_share is None
        assert "no mask and no lengths" in meter.why_no_real

    def test_lengths_unknown_before_the_collate_function_ran(self):
        """Of a list, whose padding comes later, the tokens are known and the positions are not."""
        meter = counted([[torch.arange(1, 5), torch.arange(1, 9)]])
        assert meter.padding_share is None
        assert "padding, if any, is added after it arrived" in meter.why_no_positions
        assert meter.lengths.longest == 8
