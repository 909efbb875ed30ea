"""Remedies on scripts whose truth is known: the right one is found, and none is claimed."""

import subprocess

import pytest

from ..end_to_end.driver import SCRIPTS, line_of, run, start

pytestmark = [pytest.mark.slow, pytest.mark.alone]


def tried(name, remedies, folder, *options, sizes="16", budget="60s"):
    """The answer of a run that tries some remedies of a planted script."""
    script = SCRIPTS / f"remedies_{name}.py"
    result = run(
        "run", "--json", "--no-profile", "--sizes", sizes, "--budget", budget,
        "--try", remedies, *options, script, folder=folder,
    )  # fmt: skip
    assert result.code == 0, result
    assert result.left == []
    return result.answer["remedies"]


def of(remedies, name):
    return [each for each in remedies["tried"] if each["name"] == name]


def test_workers_help_a_loader_that_sleeps(tmp_path):
    """Two workers sleep at the same time: as many samples as the loader alone gives with two."""
    found = tried("sleeps", "workers,amp", tmp_path, sizes="8")
    best = max(of(found, "workers"), key=lambda each: each["gain"]["median"])
    assert best["outcome"] == "gain"
    rates = {each["num_workers"]: each["samples_per_s"] for each in found["ceilings"]}
    assert best["gain"]["low"] < 1.15 * max(rates.values()) / rates[0]
    assert best["gain"]["high"] > 1.3
    assert best["numbers"]["loss"] == 0
    assert "num_workers=" in best["code"][0]
    assert of(found, "amp")[0]["outcome"] != "gain"


def test_workers_do_not_help_where_they_wait_for_one_lock(tmp_path):
    found = tried("locked", "workers", tmp_path, sizes="8")
    assert {each["outcome"] for each in found["tried"]} <= {"not tried", "no gain", "cannot tell"}
    rates = [each["samples_per_s"] for each in found["ceilings"]]
    assert max(rates) < 1.3 * min(rates)


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
    assert amp["outcome"] == "slower"
    assert amp["gain"]["high"] < 1


def test_a_graph_break_is_named_with_its_line(tmp_path):
    (compiled,) = of(
        tried("breaks_graph", "compile", tmp_path, sizes="64", budget="90s"), "compile"
    )
    if compiled["outcome"] != "gain":
        assert "graph break at" in compiled["reason"]
        script = SCRIPTS / "remedies_breaks_graph.py"
        assert f"{script.name}:{line_of(script, '.item()')}" in compiled["reason"]
    assert compiled["numbers"]["loss"] < 1e-3


def test_two_gains_are_confirmed_together_and_their_diff_gives_them(tmp_path):
    """Samples that sleep and an update of many parameters: each gains, and both gain more."""
    text = (SCRIPTS / "remedies_two_gains.py").read_text()
    (tmp_path / "train.py").write_text(text)
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    options = ("run", "--json", "--no-profile", "--sizes", "4", "-o")
    done = run(*options, "out", "--budget", "60s", "--try", "workers,fused", "train.py",
               folder=tmp_path)  # fmt: skip
    assert done.code == 0, done
    found = done.answer["remedies"]
    assert {each["outcome"] for name in ("workers", "fused") for each in of(found, name)} == {
        "gain"
    }
    both = found["together"]
    assert both["name"] in ("fused+workers", "workers+fused")
    assert both["outcome"] == "gain"
    assert both["gain"]["median"] > max(each["gain"]["median"] for each in found["tried"])
    assert both["numbers"]["loss"] < 1e-3
    assert (tmp_path / "out/remedies.diff").read_text() == both["diff"]

    usual = run(*options, "usual", "--budget", "20s", "train.py", folder=tmp_path)
    subprocess.run(["git", "apply", "out/remedies.diff"], check=True, cwd=tmp_path)
    changed = (tmp_path / "train.py").read_text()
    assert len(set(changed.splitlines()) - set(text.splitlines())) == 2
    mended = run(*options, "mended", "--budget", "20s", "train.py", folder=tmp_path)
    before, after = (each.record.trials[0].samples_per_s.median for each in (usual, mended))
    assert after / before > 0.75 * both["gain"]["low"]


def test_cores_that_an_import_took_are_given_back(tmp_path):
    """The training and its data worker both compute on one core."""
    (cores,) = of(tried("narrowed", "cores", tmp_path, sizes="4"), "cores")
    assert cores["outcome"] == "gain"
    assert cores["numbers"]["loss"] == 0
    assert cores["no_diff"]


def test_grouped_lengths_save_padding(tmp_path):
    """By whole windows: the few batches of long samples have their part in the rate."""
    (order,) = of(tried("lengths", "order", tmp_path, sizes="16"), "order")
    assert order["outcome"] == "gain"
    assert order["gain"]["median"] < order["bound"]
    assert order["numbers"]["reason"] == "the order changes which samples meet"


def test_what_checkpointing_saves_makes_room_for_a_larger_size(tmp_path):
    limit = ("--memory-limit", "650MiB")
    found = tried("deep", "checkpoint,accumulation", tmp_path, *limit, sizes="16,64")
    same, *larger = of(found, "checkpoint")
    assert same["peak_bytes"] < same["usual_bytes"]
    (more,) = larger
    assert (more["batch_size"] or 0) > 16 or "no time was left" in more["reason"]
    (computed,) = of(found, "accumulation")
    assert "not run" in computed["reason"]


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
        "run", "--no-profile", "--sizes", "16", "--budget", "1s", "--try", "amp", script,
        folder=tmp_path,
    )  # fmt: skip
    assert result.code == 1, result
    assert "--budget" in result.error
    assert "batch size 16" in result.stdout


def test_memory_that_is_kept_saves_its_page_faults(tmp_path):
    found = tried("gives_back", "allocator", tmp_path, sizes="8")
    (allocator,) = of(found, "allocator")
    assert allocator["outcome"] == "gain"
    assert allocator["gain"]["low"] > 1.2
    assert allocator["code"][0].startswith("export MALLOC_")
