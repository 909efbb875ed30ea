"""Steps on fake tensors, compared with the storages of real ones."""

import sys
from functools import partial
from itertools import product

import pytest
import torch
from batchadvisor.features.estimate.fit.forecast import Between
from batchadvisor.probes.fake_step.fake_steps import FakeSteps
from batchadvisor.probes.fake_step.model_tree import beside
from batchadvisor.records import Variant
from torch import nn
from torch.nn import functional

from .small_models import MODELS, OPTIMIZERS, drive, estimated, faked, made, measured, trained

QUICK = {
    # Every model once; how autocast and the optimizer go together, with one of them.
    ("resnet", "sgd", False),
    ("gpt", "sgd", False),
    ("gpt", "sgd", True),
    ("gpt", "adamw", False),
    ("gpt", "adamw", True),
    ("dropout", "adamw", False),
    ("lstm", "adamw", False),
    ("unet", "adamw", False),
    ("checkpointed", "sgd", False),
    ("lora", "adamw", True),
}
CASES = [
    pytest.param(*case, marks=[] if case in QUICK else [pytest.mark.slow])
    for case in product(MODELS, OPTIMIZERS, (False, True))
]


@pytest.mark.parametrize(("name", "optimizer", "autocast"), CASES)
def test_fake_steps_say_what_a_real_step_takes(name, optimizer, autocast):
    was = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(was and name != "lstm")
    try:
        small, large = (estimated(name, optimizer, autocast, size) for size in (64, 256))
        real = {size: measured(name, optimizer, autocast, size) for size in (160, 256)}
    finally:
        torch._C._set_mkldnn_enabled(was)
    assert large.peak_bytes == pytest.approx(real[256], rel=0.02)
    between = Between(small, large, (), ())
    predicted = between.fixed_bytes + between.sample_bytes * 160
    assert predicted == pytest.approx(real[160], rel=0.02)


@pytest.mark.parametrize("optimizer", ["adamw", pytest.param("sgd", marks=pytest.mark.slow)])
def test_checkpointed_blocks_take_what_they_take_where_the_script_checkpoints_them(optimizer):
    _, chosen, step, batch = made("gpt", optimizer, False)
    variant = Variant(checkpointed=True)
    steps = faked(step, batch(256), chosen, variant)
    assert steps.blocks == "2 TransformerEncoderLayer"
    real = measured("checkpointed", optimizer, False, 256)
    assert steps.trial(256).peak_bytes == pytest.approx(real, rel=0.02)
    assert real < 0.8 * measured("gpt", optimizer, False, 256)


def test_a_model_without_repeated_blocks_has_nothing_to_checkpoint():
    _, chosen, step, batch = made("unet", "sgd", False)
    assert faked(step, batch(8), chosen).blocks == ""


def test_the_line_of_a_large_activation_is_named():
    net = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 4))
    chosen = torch.optim.SGD(net.parameters(), lr=0.1)
    line = sys._getframe().f_lineno + 4

    def step(given):
        chosen.zero_grad()
        wide = (given[0].repeat(1, 1000) * net[0].weight.sum()).exp()
        (net(given[0]).sum() + wide.sum()).backward()
        chosen.step()

    trial = faked(step, (torch.ones(64, 8),), chosen).trial(64)
    wide = next(place for place in trial.places if place.role == "activations")
    assert wide.module == ""
    assert wide.line == f"fake_step/test_fake_step.py:{line}"
    assert wide.num_bytes == 2 * 64 * 8000 * 4  # what came in and what came out of exp
    behind = next(place for place in trial.places if place.role == "backward")
    assert behind.line == f"fake_step/test_fake_step.py:{line + 1}"


def test_a_closure_of_the_optimizer_is_no_update():
    """As Lightning trains: the optimizer calls the forward and the backward pass."""
    model, chosen, _, batch = made("gpt", "adamw", False)

    def step(given):
        def closure():
            chosen.zero_grad()
            loss = functional.cross_entropy(model(given[0]), given[1])
            loss.backward()
            return loss

        chosen.step(closure)

    plain = estimated("gpt", "adamw", False, 64)
    trial = faked(step, batch(64), chosen).trial(64)
    assert trial.peak_bytes == pytest.approx(plain.peak_bytes, rel=0.02)
    for role in ("activations", "optimizer's state"):
        assert trial.at_peak[role] == pytest.approx(plain.at_peak[role], rel=0.05)
    assert "optimizer's temporaries" not in trial.at_peak


def test_modules_that_a_step_does_not_touch_live_beside_it():
    """An average of the weights that is updated once an epoch takes memory in every step."""
    net, average = nn.Linear(256, 256), nn.Linear(256, 256)
    average.register_buffer("sparse", torch.eye(2).to_sparse())  # has no single storage
    away, lazy = nn.Linear(256, 256, device="meta"), nn.LazyLinear(256)
    chosen = torch.optim.SGD(net.parameters(), lr=0.1)
    found = {id(tensor) for tensor in beside(trained(chosen))}
    assert {id(tensor) for tensor in average.parameters()} <= found
    others = (*net.parameters(), *away.parameters(), *lazy.parameters(), average.sparse)
    assert found.isdisjoint(map(id, others))

    def step(given, *, touched):
        chosen.zero_grad()
        net(given).sum().backward()
        chosen.step()
        if touched:
            with torch.no_grad():
                average.weight.mul_(0.9).add_(net.weight, alpha=0.1)

    peaks = []
    for lives, touched in (((), False), (average.parameters(), False), ((average.weight,), True)):
        steps = FakeSteps(trained(chosen), beside=lives)
        steps.begin(Variant())
        drive(steps, partial(step, touched=touched), torch.ones(4, 256))
        peaks.append(steps.trial(4).peak_bytes)
        steps.close()
    weight, bias = 4 * 256 * 256, 4 * 256
    assert peaks[1] - peaks[0] == weight + bias
    assert peaks[2] - peaks[0] == weight  # once


@pytest.mark.parametrize(
    "kept",
    [
        lambda net: {name: each.clone() for name, each in net.state_dict().items()},
        lambda net: [each.detach().clone() for each in net.parameters()],
    ],
    ids=["by name", "in their order"],
)
def test_an_average_in_a_dict_or_a_list_lives_beside_a_step(kept):
    """Without a module; a batch has other shapes."""
    net = nn.Sequential(nn.Linear(8, 4), nn.BatchNorm1d(4))
    average, batch = kept(net), [torch.ones(4, 8), torch.ones(4)]
    chosen = torch.optim.SGD(net.parameters(), lr=0.1)
    found = {id(tensor) for tensor in beside(trained(chosen))}
    tensors = average.values() if isinstance(average, dict) else average
    assert set(map(id, tensors)) <= found
    assert found.isdisjoint(map(id, (*net.parameters(), *batch)))


def test_parameters_keep_their_values():
    model, chosen, step, batch = made("resnet", "adamw", False)
    step(batch(4))
    was = {key: value.clone() for key, value in model.state_dict().items()}
    faked(step, batch(4), chosen)
    same = [key for key, value in model.state_dict().items() if torch.equal(value, was[key])]
    counters = {key for key in was if key.endswith("num_batches_tracked")}
    assert set(same) == set(was) - counters


def test_a_batch_is_fetched_with_real_tensors_and_the_backward_pass_has_no_thread():
    """A GPU's has one of its own, and torch's fake mode is not made for two threads."""
    _, chosen, step, batch = made("gpt", "sgd", False)
    steps = FakeSteps(trained(chosen))
    steps.begin(Variant())
    given = batch(4)
    was = torch.autograd.is_multithreading_enabled()
    steps.enter(given)
    assert not torch.autograd.is_multithreading_enabled()
    step(given)
    with steps.aside():
        assert float(torch.full((2,), 3.0).sum()) == 6
    step(given)
    steps.leave()
    assert torch.autograd.is_multithreading_enabled() is was
    assert float(torch.ones(2).sum()) == 2
    steps.close()


def test_lengths_and_masks_of_a_batch_keep_their_values():
    """A shape that follows from the batch's own whole numbers is the real one."""
    _, chosen, step, batch = made("gpt", "sgd", False)
    seen = []

    def cuts(given):
        inputs, target = given
        longest = int((inputs > 0).sum(1).max())
        seen.append(longest)
        step((inputs[:, :longest], target))

    inputs, target = batch(8)
    inputs[:, 5:] = 0
    inputs[:, :5] = 1
    faked(cuts, (inputs, target), chosen)
    assert seen == [5, 5]


@pytest.mark.parametrize(
    ("picks", "words"),
    [
        (lambda x: x[x.float().exp().sum(1) > 3], "nonzero|index"),
        (lambda x: x[:, : int(x.float().argsort().max()) + 1], "a whole number that"),
    ],
    ids=["by a mask", "by a whole number"],
)
def test_a_shape_that_depends_on_values_gives_no_number(picks, words):
    _, chosen, step, batch = made("gpt", "sgd", False)
    with pytest.raises(Exception, match=words):
        faked(lambda given: step((picks(given[0]), given[1])), batch(8), chosen)
    # Nothing of the mode is left behind.
    assert float(torch.ones(2).sum()) == 2


def heard(question):
    """What a step reads that asks this of the output of a model and of its labels."""
    answers = []

    def step(given):
        out = net(given[0])
        loss = functional.cross_entropy(out, given[1])
        chosen.zero_grad()
        loss.backward()
        chosen.step()
        answers.append(question(out, given[1], loss))

    net = nn.Linear(8, 5)
    chosen = torch.optim.SGD(net.parameters(), lr=0.1)
    faked(step, (torch.randn(4, 8), torch.randint(5, (4,))), chosen)
    return answers[-1]


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        (lambda _out, _y, loss: f"{loss:.3f}", "1.000"),
        (lambda _out, _y, loss: f"{loss.detach():8.2e}".strip(), "1.00e+00"),
        (lambda _out, _y, loss: float(loss.detach().cpu().numpy()), 1.0),
        (lambda out, _y, _loss: out.detach().cpu().numpy().shape, (4, 5)),
        (lambda out, _y, _loss: out.detach().softmax(1).numpy().mean(), 1.0),
        (lambda out, y, _loss: (out.argmax(1).numpy() == y.numpy()).shape, (4,)),
        (lambda out, _y, _loss: str(out.max(1)[1].cpu().numpy().dtype), "int64"),
        (lambda out, _y, _loss: out.topk(2)[1].t().numpy().shape, (2, 4)),
        (lambda out, _y, _loss: bool(out.isnan().numpy().any()), False),
        (lambda out, _y, _loss: len(out.tolist()), 4),
        # A step that looks for a broken loss goes on.
        (lambda out, _y, _loss: bool(torch.isnan(out).any()), False),
        (lambda out, _y, _loss: bool(torch.isinf(out).any()), False),
        (lambda out, _y, _loss: bool(torch.isfinite(out).all()), True),
        (lambda _out, _y, loss: bool(torch.isnan(loss)), False),
        (lambda _out, _y, loss: bool(torch.isinf(loss)), False),
        (lambda _out, _y, loss: bool(torch.isfinite(loss)), True),
    ],
)
def test_what_a_step_reads_has_the_shape_of_what_it_would_be(question, answer):
    assert heard(question) == answer


@pytest.mark.parametrize(
    ("question", "words"),
    [
        (lambda out, _y, _loss: out.long().numpy(), "a whole number that"),
        (lambda out, _y, _loss: out.numpy(), "requires grad"),
        (lambda out, _y, _loss: f"{out:.2f}", "unsupported format string"),
    ],
)
def test_what_torch_refuses_is_refused(question, words):
    with pytest.raises((RuntimeError, TypeError, ValueError, NotImplementedError), match=words):
        heard(question)


def test_a_scaled_step_is_made():
    model, chosen, _, batch = made("resnet", "sgd", False)
    scaler = torch.amp.GradScaler("cpu")
    made_steps = []
    chosen.register_step_post_hook(lambda *_: made_steps.append(1))

    def scaled(given):
        chosen.zero_grad()
        scaler.scale(functional.cross_entropy(model(given[0]), given[1])).backward()
        scaler.step(chosen)
        scaler.update()

    assert faked(scaled, batch(4), chosen).trial(4).gradient_bytes > 0
    assert len(made_steps) == 2


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch has no oneDNN here")
def test_an_operation_of_unknown_memory_gives_no_number():
    _, chosen, step, batch = made("lstm", "sgd", False)
    with pytest.raises(NotImplementedError, match="nothing says how much memory mkldnn_rnn_layer"):
        faked(step, batch(8), chosen)


def test_the_largest_tensors_of_each_use_and_their_lines():
    net = nn.Sequential(nn.Conv1d(4, 16, 3), nn.Flatten())
    chosen = torch.optim.SGD(net.parameters(), lr=0.1)

    def step(batch):
        chosen.zero_grad()
        out = net(batch).view(len(batch), 4, 8, 12)
        heads = functional.scaled_dot_product_attention(out, out, out)
        functional.cross_entropy(heads.flatten(1), torch.zeros(len(batch)).long()).backward()
        chosen.step()

    trial = faked(step, torch.randn(6, 4, 26), chosen).trial(6)
    found = {each.use: each for each in trial.largest}
    assert found["convolution"].shape == (6, 16, 24)
    assert found["loss"].shape == (6, 384)
    assert "test_fake_step.py:" in found["loss"].line
