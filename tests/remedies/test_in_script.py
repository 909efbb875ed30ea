"""The hooks inside the script's process, on real loaders, optimizers and steps."""

import functools
import inspect
import weakref

import pytest
import torch
from batchadvisor.features.remedies import catalogue
from batchadvisor.features.remedies.in_script import (
    calls,
    constructions,
    drained,
    in_force,
    numbers,
    ordered,
    used,
)
from batchadvisor.features.remedies.in_script.constructions import with_loader_options
from batchadvisor.features.remedies.settings import Drain, Joining, Settings
from batchadvisor.records import SourceLine
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, IterableDataset, TensorDataset, get_worker_info

DATA = TensorDataset(torch.arange(40.0).reshape(20, 2))


class TestLoaderOptions:
    def made(self, settings, *args, **kwargs):
        signature = inspect.signature(DataLoader.__init__)
        return with_loader_options(signature, object(), args, kwargs, settings)

    def test_those_that_are_tried_stand_for_the_scripts_own(self):
        tried = {"num_workers": 2, "persistent_workers": True}
        given = self.made(Settings(**tried), DATA, 4, num_workers=1)
        assert given == {"dataset": DATA, "batch_size": 4, **tried}
        assert self.made(Settings(), DATA, shuffle=True) == {"dataset": DATA, "shuffle": True}

    def test_without_workers_nothing_is_kept(self):
        given = self.made(Settings(num_workers=0), DATA, num_workers=2, persistent_workers=True)
        assert "persistent_workers" not in given
        DataLoader(**given)


class Stream(IterableDataset):
    """Numbers in order; its workers may have a part each."""

    def __init__(self, num, share):
        self.num, self.share = num, share

    def __iter__(self):
        worker = get_worker_info() if self.share else None
        first, step = (0, 1) if worker is None else (worker.id, worker.num_workers)
        return iter(torch.arange(float(self.num)).reshape(-1, 1)[first::step])


class TestLoaders:
    """A function of the script makes them all, so that they share a line."""

    @pytest.mark.parametrize(("steered", "gone", "found"), [(0, (), 0), (1, (), 1), (0, (0,), 2)])
    def test_the_one_that_is_steered_is_looked_at(self, monkeypatch, steered, gone, found):
        monkeypatch.setattr(DataLoader, "__init__", DataLoader.__init__)
        place = SourceLine(file="train.py", line=3)
        monkeypatch.setattr(constructions, "user_call_site", lambda: place)
        made = constructions.Constructions(
            Joining(settings=Settings(), place=place, ordinal=steered)
        )
        made._on_loaders()
        loaders = {number: DataLoader(DATA) for number in range(3)}
        for number in gone:
            del loaders[number]
        assert made.loader is loaders[found]


class TestCheckpointing:
    """What counts is what a step does, and not which library holds torch's function for it."""

    def recomputes(self, forward):
        watched, layer = calls.Calls(), nn.Linear(2, 2)
        watched.install()
        try:
            forward(layer, torch.ones(1, 2, requires_grad=True)).sum().backward()
        finally:
            watched.stop()
        return watched.recomputes

    @pytest.mark.parametrize("reentrant", [True, False])
    def test_a_block_that_is_computed_again_is_seen(self, reentrant):
        assert self.recomputes(lambda *x: checkpoint(*x, use_reentrant=reentrant))
        assert not self.recomputes(lambda layer, x: layer(x))


class TestOptimizers:
    def test_the_implementation_is_taken(self, monkeypatch):
        monkeypatch.setattr(torch.optim.SGD, "__init__", torch.optim.SGD.__init__)
        constructions.take_implementation(torch.optim.SGD, "fused")
        layer = nn.Linear(2, 2)
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.1, foreach=True)
        assert used.implementation_of(optimizer) == "fused"

    @pytest.mark.parametrize(
        ("options", "kind"),
        [({}, "single"), ({"foreach": True}, "foreach"), ({"fused": True}, "fused")],
    )
    def test_what_an_optimizer_uses_is_seen(self, options, kind):
        optimizer = torch.optim.AdamW(nn.Linear(2, 2).parameters(), **options)
        assert used.implementation_of(optimizer) == kind

    def test_lines_that_make_optimizers_are_counted_once_each(self, monkeypatch):
        monkeypatch.setattr(torch.optim.Optimizer, "__init__", torch.optim.Optimizer.__init__)
        made = constructions.Constructions(Joining(settings=Settings(), place=None, ordinal=0))
        made._on_optimizers()
        layers = [nn.Linear(2, 2) for _ in range(2)]
        kept = [torch.optim.SGD(layer.parameters()) for layer in layers]
        assert len(made.optimizer_places) == 1
        kept.append(torch.optim.Adam(layers[0].parameters()))
        assert len(made.optimizer_places) == 2


class TestScaler:
    @pytest.fixture
    def scaled(self):
        """A layer, its optimizer and a scaler in force."""
        layer = nn.Linear(1, 1, bias=False)
        optimizer = torch.optim.SGD(layer.parameters(), lr=1.0)
        scaler = in_force.Scaler([weakref.ref(optimizer)])
        scaler.begin(torch.device("cpu"))
        return layer, optimizer, scaler

    def test_it_leaves_out_a_step_with_infinite_gradients_and_makes_others(self, scaled):
        layer, optimizer, scaler = scaled
        before = layer.weight.detach().clone()
        for gradient, moves in ((float("inf"), False), (65536.0, True)):
            layer.weight.grad = torch.full_like(layer.weight, gradient)
            scaler._scaler.scale(torch.zeros(1))
            optimizer.step()
            assert (layer.weight != before).any().item() is moves
        assert (scaler.num_steps, scaler.num_skipped()) == (2, 1)

    def test_who_clips_reads_true_gradients(self, scaled):
        layer, _, scaler = scaled
        layer.weight.grad = scaler._scaler.scale(torch.full((1, 1), 3.0))
        norm = scaler._clipping(nn.utils.clip_grad_norm_)(layer.parameters(), 100.0)
        assert norm.item() == pytest.approx(3)


class TestNumbers:
    def test_the_same_batch_has_the_same_digest(self):
        one, other = (
            {"x": torch.arange(6.0), "more": [torch.ones(2, dtype=torch.bfloat16)]}
            for _ in range(2)
        )
        assert numbers.digest_of(one) == numbers.digest_of(other)
        other["x"][3] = 7
        assert numbers.digest_of(one) != numbers.digest_of(other)

    def test_gradients_are_sampled_evenly(self, monkeypatch):
        layer = nn.Linear(10, 10)
        layer(torch.ones(1, 10)).sum().backward()
        whole = memoryview(numbers.sampled(list(layer.parameters()))).cast("f")
        assert len(whole) == 110
        monkeypatch.setattr(numbers, "SAMPLED_ELEMENTS", 11)
        few = memoryview(numbers.sampled(list(layer.parameters()))).cast("f")
        assert len(few) == 11


class Task(nn.Module):
    """A model in a class with a `to` of its own, and with a convolution of volumes."""

    def __init__(self):
        super().__init__()
        self.images, self.volumes = nn.Conv2d(3, 8, 3), nn.Conv3d(1, 1, 3)

    def to(self, device):
        raise TypeError(device)

    def forward(self, images):
        return self.images(images).mean() + self.volumes(images.unsqueeze(1)).mean()


def test_images_and_their_weights_take_another_layout_whatever_the_class():
    task, images = Task(), torch.randn(2, 3, 8, 8)
    task(images).backward()
    usual = task(images).item()
    in_force.take_channels_last(task)
    weight = task.images.weight
    for tensor in (weight, weight.grad, task.images(in_force.laid_out(images))):
        assert tensor.is_contiguous(memory_format=torch.channels_last)
        assert not tensor.is_contiguous()
    optimizer = torch.optim.SGD(task.parameters(), lr=0.1, momentum=0.9)
    assert task(images).item() == pytest.approx(usual, rel=1e-5)
    optimizer.step()
    assert task(images).item() < usual


@pytest.mark.parametrize(
    ("make", "by_hand"),
    [(Task, True), (lambda: nn.Conv3d(1, 1, 3), True), (lambda: nn.Conv2d(3, 8, 3), False)],
)
def test_the_lines_for_another_layout_are_those_that_work_on_the_class(make, by_hand):
    model = make()
    assert used.refuses_layout(model) == by_hand
    exec("\n".join(catalogue.LAYOUT_BY_HAND if by_hand else catalogue.LAYOUT), {
        "torch": torch, "model": model,
    })  # fmt: skip
    for weight in model.parameters():
        if weight.dim() == 4:
            assert weight.is_contiguous(memory_format=torch.channels_last)
    if by_hand:
        with pytest.raises((TypeError, RuntimeError)):
            exec("\n".join(catalogue.LAYOUT), {"torch": torch, "model": model})


class Lengths(torch.utils.data.Dataset):
    """Each tenth sample is long."""

    def __len__(self):
        return 200

    def __getitem__(self, index):
        return torch.ones(100 if index % 10 == 0 else 5)


class TestOrder:
    def test_what_grouping_saves(self):
        pad = functools.partial(nn.utils.rnn.pad_sequence, batch_first=True)
        factor, why = ordered.saved_by_order(DataLoader(Lengths(), 4, collate_fn=pad), 4)
        assert why == ""
        assert 2 < factor < 10

    @pytest.mark.parametrize(
        ("loader", "why"),
        [
            (DataLoader(DATA, 4), "one length"),
            (
                DataLoader(Lengths(), 4, collate_fn=lambda many: torch.ones(len(many), 100)),
                "padded",
            ),
            (DataLoader(Lengths(), 4, sampler=[1, 2, 3]), "sampler of its own"),
        ],
    )
    def test_where_there_is_nothing_to_group(self, loader, why):
        factor, said = ordered.saved_by_order(loader, 4)
        assert factor is None
        assert why in said

    def test_all_samples_come_once_and_like_lengths_meet(self):
        drawn = list(ordered.Grouped(Lengths(), 4))
        assert sorted(drawn) == list(range(200))
        batches = [drawn[at : at + 4] for at in range(0, 200, 4)]
        assert sum(any(i % 10 == 0 for i in batch) for batch in batches) <= 6


class TestDrained:
    def test_the_loader_alone_is_read(self):
        loader = DataLoader(DATA, batch_size=2)
        (found,) = drained.drained(loader, Drain(num_workers=(0,), batch_size=4, limit_s=0.01))
        assert found.samples_per_s > 0
        assert found.starts_s == ()

    def test_workers_that_persist_start_sooner(self):
        asked = Drain(num_workers=(1,), batch_size=4, limit_s=0.01, restarted=1)
        (found,) = drained.drained(DataLoader(DATA, batch_size=2, num_workers=1), asked)
        assert len(found.starts_s) == len(found.persistent_s) == drained.STARTS
        assert min(found.persistent_s) < max(found.starts_s)

    def test_a_data_set_that_raises_is_the_reason(self):
        class Broken(TensorDataset):
            def __getitem__(self, index):
                raise RuntimeError("no sample")

        asked = Drain(num_workers=(0,), batch_size=4, limit_s=0.01)
        (found,) = drained.drained(DataLoader(Broken(*DATA.tensors)), asked)
        assert found.samples_per_s is None
        assert found.reason == "RuntimeError: no sample"

    @pytest.mark.parametrize(
        ("share", "batches", "again"), [(False, 3, True), (True, 3, False), (False, 1, False)]
    )
    def test_a_stream_that_its_workers_do_not_share_out_gains_nothing_by_more(
        self, share, batches, again
    ):
        """Each sample would come as often as there are workers; one may give them all."""
        asked = Drain(num_workers=(0, 1, 2), batch_size=4, limit_s=0.01)
        found = drained.drained(DataLoader(Stream(4 * batches, share), batch_size=2), asked)
        assert [each.repeats for each in found] == [False, False, again]

    def test_hooks_are_back_after_it(self):
        before = DataLoader.__init__
        with drained.without_hooks():
            assert not hasattr(DataLoader.__init__, "__wrapped__")
        assert DataLoader.__init__ is before
