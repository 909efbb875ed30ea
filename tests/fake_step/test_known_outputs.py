"""Operations that are looked up, beside the same ones made each time."""

import msgspec
import pytest
import torch
from batchadvisor.probes.fake_step import faked_count, known_outputs
from batchadvisor.probes.fake_step.known_outputs import KnownOutputs
from batchadvisor.records import Variant

from .small_models import faked, made
from .test_what_ifs import Looked

aten = torch.ops.aten


def never(monkeypatch):
    """Nothing is looked up, and torch itself divides sharded tensors."""
    monkeypatch.setattr(known_outputs, "MOST", 0)
    monkeypatch.setattr(faked_count, "local_update", lambda *_: NotImplemented)


def of_steps(name, optimizer, variant):
    _, chosen, step, batch = made(name, optimizer, False)
    steps = faked(step, batch(16), chosen, variant)
    trial = steps.trial(16)
    return (trial, steps.requests, steps.work, steps.no_work)


@pytest.mark.parametrize(
    ("name", "optimizer", "variant"),
    [
        ("resnet", "sgd", Variant()),
        ("gpt", "adamw", Variant(checkpointed=True)),
        pytest.param("dropout", "adamw", Variant(), marks=pytest.mark.slow),
        pytest.param("unet", "adamw", Variant(), marks=pytest.mark.slow),
        pytest.param("checkpointed", "sgd", Variant(), marks=pytest.mark.slow),
    ],
)
def test_a_step_is_the_same_to_the_byte(name, optimizer, variant, monkeypatch):
    looked_up = of_steps(name, optimizer, variant)
    never(monkeypatch)
    assert looked_up == of_steps(name, optimizer, variant)


def under_bf16(name):
    trial, requests, work, _ = of_steps(name, "adamw", Variant(bf16=True))
    # What autocast kept is given back in no order.
    return (
        msgspec.structs.replace(trial, timeline=None),
        sorted(requests),
        work,
    )


def test_a_step_under_autocast_is_the_same(monkeypatch):
    looked_up = under_bf16("gpt")
    never(monkeypatch)
    assert looked_up == under_bf16("gpt")


CHANGES = [
    ("adamw", {"ranks": 3}, {"ranks": 3, "checkpointed": True}),
    ("sgd", {"ranks": 8, "bf16": True}, {"lora_rank": 2}),
]


@pytest.mark.parametrize(("optimizer", "first", "second"), CHANGES)
@pytest.mark.slow
def test_a_changed_step_is_the_same(optimizer, first, second, monkeypatch):
    def peaks():
        script = Looked("gpt", optimizer)
        variants = ({}, first, second)
        trials = [(script.at(**variant), script.steps.requests) for variant in variants]
        script.close()
        return trials

    looked_up = peaks()
    never(monkeypatch)
    assert looked_up == peaks()


def test_an_operation_is_made_once_for_each_kind_of_arguments(mode):
    outputs = KnownOutputs(mode)
    a, b = torch.empty(4, 6), torch.empty(4, 6)
    kinds = [
        (aten.add.Tensor, (a, b)),
        (aten.add.Tensor, (a, b.t().contiguous().t())),  # laid out in another way
        (aten.add.Tensor, (a, b.double())),
        (aten.sum.dim_IntList, (a, [0])),
        (aten.sum.dim_IntList, (a, [1])),
        (aten.mul.Tensor, (a.int(), 2)),
        (aten.mul.Tensor, (a.int(), 2.0)),
        (aten.split.Tensor, (a, 2)),
        (aten.native_dropout.default, (a, 0.5, True)),
        (aten._foreach_sqrt.default, ([a, b],)),
    ]
    mode.asked = 0
    told = [outputs.run(func, args, {}) for func, args in kinds]
    assert mode.asked >= len(kinds)
    mode.asked = 0
    again = [outputs.run(func, args, {}) for func, args in kinds]
    assert mode.asked == 0
    for one, other in zip(told, again, strict=True):
        for first, second in zip(parts(one), parts(other), strict=True):
            assert first is not second
            assert first.stride() == second.stride()
            assert vars(first) == vars(second)
            assert (first.shape, first.dtype) == (second.shape, second.dtype)
            assert first.device == second.device == torch.device("cpu")
    assert [each.dtype for each in again[5:7]] == [torch.int32, torch.float32]


def parts(out):
    return out if isinstance(out, (list, tuple)) else [out]


def test_what_is_not_new_stays_what_was_given(mode):
    outputs = KnownOutputs(mode)
    for _ in range(2):  # made, then looked up
        a, b = torch.empty(4, 6), torch.empty(4, 6)
        assert outputs.run(aten.add_.Tensor, (a, b), {}) is a
        view = outputs.run(aten.slice.Tensor, (b, 0, 1, 3), {})
        assert view.untyped_storage() is b.untyped_storage()
        assert (view.shape, view.storage_offset()) == ((2, 6), 6)
        first, second = outputs.run(aten.split.Tensor, (a, 2), {})
        assert first.untyped_storage() is second.untyped_storage() is a.untyped_storage()
        assert outputs.run(aten._foreach_mul_.Scalar, ([a, b], 2.0), {}) is None


def test_what_changes_its_arguments_is_made_each_time(mode):
    outputs = KnownOutputs(mode)
    for _ in range(2):
        out, a = torch.empty(0), torch.empty(3)
        outputs.run(aten.add.out, (a, a), {"out": out})
        assert out.shape == (3,)
        outputs.run(aten.resize_.default, (a, [7]), {})
        assert a.shape == (7,)
        outputs.run(aten.t_.default, (b := torch.empty(2, 3),), {})
        assert b.shape == (3, 2)


def test_numbers_that_are_known_are_computed(mode):
    outputs = KnownOutputs(mode)
    for value in (3.0, 5.0):
        number = torch.tensor(value)
        assert outputs.run(aten.mul.Tensor, (number, 2), {}).item() == 2 * value
