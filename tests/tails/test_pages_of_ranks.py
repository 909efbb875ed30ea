"""The code of the pages of several ranks, executed in as many real processes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from batchadvisor.advisor.tails.layouts import layout_of
from batchadvisor.advisor.tails.pipeline import sampler_of

from ..end_to_end.preloaded import LAUNCHER, Forked
from ..ports import free_ports
from .launch import launch
from .pages import as_loader, name_of, page_fixes

pytestmark = pytest.mark.slow
SCRIPT = Path(__file__).with_name("pages_of_ranks.py")
PAGES = [page for page in page_fixes("ddp", "join") if not page[2].snippet.startswith("loss =")]
"""A loss of no rows is executed by test_pages.py."""
ONLY_THE_PIPELINE = ("batch_size", "torchrun")
"""A new size or number of ranks is a new pipeline."""


def job_of(fix, example):
    """What a rank needs to execute a fix: a changed pipeline, or the old one and the code."""
    described = fix.snippet.startswith(ONLY_THE_PIPELINE)
    pipeline = msgspec.structs.replace(example, **fix.changes) if described else example
    return {
        "code": "" if described else as_loader(fix.snippet),
        "num_samples": pipeline.num_samples,
        "num_ranks": pipeline.num_ranks,
        "batch_size": pipeline.batch_size,
        "sampler": sampler_of(pipeline),
        "sampler_drop_last": pipeline.sampler_drop_last,
        "drop_last": pipeline.drop_last,
        "rank_batch_sizes": pipeline.rank_batch_sizes,
    }


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    """What every rank did, by the name of the page; one job for each number of ranks."""
    folder = tmp_path_factory.mktemp("pages")
    jobs = {name_of(page): job_of(*page[2:]) for page in PAGES}
    (folder / "jobs.json").write_text(json.dumps(jobs))
    seen = {}
    for world in sorted({job["num_ranks"] for job in jobs.values()}):
        names = [name for name, job in jobs.items() if job["num_ranks"] == world]
        own = folder / str(world)
        own.mkdir()
        ranks = launch(SCRIPT, own, *names, world=world, PAGE_JOBS=str(folder / "jobs.json"))
        seen.update({name: [rank[name] for rank in ranks] for name in names})
    return seen


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_code(executed, page):
    """Steps and samples of every rank are those that the engine says of the pipeline then."""
    _, _, fix, example = page
    pipeline = msgspec.structs.replace(example, **fix.changes)
    layout = layout_of(pipeline)
    lengths = [rank["lengths"] for rank in executed[name_of(page)]]
    assert tuple(map(len, lengths)) == layout.batches
    most = max(map(len, lengths))
    last = tuple(own[-1] if len(own) == most else 0 for own in lengths)
    assert last == layout.last
    assert sum(map(sum, lengths)) == pipeline.num_samples + layout.duplicates - layout.dropped


def gradients(executed, name, snippet):
    """Of the ranks, for the page's fix that has this code."""
    page = next(page for page in PAGES if page[0] == name and snippet in page[2].snippet)
    return [rank["gradients"] for rank in executed[name_of(page)]]


def test_the_gradient_of_uneven_ranks_is_that_of_all_their_samples(executed):
    """The samples are numbered, 64 a step; the gradient of a step is their mean."""
    for own in gradients(executed, "ddp.uneven-sizes", "n_global"):
        assert own[0] == pytest.approx(sum(range(64)) / 64, rel=1e-5)
        assert own[1] == pytest.approx(sum(range(64, 128)) / 64, rel=1e-5)


def test_the_last_step_of_join_keeps_its_size(executed):
    """1025 samples on 4 ranks: the last one is alone in its step, and is 1024."""
    first = gradients(executed, "join.divisor", "divide_by_initial_world_size=False")[0]
    assert first[-1] == pytest.approx(1024, rel=1e-5)


TRAIN = """
import torch
from torch import distributed

distributed.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1))
model(torch.ones(1, 1)).mean().backward()
if distributed.get_rank() == 0:
    print("ranks", distributed.get_world_size())
distributed.destroy_process_group()
"""


def torchrun(folder, *arguments, preloaded):
    """What it prints and what it says of errors; preloaded, it and its ranks are forks."""
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    if preloaded:
        return Forked(arguments, script=LAUNCHER, cwd=folder, env=environment).communicate(200)
    done = subprocess.run(
        [sys.executable, "-m", LAUNCHER, *arguments], cwd=folder, env=environment,
        capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    return done.stdout, done.stderr


TORCHRUN_PAGES = page_fixes("multi-worker-mirrored", "keras-torch")


@pytest.mark.parametrize("page", TORCHRUN_PAGES, ids=name_of)
def test_torchrun(tmp_path, page):
    """The command starts as many ranks as the page says, each with its part of the batch.

    One of them as a user does it.
    """
    port = free_ports()
    command, _, comment = page[2].snippet.partition("#")
    _, *arguments = f"torchrun --master-port={port} {command.removeprefix('torchrun')}".split()
    (tmp_path / "train.py").write_text(TRAIN)
    preloaded = page is not TORCHRUN_PAGES[0]
    said, errors = torchrun(tmp_path, *arguments, preloaded=preloaded)
    assert f"ranks {page[3].num_ranks}" in said, errors[-2000:]
    assert comment.endswith(f"batch_size={page[3].batch_size // page[3].num_ranks}")
