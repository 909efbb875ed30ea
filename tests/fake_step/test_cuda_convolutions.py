"""Batches with channels last, and the workspaces that are taken for grouped convolutions."""

import pytest
import torch
from batchadvisor.probes.fake_step.cuda_convolutions import grouped_workspace, search_of
from batchadvisor.probes.fake_step.fake_steps import FakeSteps
from batchadvisor.probes.worker.versions import loads_all_kernels
from batchadvisor.records import Variant
from torch import nn

from .small_models import drive


@pytest.fixture
def searching(monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", True)


def of(given, width, groups):
    """Arguments of a convolution, as the dispatcher hands them on."""
    weights = torch.empty(given.size(1), width, 3, 3, dtype=given.dtype)
    return given, weights, None, [1, 1], [1, 1], [1, 1], False, [0, 0], groups


IMAGES = torch.empty(8, 64, 16, 16, dtype=torch.float16)


def test_grouped_convolutions_take_a_workspace_where_cudnn_tries_all_kernels(searching):
    assert grouped_workspace("convolution", of(IMAGES, 4, 16)) == 8 * IMAGES.nbytes
    last = IMAGES.contiguous(memory_format=torch.channels_last)
    assert grouped_workspace("convolution", of(last, 4, 16)) == 4 * IMAGES.nbytes
    given, weights, *rest = of(IMAGES, 4, 16)
    backward = (given, given, weights, [0], *rest[1:])
    assert grouped_workspace("convolution_backward", backward) == 8 * IMAGES.nbytes


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("convolution", of(IMAGES, 64, 1)),
        ("convolution", of(IMAGES, 1, 64)),  # depthwise
        ("convolution", of(IMAGES.float(), 4, 16)),
        ("mm", (IMAGES, IMAGES)),
    ],
)
def test_others_take_none(name, args, searching):
    assert grouped_workspace(name, args) == 0


def test_without_a_search_there_is_none():
    assert not torch.backends.cudnn.benchmark
    assert grouped_workspace("convolution", of(IMAGES, 4, 16)) == 0


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_a_batch_of_another_size_keeps_its_layout_and_its_workspace_is_noted(layout, searching):
    model = nn.Conv2d(8, 8, 3, padding=1, groups=2).half()
    chosen = torch.optim.SGD(model.parameters(), lr=0.1)
    steps = FakeSteps(model.parameters(), for_gpu=True)
    like = torch.empty(2, 8, 16, 16, dtype=torch.float16).contiguous(memory_format=layout)
    steps.begin(Variant(), 32)
    given = steps.empty(like, [32, 8, 16, 16])
    assert given.is_contiguous(memory_format=layout)

    def step(batch):
        chosen.zero_grad()
        model(batch).sum().backward()
        chosen.step()

    drive(steps, step, given, 1)
    times = 8 if layout is torch.contiguous_format else 4
    assert [size for _, size in steps.lived.passing] == [times * 32 * 8 * 16 * 16 * 2] * 2
    assert not {size for _, size in steps.lived.passing}.intersection(steps.requests)
    assert len(steps.lived.emptied) == 2  # forward and backward
    steps.close()


def test_a_process_says_whether_cuda_would_load_all_kernels(monkeypatch):
    monkeypatch.delenv("CUDA_MODULE_LOADING", raising=False)
    assert loads_all_kernels() is False
    monkeypatch.setattr(torch.version, "cuda", "11.3")
    assert loads_all_kernels() is True
    monkeypatch.setattr(torch.version, "cuda", "12.6")
    assert loads_all_kernels() is False
    monkeypatch.setenv("CUDA_MODULE_LOADING", "EAGER")
    assert loads_all_kernels() is True


def test_cudnn_searches_once_for_each_convolution(searching):
    one, same, other = (search_of("convolution", of(IMAGES, *each)) for each in
                        ((64, 1), (64, 1), (4, 16)))  # fmt: skip
    last = IMAGES.contiguous(memory_format=torch.channels_last)
    assert one == same
    assert len({one, other, search_of("convolution", of(last, 64, 1))}) == 3
    assert search_of("mm", (IMAGES, IMAGES)) == ()
