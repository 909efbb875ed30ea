"""The code of the pages of Keras, executed on its backends; replicas are logical CPUs."""

import json
from pathlib import Path

import pytest

from ..needs import framework_of_scripts
from ..tails.launch import launch
from ..tails.pages import layout_after, name_of, page_fixes
from .preloads import KERAS

for _name in ("keras", "tensorflow", "jax"):
    framework_of_scripts(_name)

pytestmark = [pytest.mark.frameworks, pytest.mark.timeout(600)]
SCRIPT = Path(__file__).with_name("pages_keras.py")
PAGES = page_fixes("keras-tensorflow", "mirrored", "jax")


def job_of(fix, example):
    return {
        "code": fix.snippet,
        "setup": example.setup,
        "num_ranks": example.num_ranks,
        "num_samples": example.num_samples,
        "batch_size": example.batch_size,
        "norm": bool(example.model.batch_norm),
    }


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    """What each page's code did."""
    folder = tmp_path_factory.mktemp("pages")
    jobs = {name_of(page): job_of(*page[2:]) for page in PAGES}
    (folder / "jobs.json").write_text(json.dumps(jobs))
    seen = {}
    for backend in ("jax", "tensorflow"):
        names = [
            name for name, job in jobs.items() if (job["setup"] == "jax") == (backend == "jax")
        ]
        own = folder / backend
        own.mkdir()
        (done,) = launch(
            SCRIPT, own, *names, world=1, preload=KERAS[backend], KERAS_BACKEND=backend,
            CUDA_VISIBLE_DEVICES="", PAGE_JOBS=str(folder / "jobs.json"),
        )  # fmt: skip
        seen.update(done)
    return seen


@pytest.mark.parametrize("page", PAGES, ids=name_of)
@pytest.mark.slow
def test_code(executed, page):
    """The epoch makes the engine's steps, no weight is NaN, and nothing raises."""
    layout = layout_after(*page[2:])
    assert executed[name_of(page)] == {"steps": layout.steps, "finite": True}
