"""Loops without an optimizer of torch's: the script writes its parameters after a backward pass."""

import pytest

from .test_steering import FOUND

OWN = ["the script's own update"]
WRITES = [
    "p.data.add_(p.grad, alpha=-0.01)",
    "p.data = p.data - 0.01 * p.grad",
    "p.detach().sub_(0.01 * p.grad)",
    "with torch.no_grad(): p -= 0.01 * p.grad",
]
TRAIN = """
def train(batch):
    model.zero_grad()
    nn.functional.mse_loss(model(batch[0]), batch[1]).backward()
    for p in model.parameters():
        {}
for batch in DataLoader(data, batch_size=8): train(batch)
"""
RETURNED = """
w = torch.zeros(20, 1, requires_grad=True)
b = torch.zeros(1, requires_grad=True)
for x, y in DataLoader(data, batch_size=8):
    loss = nn.functional.mse_loss(x @ w + b, y)
    for p, g in zip((w, b), torch.autograd.grad(loss, (w, b))):
        p.data.sub_(0.01 * g)
"""


@pytest.mark.parametrize(
    "code",
    [*map(TRAIN.format, WRITES), RETURNED],
    ids=["in place", "new data", "detached", "without gradients", "returned gradients"],
)
def test_a_script_that_writes_its_parameters_itself(run, code):
    assert run(code) == FOUND


CYCLES = {
    "accumulates": (
        "for n, batch in enumerate(it):\n gradient(batch)\n if n % 2: write()",
        [2, 1, 1, OWN],
    ),
    "several": ("for batch in it:\n for _ in range(3): gradient(batch), write()", [1, 3, 1, OWN]),
    # The gradient of a gradient is no pass of its own.
    "penalty": (
        """
for x, y in it:
    x.requires_grad_(); out = model(x).square().mean()
    slope, = torch.autograd.grad(out, x, create_graph=True)
    (out + slope.square().mean()).backward(); write()
""",
        [1, 1, 1, OWN],
    ),
    # Many passes inside a step, with other values each time: it is the optimizer's.
    "closure": (
        """
lbfgs = torch.optim.LBFGS(model.parameters())
for batch in it: lbfgs.step(lambda: gradient(batch))
""",
        [1, 1, 1, ["LBFGS"]],
    ),
    "weights decay": (
        "for batch in it: gradient(batch), optimizer.step(), write()",
        [1, 1, 1, ["SGD"]],
    ),
    "changes": (
        """
for n, batch in enumerate(it):
    gradient(batch)
    write() if n < 2 else optimizer.step()
""",
        [1, 1, 1, ["SGD"]],
    ),
}


@pytest.mark.parametrize("cycle", CYCLES)
def test_cycles_without_an_optimizer(run, cycle):
    code, expected = CYCLES[cycle]
    code = (
        "def gradient(batch):\n"
        "    model.zero_grad()\n"
        "    loss = nn.functional.mse_loss(model(batch[0]), batch[1])\n"
        "    loss.backward()\n"
        "    return loss\n"
        "def write():\n"
        "    for p in model.parameters(): p.data.mul_(0.9)\n"
        "listener.found = tell_rhythm\n"
        f"it = iter(DataLoader(data, batch_size=4))\n{code}"
    )
    assert run(code) == expected


def test_gradients_that_nothing_is_done_with(run):
    """The inputs change from pass to pass, the parameters do not."""
    code = (
        "while True:\n"
        " for x, y in DataLoader(data, batch_size=50):\n"
        "  x.requires_grad_(); model(x).sum().backward(); x.data.add_(x.grad)"
    )
    reason, _ = run(code)
    assert "no optimizer made a step" in reason
