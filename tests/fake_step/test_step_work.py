"""What the operations of a fake step multiply and move, beside hand counts and torch's counter."""

import pytest
import torch
from batchadvisor.probes.fake_step.fake_steps import FakeSteps
from batchadvisor.records import Variant
from torch.utils.flop_counter import FlopCounterMode

WIDTH, CLASSES = 512, 64


def model_and_step():
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

    return model, step


def work_of(size, **changes):
    model, step = model_and_step()
    steps = FakeSteps(model.parameters())
    try:
        steps.begin(Variant(**changes))
        for number in range(2):
            if number:
                steps.next_step()
            batch = torch.zeros(size, WIDTH)
            steps.enter(batch)
            try:
                step(batch)
            finally:
                steps.leave()
        assert steps.no_work == ""
        return steps.work
    finally:
        steps.close()


@pytest.mark.parametrize("size", [16, 64])
def test_flops_are_those_of_a_real_step(size):
    _, step = model_and_step()
    with FlopCounterMode(display=False) as counter:
        step(torch.zeros(size, WIDTH))
    assert sum(each.flops for each in work_of(size)) == counter.get_total_flops()
    assert {each.dtype for each in work_of(size) if each.flops} == {"float32"}


def test_bytes_of_a_product():
    """What it reads and what it writes, once."""
    size = 64
    first = next(each for each in work_of(size) if each.flops)
    assert first.flops == 2 * size * WIDTH * WIDTH
    assert first.num_bytes == 4 * (size * WIDTH + WIDTH * WIDTH + size * WIDTH)


def test_under_autocast_products_are_of_bf16():
    work = work_of(64, bf16=True)
    assert {each.dtype for each in work if each.flops} == {"bfloat16"}
    first = next(each for each in work if each.flops)
    assert first.num_bytes == 2 * (64 * WIDTH + WIDTH * WIDTH + 64 * WIDTH)


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
