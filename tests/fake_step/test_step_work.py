"""What the operations of a fake step multiply and move, beside hand counts and torch's counter."""

import pytest
import torch
from batchadvisor.records import Variant
from torch.utils.flop_counter import FlopCounterMode

from .small_models import faked

WIDTH, CLASSES = 512, 64


def training():
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(WIDTH, WIDTH, bias=False),
        torch.nn.ReLU(),
        torch.nn.Linear(WIDTH, CLASSES, bias=False),
    )
    chosen = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(batch):
        chosen.zero_grad()
        model(batch).sum().backward()
        chosen.step()

    return chosen, step


def work_of(size, **changes):
    chosen, step = training()
    steps = faked(step, torch.zeros(size, WIDTH), chosen, Variant(**changes))
    assert steps.no_work == ""
    return steps.work


@pytest.mark.parametrize("size", [16, 64])
def test_flops_are_those_of_a_real_step(size):
    _, step = training()
    with FlopCounterMode(display=False) as counter:
        step(torch.zeros(size, WIDTH))
    assert sum(each.flops for each in work_of(size)) == counter.get_total_flops()


@pytest.mark.parametrize(("bf16", "dtype", "width"), [(False, "float32", 4), (True, "bfloat16", 2)])
def test_a_product_reads_and_writes_its_matrices_once(bf16, dtype, width):
    products = [each for each in work_of(64, bf16=bf16) if each.flops]
    assert {each.dtype for each in products} == {dtype}
    assert products[0].flops == 2 * 64 * WIDTH * WIDTH
    assert products[0].num_bytes == width * (64 * WIDTH + WIDTH * WIDTH + 64 * WIDTH)


def test_work_is_a_line_in_the_batch_size():
    few, middle, many = (work_of(size) for size in (16, 32, 64))
    assert len(few) == len(middle) == len(many)
    for small, between, large in zip(few, middle, many, strict=True):
        share = (32 - 16) / (64 - 16)
        assert between.flops == small.flops + share * (large.flops - small.flops)
        moved = small.num_bytes + share * (large.num_bytes - small.num_bytes)
        assert between.num_bytes == pytest.approx(moved)


def test_views_and_new_memory_move_nothing():
    work = work_of(64)
    # Two products ahead, three back, ReLU both ways, a sum and its gradient, SGD's update.
    assert sum(each.flops > 0 for each in work) == 5
    assert len(work) < 14
