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
    return (msgspec.structs.replace(trial, timeline=None), sorted(requests), work)


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


def test_an_evaluation_in_inference_mode_is_looked_up_too(mode):
    """Layers come whole there, and torch takes them to pieces each time."""
    outputs = KnownOutputs(mode)
    rows, weight = torch.empty(4, 6), torch.empty(3, 6)
    for asked in (True, False):
        mode.asked = 0
        with torch.inference_mode():
            out = outputs.run(aten.linear.default, (rows, weight), {})
            again = outputs.run(aten.linear.default, (out, torch.empty(2, 3)), {})
        assert (mode.asked > 1) is asked  # the second weight is one
        assert (out.shape, out.is_inference(), again.shape) == ((4, 3), True, (4, 2))


def test_a_view_in_inference_mode_is_what_torch_makes_of_it(mode):
    """It is one of that mode only if what it looks at is; outside it is looked up again."""
    outputs = KnownOutputs(mode)
    rows = torch.empty(4, 6)
    with torch.inference_mode():
        inside = torch.empty(4, 6)
        for base in (rows, inside) * 2:
            view = outputs.run(aten.slice.Tensor, (base, 0, 1, 3), {})
            assert view.is_inference() is base[1:3].is_inference() is (base is inside)
            assert view.untyped_storage() is base.untyped_storage()
    for asked in (True, False):
        mode.asked = 0
        assert not outputs.run(aten.slice.Tensor, (rows, 0, 1, 3), {}).is_inference()
        assert (mode.asked > 0) is asked


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


# Operations whose shapes torch's meta kernels tell, beside the fake operations themselves.

HALF = torch.float16


def pictures(samples, channels, dtype=torch.float32, layout=torch.contiguous_format):
    return torch.empty(samples, channels, 8, 8, dtype=dtype).contiguous(memory_format=layout)


def norm(samples, channels, dtype=torch.float32, layout=torch.contiguous_format):
    numbers = [torch.empty(channels) for _ in range(4)]
    return (pictures(samples, channels, dtype, layout), *numbers, True, 0.1, 1e-5)


def norm_back(samples, channels, dtype=torch.float32, layout=torch.contiguous_format):
    given = pictures(samples, channels, dtype, layout)
    numbers = [torch.empty(channels) for _ in range(5)]
    return (torch.empty_like(given), given, *numbers, True, 1e-5, [True, True, True])


def sliced(samples, channels):
    return (pictures(samples, channels), 1, 7, channels)


def joined(samples, channels):
    return ([pictures(samples, channels), pictures(samples, 2 * channels)], 1)


def sums_of_slices(samples, channels):
    whole = pictures(samples, 3 * channels)
    return (whole[:, :channels], whole[:, channels : 2 * channels])


LAST = torch.channels_last
KINDS = [
    (aten.native_batch_norm.default, norm),
    (aten.native_batch_norm.default, lambda *sizes: norm(*sizes, HALF)),
    (aten.native_batch_norm.default, lambda *sizes: norm(*sizes, HALF, LAST)),
    (aten.native_batch_norm_backward.default, norm_back),
    (aten.native_batch_norm_backward.default, lambda *sizes: norm_back(*sizes, HALF, LAST)),
    (aten.slice.Tensor, sliced),
    (aten.cat.default, joined),
    (aten.add.Tensor, sums_of_slices),
    (aten.permute.default, lambda *sizes: (pictures(*sizes), [0, 2, 3, 1])),
    (aten.view.default, lambda samples, channels: (pictures(samples, channels), [samples, -1])),
    (aten.sum.dim_IntList, lambda *sizes: (pictures(*sizes, HALF), [0, 2, 3])),
    (aten._foreach_add_.List, lambda *sizes: ([pictures(*sizes)], [pictures(*sizes)])),
]


@pytest.mark.parametrize(("func", "arguments"), KINDS)
def test_a_kind_of_operation_is_made_once(func, arguments, mode):
    outputs = KnownOutputs(mode)
    outputs.run(func, arguments(16, 24), {})
    for sizes in ((32, 24), (9, 130)):
        args = arguments(*sizes)
        mode.asked = 0
        told = outputs.run(func, args, {})
        assert mode.asked == 0
        assert described(told, args) == described(func(*args), args)


def described(out, args):
    """All that tells tensors apart, but their contents."""
    leaves = [leaf for leaf in torch.utils._pytree.tree_leaves(args) if torch.is_tensor(leaf)]
    storages = [leaf.untyped_storage()._cdata for leaf in leaves]
    lines = []
    for each in out if isinstance(out, (list, tuple)) else (out,):
        if each is None:
            lines.append(None)
            continue
        storage = each.untyped_storage()
        shares = [at for at, known in enumerate(storages) if known == storage._cdata]
        own = None if shares else storage.nbytes()
        shape = (each.shape, each.stride(), each.storage_offset())
        lines.append((*shape, each.dtype, each.device, own, shares, each.requires_grad))
    return lines


def test_a_convolution_is_made_for_each_shape(mode):
    """Which kernel it has goes by its lengths, and the layout of what it returns by the kernel."""
    outputs = KnownOutputs(mode)
    for samples in (16, 32, 64):
        args = (pictures(samples, 8), torch.empty(8, 8, 3, 3), None, [1, 1], [1, 1], [1, 1])
        mode.asked = 0
        outputs.run(aten.convolution.default, (*args, False, [0, 0], 1), {})
        assert mode.asked


def test_where_a_meta_kernel_differs_the_operation_is_made(mode, monkeypatch):
    outputs = KnownOutputs(mode)
    monkeypatch.setattr(
        "batchadvisor.probes.fake_step.meta_kernels.FORMS",
        {"aten::relu": lambda given: given.new_empty(given.shape[0])},
    )
    for samples in (16, 32):
        args = (pictures(samples, 8),)
        mode.asked = 0
        assert described(outputs.run(aten.relu.default, args, {}), args)[0][0][0] == samples
        assert mode.asked


def test_what_no_kernel_takes_raises_what_the_operation_raises(mode):
    outputs = KnownOutputs(mode)
    outputs.run(aten.mm.default, (torch.empty(16, 24), torch.empty(24, 9)), {})
    with pytest.raises(RuntimeError, match="24"):
        outputs.run(aten.mm.default, (torch.empty(32, 24), torch.empty(25, 9)), {})
