"""Losses that nothing can be said of, and what is left behind."""

from types import MappingProxyType

import torch
from batchadvisor.probes.windows.loss_steps import NO_TIME
from torch import nn

from .loss_loop import SAMPLES, Loop, mean


class TestRefused:
    def run(self, reason, loss=mean, model=None, kind=Loop, **options):
        check = kind(loss, model, **options).run()
        assert check.reduction is None
        assert reason in check.reason, check

    def test_random_numbers_in_the_loop(self):
        self.run(
            "draws random numbers", lambda model, x, y: mean(model, x + 9 * torch.randn_like(x), y)
        )

    def test_two_backward_passes(self):
        """As with SAM, whose second gradient is no combination of samples'."""

        class Twice(Loop):
            def backward(self, batch):
                super().backward(batch)
                super().backward(batch)

        self.run("2 backward passes for 1 batches", kind=Twice)

    def test_no_gradient(self):
        class Still(Loop):
            def backward(self, batch):
                pass

        self.run("no gradient was seen", kind=Still)

    def test_hooks_of_the_script(self):
        model = nn.Linear(6, 4)
        model.weight.register_hook(lambda gradient: gradient.clamp(-0.01, 0.01))
        self.run("hooks of the script", model=model)

    def test_no_batch_of_the_size(self):
        class Short(Loop):
            def fetch(self, size=5):
                return super().fetch(size)

        self.run(f"no batch of {SAMPLES} samples came", kind=Short)

    def test_batches_of_a_kind_that_nobody_foresaw(self):
        loop = Loop(mean)
        batch = {"x": MappingProxyType({"y": loop.batch[0]})}
        assert loop.steps.substitute(batch, SAMPLES, loop.reader) is batch
        assert loop.steps.over
        loop.steps.close()
        assert loop.steps.result().reason.startswith("a batch cannot be cut: TypeError: ")

    def test_no_time(self):
        times = iter(range(0, 1000, 10))
        self.run(NO_TIME, time_limit_s=25.0, clock=lambda: float(next(times)))

    def test_frozen(self):
        model = nn.Linear(6, 4).requires_grad_(requires_grad=False)
        loop = Loop(mean, model)
        assert loop.steps.over
        assert loop.steps.result().reason == "no parameter that trains was found"
        loop.steps.close()

    def test_sparse_gradients(self):
        class Words(nn.Module):
            def __init__(self):
                super().__init__()
                self.table = nn.Embedding(9, 4, sparse=True)

            def forward(self, x):
                return self.table(x[:, 0].abs().long().clamp(max=8))

        model = Words()
        optimizer = torch.optim.SparseAdam(model.parameters(), lr=0.1)
        self.run("gradients are sparse", model=model, optimizer=optimizer)


def test_no_hook_is_left():
    from torch.nn.modules import module
    from torch.optim import optimizer

    def hooks():
        return (
            len(module._global_forward_hooks),
            len(module._global_forward_pre_hooks),
            len(optimizer._global_optimizer_pre_hooks),
            len(optimizer._global_optimizer_post_hooks),
        )

    before = hooks()
    loop = Loop(mean)
    assert hooks() != before
    loop.run()
    assert hooks() == before
    assert not any(parameter._backward_hooks for parameter in loop.model.parameters())
