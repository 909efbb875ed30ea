"""Remedies of the loader on scripts whose truth is known: what helps is found, no other claimed."""

from statistics import median

import pytest

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
