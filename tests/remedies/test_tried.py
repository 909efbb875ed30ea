"""Remedies on scripts whose truth is known: the right one is found, and none is claimed."""

import pytest

from ..end_to_end.driver import SCRIPTS, line_of, run, start
from .planted import left_open, of, tried

pytestmark = [pytest.mark.slow, pytest.mark.alone]


def test_what_the_script_uses_is_recognised(tmp_path):
    names = "persistent,amp,fp16,fused,foreach,channels_last"
    found = tried("in_use", names, tmp_path)
    assert {each["name"]: each["outcome"] for each in found["tried"]} == dict.fromkeys(
        names.split(","), "in use"
    )


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
