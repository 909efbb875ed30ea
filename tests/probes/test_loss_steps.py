"""The steps that show how a loss reduces a batch, in loops of many kinds."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, normalize

from .loss_loop import SAMPLES, Loop, mean, total


def over_a_constant(model, x, y):
    return total(model, x, y) / SAMPLES


def weighed(model, x, y):
    return cross_entropy(model(x), y, weight=torch.tensor([1.0, 2.0, 9.0, 0.5]))


def infonce(model, x, _):
    left, right = (normalize(model(view), dim=1) for view in (x, x.sin()))
    return cross_entropy(left @ right.T / 0.1, torch.arange(len(x)))


def two_views(model, x, _):
    """SimCLR's: both views in one batch, each sample against all others."""
    z = normalize(model(torch.cat((x + 0.1, x - 0.1))), dim=1)
    num = len(x)
    alike = (z @ z.T / 0.2).masked_fill(torch.eye(2 * num, dtype=torch.bool), -1e9)
    pairs = torch.cat((torch.arange(num) + num, torch.arange(num)))
    return cross_entropy(alike, pairs)


def root(model, x, y):
    """No mean over samples, but near enough: a short batch weighs as under a mean."""
    return (model(x) - y[:, None]).square().mean().sqrt()


def changes_its_batch(model, x, y):
    return cross_entropy(model(x.mul_(0.5).add_(1)), y)


@pytest.mark.parametrize(
    ("loss", "reduction"),
    [
        (mean, "mean"),
        (weighed, "mean"),
        (root, "mean"),
        (changes_its_batch, "mean"),
        (total, "sum"),
        (over_a_constant, "sum"),
        (infonce, "contrastive"),
        (two_views, "contrastive"),
    ],
)
def test_losses(loss, reduction):
    check = Loop(loss).run()
    assert check.reduction == reduction, check
    assert (check.num_samples, check.reason) == (SAMPLES, "")


@pytest.mark.parametrize("loss", [mean, total])
@pytest.mark.parametrize("kind", [lambda: nn.BatchNorm1d(16), nn.Dropout], ids=["norm", "dropout"])
def test_layers_that_are_calmed(loss, kind):
    """Each is in training mode all the time for the script, and nothing in it changes."""
    layer = kind()  # here: a layer that outlives its test is seen by others
    before = copy.deepcopy(layer.state_dict())
    loop = Loop(loss, nn.Sequential(nn.Linear(6, 16), layer, nn.Tanh(), nn.Linear(16, 4)))
    assert loop.run().reduction == {mean: "mean", total: "sum"}[loss]
    assert layer.training
    assert str(layer.state_dict()) == str(before)
    assert not layer._forward_pre_hooks
    assert not layer._forward_hooks


class OwnNorm(nn.Module):
    def forward(self, x):
        return (x - x.mean(0)) / (x.std(0) + 0.1)


def test_a_norm_of_the_scripts_own():
    model = nn.Sequential(nn.Linear(6, 16), OwnNorm(), nn.Tanh(), nn.Linear(16, 4))
    check = Loop(mean, model).run()
    assert check.reduction is None
    assert "it mixes samples" in check.reason


@pytest.mark.parametrize(
    "make",
    [
        lambda parameters: torch.optim.SGD(parameters, lr=1.0, momentum=0.9, weight_decay=0.1),
        lambda parameters: torch.optim.AdamW(parameters, lr=1.0, weight_decay=0.1),
        lambda parameters: torch.optim.Adam(parameters, lr=torch.tensor(1.0), foreach=False),
        lambda parameters: torch.optim.Adafactor(parameters, lr=1.0),
        lambda parameters: torch.optim.RMSprop(parameters, lr=1.0),
    ],
)
def test_nothing_is_learnt(make):
    model = nn.Linear(6, 4)
    loop = Loop(total, model, optimizer=make(model.parameters()))
    before = copy.deepcopy(model.state_dict())
    rate = loop.optimizer.param_groups[0]["lr"]
    assert loop.run().reduction == "sum"
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert loop.optimizer.param_groups[0]["lr"] is rate
    loop.step()  # from here on it learns again
    assert not torch.equal(before["weight"], model.weight)


class TwiceHooked(torch.optim.SGD):
    """Both step methods have the hooks."""

    def step(self, closure=None):
        loss = super().step(closure)
        with torch.no_grad():
            for group in self.param_groups:
                for param in group["params"]:
                    param.sub_(group["lr"])
        return loss


def test_an_optimizer_above_another():
    model = nn.Linear(6, 4)
    before = copy.deepcopy(model.state_dict())
    loop = Loop(total, model, optimizer=TwiceHooked(model.parameters(), lr=1.0))
    assert loop.run().reduction == "sum"
    assert torch.equal(before["weight"], model.weight)
    assert loop.optimizer.param_groups[0]["lr"] == 1.0


def test_clipped_gradients():
    """They are read before that."""

    class Clipped(Loop):
        def backward(self, batch):
            super().backward(batch)
            nn.utils.clip_grad_norm_(self.model.parameters(), 1e-3)

    assert Clipped(total).run().reduction == "sum"
    assert Clipped(mean).run().reduction == "mean"


def test_a_scaler():
    class Scaled(Loop):
        scaler = torch.amp.GradScaler("cpu")

        def step(self):
            self.optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16):
                loss = self.loss(self.model, *self.fetch())
            self.scaler.scale(loss).backward()
            self.scaler.step(self.optimizer)
            self.scaler.update()

    assert Scaled(total).run().reduction == "sum"
    assert Scaled(mean).run().reduction == "mean"


def test_micro_batches():
    class Accumulating(Loop):
        def step(self):
            for _ in range(3):
                self.backward(self.fetch())
            self.optimizer.step()
            self.optimizer.zero_grad()

    assert Accumulating(total).run().reduction == "sum"
    assert Accumulating(infonce).run().reduction == "contrastive"


def test_a_closure():
    """As Lightning's optimizers get it: the backward pass is inside of the step."""

    class Closing(Loop):
        def step(self):
            batch = self.fetch()

            def closure():
                self.optimizer.zero_grad()
                loss = self.loss(self.model, *batch)
                loss.backward()
                return loss

            self.optimizer.step(closure)

    loop = Closing(total)
    before = copy.deepcopy(loop.model.state_dict())
    assert loop.run().reduction == "sum"
    assert all(torch.equal(before[name], value) for name, value in loop.model.state_dict().items())


@pytest.mark.parametrize("loss", [mean, total, infonce])
def test_a_batch_fetched_ahead(loss):
    """Each step is on the batch that was fetched before the last."""

    class Ahead(Loop):
        waiting = (torch.randn(5, 6), torch.randint(0, 4, (5,)))

        def step(self):
            self.optimizer.zero_grad()
            batch, self.waiting = self.waiting, self.fetch()
            self.backward(batch)
            self.optimizer.step()

    expected = {mean: "mean", total: "sum", infonce: "contrastive"}[loss]
    assert Ahead(loss).run().reduction == expected


def test_batches_of_another_size_come_first():
    loop = Loop(mean)
    for _ in range(2):
        assert len(loop.fetch(5)[0]) == 5
        loop.steps.boundary()
    assert loop.steps.num_steps == 0
    assert loop.run().reduction == "mean"
