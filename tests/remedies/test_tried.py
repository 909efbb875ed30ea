"""Remedies on scripts whose truth is known: the right one is found, and none is claimed."""

from statistics import median

import pytest

from ..end_to_end.driver import SCRIPTS, line_of, run, start
from .planted import had_no_time, left_open, of, tried

pytestmark = [pytest.mark.slow, pytest.mark.alone]


def test_workers_help_a_loader_that_sleeps(tmp_path):
    """Two workers sleep at the same time: as many samples as the loader alone gives with two."""
    found = tried("sleeps", "workers,amp", tmp_path, sizes="8")
    tries = [each for each in of(found, "workers") if each["gain"]]  # one may have no time left
    assert of(found, "amp")[0]["outcome"] != "gain"
    if not tries:
        assert had_no_time(found, "workers"), found
        return
    best = max(tries, key=lambda each: each["gain"]["median"])
    assert best["numbers"]["loss"] == 0
    assert "num_workers=" in best["code"][0]
    if left_open(best):
        return
    assert best["outcome"] == "gain"
    rates = {each["num_workers"]: each["samples_per_s"] for each in found["ceilings"]}
    assert best["gain"]["low"] < 1.15 * max(rates.values()) / rates[0]
    assert best["gain"]["high"] > 1.3


def test_workers_do_not_help_where_they_wait_for_one_lock(tmp_path):
    """At most the training goes on meanwhile, which takes a small part of the step.

    Where others slow the training down that part is larger: then the lock alone is the bound.
    """
    most = 1 / 0.004  # samples/s that the lock lets through, whoever waits for it
    found = tried("locked", "workers", tmp_path, sizes="8")
    for each in found["tried"]:
        if each["outcome"] == "gain":
            usual = median(rate for rate, _ in each["rates"])
            assert each["gain"]["low"] < max(1.1, most / usual)
        else:
            assert each["outcome"] in {"not tried", "no gain", "cannot tell"}
    rates = [each["samples_per_s"] for each in found["ceilings"]]
    assert max(rates) < 1.6 * rates[0]  # without workers; two that did not wait would double it


def test_what_the_script_uses_is_recognised(tmp_path):
    names = "persistent,amp,fp16,fused,foreach,channels_last"
    found = tried("in_use", names, tmp_path)
    assert {each["name"]: each["outcome"] for each in found["tried"]} == dict.fromkeys(
        names.split(","), "in use"
    )


def test_a_loss_that_overflows_in_fp16_is_never_recommended(tmp_path):
    found = tried("overflows", "amp,fp16", tmp_path)
    (fp16,) = of(found, "fp16")
    assert fp16["outcome"] == "wrong numbers"
    (amp,) = of(found, "amp")
    assert amp["numbers"]["finite"]
    assert amp["numbers"]["loss"] < 0.1


def test_autocast_that_costs_more_than_it_saves_is_no_gain(tmp_path):
    (amp,) = of(tried("small_layers", "amp", tmp_path), "amp")
    if left_open(amp):
        return
    assert amp["outcome"] == "slower"
    assert amp["gain"]["high"] < 1


def test_steps_that_outlast_their_windows_are_slower(tmp_path):
    (amp,) = of(tried("emulated", "amp", tmp_path), "amp")
    if left_open(amp):
        return
    assert amp["outcome"] == "slower"
    assert amp["gain"] is None
    assert "no step of it ended within a window: one takes more than" in amp["reason"]


def test_a_graph_break_is_named_with_its_line(tmp_path):
    (compiled,) = of(
        tried("breaks_graph", "compile", tmp_path, sizes="64", budget="90s"), "compile"
    )
    if compiled["outcome"] != "gain":
        assert "graph break at" in compiled["reason"]
        script = SCRIPTS / "remedies_breaks_graph.py"
        assert f"{script.name}:{line_of(script, '.item()')}" in compiled["reason"]
    assert compiled["numbers"]["loss"] < 1e-3


def test_ctrl_c_keeps_the_answer_and_what_was_tried(tmp_path):
    script = SCRIPTS / "remedies_small_layers.py"
    started = start(
        "run", "--no-profile", "--sizes", "16", "--budget", "20s", "-o", "out",
        "--try", "amp", script, folder=tmp_path,
    )  # fmt: skip
    started.wait_for((tmp_path / "out/remedies.json").exists, "remedies are tried")
    started.press_ctrl_c()
    result = started.finish()
    assert result.code == 130, result
    assert result.left == []
    assert "batch size 16" in result.stdout
    assert "Remedies: " in result.stdout
    assert "Try it: " not in result.stdout
    assert '"state": "interrupted"' in (tmp_path / "out/remedies.json").read_text()


def test_a_budget_that_is_too_small_says_what_is_enough(tmp_path):
    script = SCRIPTS / "remedies_small_layers.py"
    result = run(
        "run", "--no-profile", "--sizes", "16", "--budget", "3s", "--try", "amp", script,
        folder=tmp_path,
    )  # fmt: skip
    assert result.code == 1, result
    assert "--budget" in result.error
    assert "batch size 16" in result.stdout


def test_memory_that_is_kept_saves_its_page_faults(tmp_path):
    found = tried("gives_back", "allocator", tmp_path, sizes="8")
    (allocator,) = of(found, "allocator")
    assert allocator["code"][0].startswith("export MALLOC_")
    if left_open(allocator):
        return
    assert allocator["outcome"] == "gain"
    assert allocator["gain"]["low"] > 1.2


def test_batches_that_are_fetched_ahead_bridge_a_burst(tmp_path):
    """A window counts whole here: by the median of its steps there would be no gain."""
    (prefetch,) = of(tried("bursts", "prefetch", tmp_path, sizes="8"), "prefetch")
    assert "prefetch_factor=4" in prefetch["code"][0]
    if left_open(prefetch):
        return
    assert prefetch["outcome"] == "gain", prefetch
    waits_s, step_s = 0.030 / 8, 0.015
    assert prefetch["gain"]["high"] > 1.1
    assert prefetch["gain"]["low"] < 1.05 * (step_s + waits_s) / step_s
