"""What may be tried of a script, in which order, and what its bound excludes."""

import ast
from math import inf

import msgspec
import pytest
from batchadvisor.features.remedies.catalogue import (
    ALL,
    EVERY_REMEDY,
    LEAST_GAIN,
    Known,
    candidates,
    together,
)
from batchadvisor.features.remedies.records import Ceiling
from batchadvisor.features.remedies.settings import Settings

from .known import A_SCRIPT


def known(**changes):
    fields = {name: changes.pop(name) for name in list(changes) if name in Known._fields}
    return Known(used=msgspec.structs.replace(A_SCRIPT, **changes), **fields)


def tried(of, *names):
    return [each for each in candidates(of, names or (ALL,)) if each.bound.factor >= LEAST_GAIN]


def named(name):
    return next(remedy for remedy in EVERY_REMEDY if remedy.name == name)


def ceilings(*rates):
    """What a loader gives with 0, 1, ... workers."""
    return tuple(
        Ceiling(num_workers=number, samples_per_s=rate) for number, rate in enumerate(rates)
    )


class TestBounds:
    @pytest.mark.parametrize(
        ("name", "facts", "factor"),
        [
            ("workers", {"input_share": 0.75, "samples_per_s": 100.0}, 4),
            ("fused", {"optimizer_share": 0.2}, 1.25),
            ("amp", {"input_share": 0.0}, inf),  # nothing bounds it
            ("amp", {"device": "cuda", "idle_share": 0.8}, 1.25),
        ],
    )
    def test_no_more_is_gained_than_the_part_that_a_remedy_shortens(self, name, facts, factor):
        assert candidates(known(**facts), (name,))[0].bound.factor == pytest.approx(factor)

    def test_what_cannot_gain_is_not_tried(self):
        of = known(input_share=0.001, samples_per_s=100.0)
        assert {each.remedy.name for each in tried(of)}.isdisjoint({"workers", "prefetch"})
        assert tried(known(optimizer_share=0.01), "fused", "foreach") == []
        of = known(input_share=0.99, samples_per_s=100.0)
        assert {each.remedy.group for each in tried(of)} == {"input"}

    def test_workers_gain_no_more_than_the_loader_gives(self):
        of = known(input_share=0.9, samples_per_s=100.0, ceilings=ceilings(100.0, 100.0, 150.0))
        bounds = {each.settings.num_workers: each.bound for each in candidates(of, ("workers",))}
        assert bounds[2].factor == pytest.approx(1.5)
        assert "at most 150 samples/s" in bounds[2].why
        never = of._replace(ceilings=ceilings(100.0, 100.0, 100.0))  # it can never keep up
        assert tried(never, "workers") == []
        assert candidates(never, ("workers",))

    def test_workers_that_start_once_in_a_long_epoch_gain_nothing(self):
        starts = {"starts_s": (0.4, 0.5, 0.6), "persistent_s": (0.01,)}
        read = (Ceiling(num_workers=2, samples_per_s=100.0, **starts),)
        of = known(num_workers=2, samples_per_s=100.0, samples_per_epoch=100_000, ceilings=read)
        assert tried(of, "persistent") == []
        of = of._replace(samples_per_epoch=200)
        assert candidates(of, ("persistent",))[0].bound.factor == pytest.approx(1.25)


class TestConditions:
    @pytest.mark.parametrize(
        ("name", "changes"),
        [
            ("persistent", {"num_workers": 2, "persistent_workers": True}),
            ("amp", {"autocast": "bfloat16"}),
            ("fp16", {"autocast": "float16"}),
            ("amp", {"precision": "bfloat16"}),
            ("channels_last", {"num_convolutions": 3, "channels_last": True}),
            ("compile", {"compiled": True}),
            ("fused", {"optimizers": ("fused",)}),
            ("foreach", {"optimizers": ("fused",)}),
            ("checkpoint", {"blocks": "4 Block", "checkpoints": True, "limit": "memory"}),
            ("pin", {"device": "cuda", "pin_memory": True}),
        ],
    )
    def test_what_the_script_uses_is_recognised(self, name, changes):
        of = known(**changes)
        assert named(name).in_use(of)
        assert candidates(of, (name,)) == []

    @pytest.mark.parametrize(
        "name", ["channels_last", "pin", "tf32", "benchmark", "checkpoint", "segments", "cores"]
    )
    def test_what_does_not_apply_says_why(self, name):
        of = known()
        assert not named(name).in_use(of)
        assert named(name).refused(of)

    @pytest.mark.parametrize(
        ("allocator", "share", "device", "is_tried"),
        [
            ("glibc", 0.3, "cpu", True),
            ("glibc", 0.01, "cpu", False),
            ("glibc", 0.3, "cuda", False),
            ("glibc, set by its variables", 0.3, "cpu", False),
            ("other", 0.3, "cpu", False),
        ],
    )
    def test_memory_is_kept_where_it_was_given_back(self, allocator, share, device, is_tried):
        of = known(faults_share=share, allocator=allocator, device=device)
        found = [each.settings.variables for each in candidates(of, ("allocator",))]
        assert [dict(each)["MALLOC_MMAP_MAX_"] for each in found] == ["0"] * is_tried


class TestOrder:
    def test_the_largest_bound_goes_first(self):
        of = known(input_share=0.5, optimizer_share=0.3, samples_per_s=100.0)
        bounds = [each.bound.factor for each in candidates(of, (ALL,))]
        assert bounds == sorted(bounds, reverse=True)

    @pytest.mark.parametrize(("limit", "first"), [("host", "compile"), ("saturated", "amp")])
    def test_where_nothing_bounds_them_the_limit_does(self, limit, first):
        assert candidates(known(limit=limit), (ALL,))[0].remedy.name == first


class TestStreams:
    """Whose workers each give all samples."""

    def test_one_worker_is_left(self):
        reads = (*ceilings(100.0, 200.0), Ceiling(num_workers=2, reason="all", repeats=True))
        facts = {"input_share": 0.9, "samples_per_s": 50.0, "ceilings": reads}
        of = known(**facts)
        assert [each.settings.num_workers for each in tried(of, "workers")] == [1]
        of = known(num_workers=1, **facts)
        assert candidates(of, ("workers",)) == []
        assert named("workers").refused(of) == "all"


class TestTogether:
    def test_the_best_two_that_do_not_exclude_each_other(self):
        of = known()
        amp, fp16, compiled = (candidates(of, (name,))[0] for name in ("amp", "fp16", "compile"))
        assert together([(amp, 1.4), (fp16, 1.5), (compiled, 1.1)]) == (fp16, compiled)
        assert together([(amp, 1.4), (fp16, 1.5)]) == (fp16,)
        assert together([]) == ()

    def test_workers_that_persist_are_in_no_window(self):
        """The gain of the two would be that of the other alone."""
        starts = Ceiling(num_workers=2, starts_s=(1.0,) * 3, persistent_s=(0.1,) * 3)
        epoch = {"samples_per_s": 100.0, "samples_per_epoch": 100}
        of = known(num_workers=2, ceilings=(starts,), **epoch)
        kept, amp = (candidates(of, (name,))[0] for name in ("persistent", "amp"))
        assert together([(kept, 1.8), (amp, 1.1)]) == (amp,)

    def test_both_settings_are_in_force(self):
        both = Settings(autocast="bfloat16").and_(
            Settings(threads=2, variables=(("OMP_NUM_THREADS", "2"),))
        )
        assert both.changes == {
            "autocast": "bfloat16",
            "threads": 2,
            "variables": (("OMP_NUM_THREADS", "2"),),
        }


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            "loader = DataLoader(data, batch_size=8)",
            "loader = DataLoader(data, batch_size=8, num_workers=",
        ),
        # Else the options are named.
        ("", "DataLoader(..., num_workers="),
        ("loader = DataLoader(", "DataLoader(..., num_workers="),
        ("loader = create_loader(data)", "DataLoader(..., num_workers="),
        ("DataLoader(data, **options)", "DataLoader(..., num_workers="),
        # The call may stand within another, end with a comma, or give the options already.
        ("ahead = Ahead(DataLoader(data))", "ahead = Ahead(DataLoader(data, num_workers="),
        ("return DataLoader(data, 8,)  # (few)", "return DataLoader(data, 8, num_workers="),
        ("DataLoader(data, num_workers=n)", "DataLoader(data, num_workers=1, persistent_w"),
    ],
)
def test_the_line_is_written_anew_where_it_is_whole(line, said):
    of = known(lines={"loader": line}, input_share=0.5)
    (first, *_) = candidates(of, ("workers",))
    (code,) = first.remedy.code(of, first.settings)
    assert code.startswith(said)


@pytest.mark.parametrize("places", [1, 2])
def test_the_line_of_one_optimizer_does_not_stand_for_several(places):
    of = known(lines={"optimizer": "o = SGD(p, foreach=True)"}, num_optimizer_places=places)
    (first,) = candidates(of, ("fused",))
    code = (
        "o = SGD(p, foreach=None, fused=True)"
        if places == 1
        else "torch.optim.SGD(..., fused=True)"
    )
    assert first.remedy.code(of, first.settings) == (code,)


@pytest.mark.parametrize("line", ["out = model(", "model(x).mean().backward()", "return model(x)"])
def test_what_stands_under_autocast_is_a_forward_pass(line):
    of = known(lines={"call": line})
    (first,) = candidates(of, ("amp",))
    text = "\n".join(first.remedy.code(of, first.settings))
    ast.parse(text)
    assert "backward" not in text


def test_a_scaler_comes_with_fp16():
    (first,) = candidates(known(), ("fp16",))
    code = first.remedy.code(known(), first.settings)
    assert any("scaler.step(optimizer)" in line for line in code)
