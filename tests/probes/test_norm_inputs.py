"""What the normalisation layers of a running model see, and that the look leaves nothing behind."""

import copy
import gc
import pickle
import sys

import pytest
import torch
from batchadvisor.probes.loader.norm_inputs import NORMS_NOT_SEEN, UNEVEN, NormInputs
from torch import nn

from ..end_to_end.preloaded import run_code


@pytest.fixture(autouse=True)
def _alone():
    """Layers of other tests, and what they compiled, are gone; those of this one afterwards."""
    if "torch._dynamo" in sys.modules:
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()  # counts of this process, which reset leaves alone
    gc.collect()
    yield
    gc.collect()


def look(model, *inputs, batch_size):
    """The layers and values of a model after one step on `inputs`."""
    return look_at(lambda: [model(each) for each in inputs], model, batch_size)


def look_at(step, model, batch_size):
    """The layers and values after a step of what the optimizer of `model` trains."""
    norms = NormInputs()
    norms.watch()
    assert norms.watched
    step()
    result = norms.layers(list(nn.Module.parameters(model)), batch_size)
    for module in nn.Module.modules(model):
        assert not module._forward_pre_hooks
        assert not module._forward_pre_hooks_with_kwargs
    return result


def pooled():
    """BatchNorm over maps of 6x6, and over one value behind the pooling."""
    return nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(4, 5), nn.BatchNorm1d(5),
    )  # fmt: skip


class TestValues:
    def test_maps(self):
        model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
        counts, reason = look(model, torch.randn(2, 3, 8, 8), batch_size=2)
        assert (counts.batch_norm, counts.batch_norm_values, reason) == (1, 36, "")
        model(torch.randn(1, 3, 8, 8))  # as the number says, one sample is no error

    def test_the_fewest_count(self):
        model = pooled()
        counts, _ = look(model, torch.randn(2, 3, 8, 8), batch_size=2)
        assert (counts.batch_norm, counts.batch_norm_values) == (2, 1)
        with pytest.raises(ValueError, match="more than 1 value per channel"):
            model(torch.randn(1, 3, 8, 8))

    @pytest.mark.parametrize(
        ("make", "shape", "batch_size", "values"),
        [
            (lambda: nn.GroupNorm(2, 4), (2, 4, 3, 5), 2, (None, 30, None)),
            (lambda: nn.InstanceNorm2d(4), (2, 4, 3, 5), 2, (None, None, 15)),
            (lambda: nn.GroupNorm(4, 4), (2, 4), 2, (None, 1, None)),
            # Without a batch dimension.
            (lambda: nn.InstanceNorm1d(4), (4, 7), 8, (None, None, 7)),
            # Two views of each image in one batch: one sample still gives two values.
            (lambda: nn.BatchNorm1d(4), (16, 4), 8, (2, None, None)),
            # DataParallel hands each replica a chunk; what a sample gives stays the same.
            (lambda: nn.BatchNorm1d(4), (3, 4), 8, (1, None, None)),
        ],
    )
    def test_other_layers(self, make, shape, batch_size, values):
        counts, _ = look(make(), torch.randn(shape), batch_size=batch_size)
        seen = counts.batch_norm_values, counts.group_norm_values, counts.instance_norm_values
        assert seen == values

    @pytest.mark.parametrize(("kind", "sizes"), [(nn.BatchNorm1d, (4,)), (nn.GroupNorm, (4, 4))])
    def test_different_rows_of_a_sample(self, kind, sizes):
        """The nodes of eight graphs: 83 of them are no number of values that each graph gives."""
        counts, reason = look(kind(*sizes), torch.randn(80, 4), torch.randn(83, 4), batch_size=8)
        assert (counts.batch_norm_values, counts.group_norm_values, reason) == (None, None, UNEVEN)

    def test_different_rows_and_one_value_behind_them(self):
        """Each graph gives the layer behind the pooling one value, whatever its nodes."""
        nodes, pooled = nn.BatchNorm1d(4), nn.BatchNorm1d(4)

        def step():
            nodes(torch.randn(83, 4))
            pooled(torch.randn(8, 4))

        counts, reason = look_at(step, nodes, 8)
        assert (counts.batch_norm_values, reason) == (1, "")

    def test_a_layer_in_eval_mode_sees_nothing(self):
        counts, reason = look(nn.BatchNorm1d(4).eval(), torch.randn(3, 4), batch_size=3)
        assert (counts.batch_norm, counts.batch_norm_values, reason) == (0, None, "")


class TestWhichModel:
    def test_the_optimizers_and_what_ran(self):
        """A model that neither trains nor runs does not count; a frozen one that runs does."""
        other, frozen, model = (nn.BatchNorm1d(4) for _ in range(3))
        counts, _ = look_at(lambda: model(frozen(torch.randn(3, 4))), model, 3)
        assert counts.batch_norm == 2
        assert not other._forward_pre_hooks

    def test_a_branch_that_did_not_run(self):
        model = nn.Sequential(nn.BatchNorm1d(4), nn.BatchNorm1d(4))
        counts, _ = look_at(lambda: model[0](torch.randn(3, 4)), model, 3)
        assert counts.batch_norm == 2

    def test_no_layers(self):
        counts, reason = look(nn.Linear(2, 2), torch.randn(3, 2), batch_size=3)
        assert (counts.batch_norm, reason) == (0, "")

    def test_a_script_that_names_its_method_modules(self):
        class Odd(nn.Module):
            modules = parameters = None

            def __init__(self):
                super().__init__()
                self.norm = nn.BatchNorm1d(4)

        model = Odd()
        counts, _ = look_at(lambda: model.norm(torch.randn(3, 4)), model, 3)
        assert counts.batch_norm_values == 1


class TestNothingIsLeft:
    def test_copies_of_a_watched_model(self):
        """What a script copies or pickles meanwhile works and remembers nothing."""
        model = pooled()

        def run_copies():
            for clone in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
                clone(torch.randn(2, 3, 8, 8))

        counts, reason = look_at(run_copies, model, 2)
        assert (counts.batch_norm_values, reason) == (None, NORMS_NOT_SEEN)

    def test_the_output_is_the_same(self):
        model, batch = pooled(), torch.randn(2, 3, 8, 8)
        twin = copy.deepcopy(model)
        look(model, batch, batch_size=2)
        twin(batch)
        for name, value in model.state_dict().items():
            assert torch.equal(value, twin.state_dict()[name])
        assert torch.equal(model(batch), twin(batch))


COMPILED_MODELS = """
import sys, torch
from torch import nn
from torch._dynamo.utils import counters
from batchadvisor.probes.loader.norm_inputs import NO_LOOK_COMPILED, NormInputs

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(4)

    def forward(self, batch):
        return self.norm(batch)

how, batch = sys.argv[1], torch.randn(3, 4)
model = nn.Sequential(nn.BatchNorm1d(4)) if how == "in place, torch's own" else Net()
run = model
if how.startswith("in place"):
    model.compile(backend="eager")
elif how == "module":
    run = torch.compile(model, backend="eager")
else:
    run = torch.compile(lambda batch: model(batch), backend="eager")
run(batch)
frames = counters["frames"]["total"]
assert frames or "own" in how
norms = NormInputs()
norms.watch()
run(batch)
assert not model._forward_pre_hooks
counts, reason = norms.layers(model.parameters(), 3)
values = counts.batch_norm_values
assert (counts.batch_norm, values, reason) == (1, None, NO_LOOK_COMPILED), (counts, reason)
run(batch)
assert counters["frames"]["total"] == frames
print("as it was")
"""


class TestWrapped:
    @pytest.mark.slow
    @pytest.mark.parametrize("how", ["module", "in place", "in place, torch's own", "function"])
    def test_compiled(self, how, tmp_path):
        """No hook is put in, so nothing is compiled again; the reason says so."""
        code, said, errors = run_code(COMPILED_MODELS, how, folder=tmp_path)
        assert (code, said) == (0, "as it was\n"), errors

    def test_ddp(self, tmp_path):
        store = torch.distributed.FileStore(str(tmp_path / "store"), 1)
        torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
        try:
            model = nn.parallel.DistributedDataParallel(pooled())
            counts, _ = look(model, torch.randn(2, 3, 8, 8), batch_size=2)
            assert (counts.batch_norm, counts.batch_norm_values) == (2, 1)
        finally:
            torch.distributed.destroy_process_group()
