"""Loops without an optimizer of torch's: the script writes its parameters after a backward pass."""

import pytest

from .test_steering import STEERED

OWN = ["the script's own update"]


@pytest.mark.parametrize(
    "update",
    [
        "p.data.add_(p.grad, alpha=-0.01)",
        "p.data = p.data - 0.01 * p.grad",
        "p.detach().sub_(0.01 * p.grad)",
        "with torch.no_grad(): p -= 0.01 * p.grad",
    ],
)
def test_a_script_that_writes_its_parameters_itself(run, update):
    code = (
        "def train(batch):\n"
        "    model.zero_grad()\n"
        "    nn.functional.mse_loss(model(batch[0]), batch[1]).backward()\n"
        "    for p in model.parameters():\n"
        f"        {update}\n"
        "for batch in DataLoader(data, batch_size=8): train(batch)"
    )
    assert run(code) == [STEERED, 100, 8, 1, 0, "cpu"]


def test_gradients_that_are_returned(run):
    code = (
        "w = torch.zeros(20, 1, requires_grad=True)\n"
        "b = torch.zeros(1, requires_grad=True)\n"
        "for x, y in DataLoader(data, batch_size=8):\n"
        "    loss = nn.functional.mse_loss(x @ w + b, y)\n"
        "    for p, g in zip((w, b), torch.autograd.grad(loss, (w, b))):\n"
        "        p.data.sub_(0.01 * g)"
    )
    assert run(code) == [STEERED, 100, 8, 1, 0, "cpu"]


@pytest.mark.parametrize(
    ("code", "micro_batches", "steps_per_batch", "trains"),
    [
        ("for n, batch in enumerate(it):\n gradient(batch)\n if n % 2: write()", 2, 1, OWN),
        ("for batch in it:\n for _ in range(3): gradient(batch), write()", 1, 3, OWN),
        # The gradient of a gradient is no pass of its own.
        (
            (
                "for x, y in it:\n"
                " x.requires_grad_(); out = model(x).square().mean()\n"
                " slope, = torch.autograd.grad(out, x, create_graph=True)\n"
                " (out + slope.square().mean()).backward(); write()"
            ),
            1,
            1,
            OWN,
        ),
        # Many passes inside a step, with other values each time: it is the optimizer's.
        (
            (
                "lbfgs = torch.optim.LBFGS(model.parameters())\n"
                "for batch in it: lbfgs.step(lambda: gradient(batch))"
            ),
            1,
            1,
            ["LBFGS"],
        ),
        ("for batch in it: gradient(batch), optimizer.step(), write()", 1, 1, ["SGD"]),
        (
            (
                "for n, batch in enumerate(it):\n gradient(batch)\n"
                " write() if n < 2 else optimizer.step()"
            ),
            1,
            1,
            ["SGD"],
        ),
    ],
    ids=["accumulates", "several", "penalty", "closure", "weights decay", "changes"],
)
def test_cycles_without_an_optimizer(run, code, micro_batches, steps_per_batch, trains):
    code = (
        "def gradient(batch):\n"
        "    model.zero_grad()\n"
        "    loss = nn.functional.mse_loss(model(batch[0]), batch[1])\n"
        "    loss.backward()\n"
        "    return loss\n"
        "def write():\n"
        "    for p in model.parameters(): p.data.mul_(0.9)\n"
        "def found(loop):\n"
        "    seen = loop.discovery\n"
        "    names = [each.name for each in seen.optimizers if each.trains]\n"
        "    told = [seen.micro_batches, seen.steps_per_batch, names]\n"
        "    print(json.dumps(told), flush=True)\n"
        "    os._exit(0)\n"
        "listener.found = found\n"
        f"it = iter(DataLoader(data, batch_size=4))\n{code}"
    )
    assert run(code) == [micro_batches, steps_per_batch, trains]


def test_gradients_that_nothing_is_done_with(run):
    """The inputs change from pass to pass, the parameters do not."""
    code = (
        "while True:\n"
        " for x, y in DataLoader(data, batch_size=50):\n"
        "  x.requires_grad_(); model(x).sum().backward(); x.data.add_(x.grad)"
    )
    reason, _ = run(code)
    assert "no optimizer made a step" in reason
