"""What remedies do beyond a gain of their own: together, with a diff, to order and to memory."""

import re
import subprocess

import pytest

from ..end_to_end.driver import SCRIPTS, run
from .planted import disturbed, left_open, of, tried

pytestmark = [pytest.mark.slow, pytest.mark.alone]


def test_two_gains_are_confirmed_together_and_their_diff_gives_them(tmp_path):
    """Samples that sleep and an update of many parameters: each gains, and both gain more."""
    text = (SCRIPTS / "remedies_two_gains.py").read_text()
    told = 'print("USES", optimizer.defaults["fused"], loader.num_workers, flush=True)\n'
    text = text.replace("for epoch in", f"{told}for epoch in")
    (tmp_path / "train.py").write_text(text)
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    options = ("run", "--json", "--no-profile", "--sizes", "4", "-o")
    done = run(*options, "out", "--budget", "60s", "--try", "workers,fused", "train.py",
               folder=tmp_path)  # fmt: skip
    assert done.code == 0, done
    found = done.answer["remedies"]
    tries = [each for name in ("workers", "fused") for each in of(found, name)]
    assert all(each["outcome"] == "gain" or left_open(each) for each in tries), tries
    both = found["together"]
    if len({each["name"] for each in tries if each["outcome"] == "gain"}) < 2:
        assert both is None
        return
    assert both["name"] in ("fused+workers", "workers+fused")
    assert both["numbers"]["loss"] < 1e-3
    if left_open(both):
        return
    assert both["outcome"] == "gain"
    assert both["gain"]["median"] > max(each["gain"]["median"] for each in found["tried"])
    assert (tmp_path / "out/remedies.diff").read_text() == both["diff"]

    usual = run(*options, "usual", "--budget", "20s", "train.py", folder=tmp_path)
    subprocess.run(["git", "apply", "out/remedies.diff"], check=True, cwd=tmp_path)
    changed = (tmp_path / "train.py").read_text()
    assert len(set(changed.splitlines()) - set(text.splitlines())) == 2
    mended = run(*options, "mended", "--budget", "20s", "train.py", folder=tmp_path)
    (num_workers,) = re.findall(r"num_workers=(\d+)", " ".join(both["code"]))
    for each, fused, num in ((usual, None, 0), (mended, True, int(num_workers))):
        assert each.record.discovery.primary.num_workers == num
        assert f"USES {fused} {num}\n" in each.log
    first, last = (each.record.trials[0] for each in (usual, mended))
    if not (first.contended or last.contended):  # the two were run minutes apart
        ratio = last.samples_per_s.median / first.samples_per_s.median
        assert ratio > 0.75 * both["gain"]["low"]


def test_cores_that_an_import_took_are_given_back(tmp_path):
    """The training and its data worker both compute on one core."""
    (cores,) = of(tried("narrowed", "cores", tmp_path, sizes="4"), "cores")
    assert cores["numbers"]["loss"] == 0
    if left_open(cores):
        return
    assert cores["outcome"] == "gain"
    assert cores["no_diff"]


def test_grouped_lengths_save_padding(tmp_path):
    """By whole windows: the few batches of long samples have their part in the rate."""
    (order,) = of(tried("lengths", "order", tmp_path, sizes="16"), "order")
    assert order["numbers"]["reason"] == "the order changes which samples meet"
    if left_open(order):
        return
    assert order["outcome"] == "gain"
    assert order["gain"]["median"] < order["bound"]


@pytest.mark.timeout(480)
def test_what_checkpointing_saves_makes_room_for_a_larger_size(tmp_path):
    """Two comparisons, and a search between them: time for all of it, four times the budget."""
    # Peaks of fresh processes differ by tens of MiB: there is room for some sizes above 24.
    limit_mib = 760
    options = ("--memory-limit", f"{limit_mib}MiB")
    given = {"sizes": "16,64", "budget": "90s", "limit_s": 420}
    found = tried("deep", "checkpoint,accumulation", tmp_path, *options, **given)
    same, *larger = of(found, "checkpoint")
    assert same["peak_bytes"] < same["usual_bytes"]
    (more,) = larger
    assert more["peak_bytes"] < 0.95 * limit_mib * 2**20
    assert f"batch_size={more['batch_size']}" in more["code"][-1]
    (computed,) = of(found, "accumulation")
    assert "not run" in computed["reason"]
    assert more["batch_size"] > 16
    if more["batch_size"] < 24 or more["outcome"] == "cannot tell":
        # Each size has one short window: others may have made a smaller one look faster.
        assert disturbed(same, more), (same, more)
        return
    assert more["outcome"] == "gain", more
    assert more["no_diff"]
