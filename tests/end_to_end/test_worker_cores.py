"""Data workers that share the one core to which an import bound the script."""

import os

import pytest

from .driver import SCRIPTS, run

OPTIONS = ("--json", "-q", "-o", "out", "--no-profile", "--goal", "memory", "--sizes", "16")


@pytest.mark.slow
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core is all there is")
@pytest.mark.parametrize(
    ("bind", "arguments", "shares"),
    [("CLOSE", (), True), ("CLOSE", ("--all-cores",), False), ("false", (), False)],
)
def test_a_mask_that_shrank_in_the_imports(bind, arguments, shares, tmp_path):
    """The remedy is applied in the second case."""
    script = SCRIPTS / "bound_workers.py"
    done = run(
        "run", *OPTIONS, script, *arguments, folder=tmp_path,
        variables={"OMP_PROC_BIND": bind, "OMP_NUM_THREADS": "2"},
    )  # fmt: skip
    assert done.code == 0, done
    cores = done.record.discovery.cores
    assert cores.num_workers == 2
    found = done.findings
    assert ("workers.share_cores" in found) is shares, cores
    if shares:
        assert "2 data workers share 1 core" in found["workers.share_cores"].message
        assert "OMP_PROC_BIND=CLOSE" in found["workers.share_cores"].message
        assert "worker_init_fn=on_all_cores" in found["workers.share_cores"].code[-1]
