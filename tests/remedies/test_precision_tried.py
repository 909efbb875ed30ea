"""Autocast on scripts whose truth is known: none is claimed that slows down or spoils numbers."""

import pytest

from .planted import left_open, of, tried

pytestmark = [pytest.mark.slow, pytest.mark.alone]


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
