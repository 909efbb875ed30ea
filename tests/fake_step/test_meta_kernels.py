"""Operations whose shapes torch's meta kernels tell, beside the fake operations themselves."""

import pytest
import torch
from batchadvisor.probes.fake_step.known_outputs import KnownOutputs

aten = torch.ops.aten
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


def test_types_are_those_of_the_fake_operation(mode):
    """A meta kernel knows no device: here it says that means of half precision are kept in fp32."""
    outputs = KnownOutputs(mode)
    func = aten.native_batch_norm.default
    args = norm(32, 24, HALF)
    kept = func(*args)[1].dtype
    outputs.run(func, norm(16, 24, HALF), {})
    assert outputs.run(func, args, {})[1].dtype is kept


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
