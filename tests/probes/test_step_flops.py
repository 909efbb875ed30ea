"""Floating point operations of a running step: against torch's own counter, and by hand."""

import pytest
import torch
from batchadvisor.probes.windows.counted_step import CountedStep
from batchadvisor.probes.windows.step_flops import (
    CAPTURED,
    NO_COUNT_COMPILED,
    NO_OPERATION,
    StepFlopCounter,
)
from batchadvisor.records import StepFlops
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count


def counted(step):
    counter = StepFlopCounter()
    counter.start()
    step()
    return counter.finish()


def by_torch(step):
    with FlopCounterMode(display=False) as counter:
        step()
    return counter.get_total_flops()


class Attention(nn.Module):
    def __init__(self, dim=32, heads=4, fused=True):
        super().__init__()
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.heads, self.fused = heads, fused

    def forward(self, x):
        rows, length, dim = x.shape
        shape = (rows, length, self.heads, dim // self.heads)
        q, k, v = (part.view(shape).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        if self.fused:
            y = nn.functional.scaled_dot_product_attention(q, k, v)
        else:
            y = (q @ k.transpose(-1, -2)).softmax(-1) @ v
        return self.out(y.transpose(1, 2).reshape(x.shape))


def trained(model, x):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step():
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()

    return step


ROWS, LENGTH, DIM, HEADS = 2, 10, 32, 4
PROJECTIONS = 2 * ROWS * LENGTH * DIM * (3 * DIM + DIM)
SCORES = 2 * ROWS * HEADS * LENGTH * LENGTH * (DIM // HEADS)


class TestByHand:
    def test_a_linear_layer(self):
        flops = counted(trained(nn.Linear(16, 4), torch.randn(8, 16)))
        assert (flops.forward, flops.backward) == (2 * 8 * 16 * 4, 2 * 8 * 16 * 4)
        both = counted(trained(nn.Linear(16, 4), torch.randn(8, 16, requires_grad=True)))
        assert both.backward == 2 * both.forward  # of the weights and of the input

    def test_an_attention_block_of_products(self):
        x = torch.randn(ROWS, LENGTH, DIM, requires_grad=True)
        flops = counted(trained(Attention(DIM, HEADS, fused=False), x))
        assert flops.forward == PROJECTIONS + 2 * SCORES  # scores, and values weighed by them
        assert flops.backward == 2 * flops.forward
        assert flops.products == 3 * 2 * SCORES
        assert flops.by_dtype == {"float32": flops.model}

    def test_fused_attention_on_a_cpu(self):
        x = torch.randn(ROWS, LENGTH, DIM, requires_grad=True)
        flops = counted(trained(Attention(DIM, HEADS), x))
        assert flops.forward == PROJECTIONS + 2 * SCORES
        # torch's formula has the scores again in the backward pass, as the kernel has.
        assert flops.backward == 2 * PROJECTIONS + 5 * SCORES
        shape = (ROWS, HEADS, LENGTH, DIM // HEADS)
        assert sdpa_flop_count(shape, shape, shape) == 2 * SCORES
        assert sdpa_backward_flop_count(shape, shape, shape, shape) == 5 * SCORES


class TestAgainstTorch:
    @pytest.mark.parametrize(
        ("model", "shape"),
        [
            (nn.Linear(16, 4), (8, 16)),
            (nn.Conv2d(3, 4, 3), (2, 3, 8, 8)),
            (nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2)), (5, 7, 8)),
            (Attention(fused=False), (2, 6, 32)),
            (nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), (2, 5, 16)),
        ],
    )
    def test_the_same_step(self, model, shape):
        step = trained(model, torch.randn(shape, requires_grad=True))
        flops = counted(step)
        assert flops.model == by_torch(step) > 0
        assert flops.convolutions == (flops.model if isinstance(model, nn.Conv2d) else 0)

    def test_what_checkpointing_makes_again_is_apart(self):
        x = torch.randn(2, 6, 32, requires_grad=True)
        model = Attention(fused=False)
        plain = counted(lambda: model(x).sum().backward())
        again = counted(lambda: checkpoint(model, x, use_reentrant=True).sum().backward())
        assert (again.forward, again.backward) == (plain.forward, plain.backward)
        assert again.recomputed == plain.forward
        assert plain.recomputed == 0
        assert plain.model == by_torch(lambda: model(x).sum().backward())

    def test_a_gradient_of_a_gradient_is_no_recomputation(self):
        model = nn.Linear(4, 4)

        def step():
            x = torch.randn(3, 4, requires_grad=True)
            (slope,) = torch.autograd.grad((model(x) ** 2).sum(), x, create_graph=True)
            (slope**2).sum().backward()

        # Forward; its gradient by the input; then those two by the weights and by the input.
        product = 2 * 3 * 4 * 4
        flops = counted(step)
        assert (flops.forward, flops.backward, flops.recomputed) == (product, 5 * product, 0)

    def test_autocast(self):
        def step():
            with torch.autocast("cpu", torch.bfloat16):
                loss = nn.Linear(16, 4)(torch.randn(8, 16)).sum()
            loss.backward()

        assert counted(step).by_dtype == {"bfloat16": by_torch(step)}


class TestNotCounted:
    def test_an_operation_without_a_formula(self):
        model = nn.LSTM(8, 8)
        told = counted(lambda: model(torch.randn(3, 2, 8))[0].sum().backward())
        assert told == "torch's flop counter has no formula for mkldnn_rnn_layer"

    def test_an_extension(self):
        @torch.library.custom_op("tests_of_flops::double", mutates_args=())
        def double(x: torch.Tensor) -> torch.Tensor:
            return 2 * x

        assert "tests_of_flops.double" in counted(lambda: double(torch.ones(2)))

    def test_no_product_at_all_and_nothing_stays_in_the_way(self):
        assert counted(lambda: torch.ones(3) + 1) == NO_OPERATION
        assert torch.utils._python_dispatch._len_torch_dispatch_stack() == 0

    def test_the_optimizer_is_left_out(self):
        class Muon(torch.optim.Optimizer):
            def step(self):
                for parameter in self.param_groups[0]["params"]:
                    parameter.data -= parameter.grad @ parameter.grad.T @ parameter.grad

        model = nn.Linear(4, 4, bias=False)
        optimizer = Muon(model.parameters(), {})

        def step():
            model(torch.ones(2, 4)).sum().backward()
            optimizer.step()

        assert counted(step).model == 2 * (2 * 2 * 4 * 4)


class Planted:
    def __init__(self, told=None, error=None):
        self.told, self.error = told, error

    def start(self):
        if self.error:
            raise self.error

    def forget(self):
        self.told = "forgotten"

    def finish(self):
        return self.told

    def abandon(self):
        pass


class TestCountedStep:
    @staticmethod
    def made(counter, parts=1):
        step = CountedStep(lambda: counter)
        step.begin()
        step.end(parts, None)
        return step.flops, step.why_not

    def test_shares_what_several_steps_did(self):
        flops = StepFlops(
            forward=20, backward=40, products=10, convolutions=8, by_dtype={"float32": 60}
        )
        half = StepFlops(
            forward=10, backward=20, products=5, convolutions=4, by_dtype={"float32": 30}
        )
        assert self.made(Planted(flops), parts=2)[0] == half

    def test_a_counter_that_fails_leaves_the_trial_alone(self):
        failed = "the counter failed: RuntimeError: no"
        assert self.made(Planted(error=RuntimeError("no"))) == (None, failed)

    def test_no_step_is_made_where_nothing_can_count(self):
        step = CountedStep(NO_COUNT_COMPILED)
        assert not step.is_wanted
        assert (step.flops, step.why_not) == (None, NO_COUNT_COMPILED)


def test_what_captured_graphs_replay_is_not_left_out_of_a_number(monkeypatch):
    def replay(_graph):
        """No device here: the call alone is told from."""

    monkeypatch.setattr(torch.cuda.CUDAGraph, "replay", replay)
    linear, x = nn.Linear(4, 4), torch.zeros(2, 4)

    def step():
        torch.cuda.CUDAGraph.replay(None)  # the captured part of the model
        linear(x).sum().backward()

    assert counted(step) == CAPTURED
    assert torch.cuda.CUDAGraph.replay is replay
    assert isinstance(counted(lambda: linear(x).sum().backward()), StepFlops)


def test_the_largest_tensor_of_the_step_is_kept():
    net = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 2))
    flops = counted(lambda: net(torch.randn(16, 8)).sum().backward())
    assert flops.largest_tensor == (16, 64)
