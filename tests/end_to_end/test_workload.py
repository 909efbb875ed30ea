"""Declared workloads: a function of the batch size instead of a training loop."""

import pytest

from .driver import SCRIPTS, listing, run_well
from .driver import run_preloaded as run

pytestmark = pytest.mark.slow

OPTIONS = ("--json", "-q", "-o", "out", "--no-profile", "--goal", "memory", "--sizes", "8,64")


@pytest.mark.parametrize("name", ["", ":held", ":direct"])
def test_it_runs(tmp_path, name):
    (tmp_path / "bench.py").write_text((SCRIPTS / "workload.py").read_text())
    done = run_well("run", "--workload", *OPTIONS, f"bench.py{name}", folder=tmp_path)
    assert done.stderr == ""
    discovery = done.record.discovery
    assert discovery.door == "workload"
    assert discovery.native_batch_size == (12 if name == ":held" else 16)
    assert discovery.primary.num_samples == 4000
    assert [optimizer.name for optimizer in discovery.optimizers] == ["SGD"]
    assert discovery.num_parameters == 32 * 128 + 128 + 128 * 4 + 4
    searched = done.searched
    assert [(trial.batch_size, trial.outcome, trial.size_proof) for trial in searched] == [
        (8, "ok", "shape"),
        (64, "ok", "shape"),
    ]
    assert {trial.worker for trial in searched} == {0}
    assert searched[0].input_wait_s is None
    assert done.advice.recommended.batch_size == 64
    assert done.advice.sureness == "confirmed"
    assert done.advice.change.startswith("bench.py:")
    assert "batches of a DataLoader" in done.record.explained.reason


def test_it_runs_as_a_module(tmp_path):
    (tmp_path / "bench.py").write_text((SCRIPTS / "workload.py").read_text())
    done = run_well("run", "--dry-run", "--workload", "-m", "bench:make", folder=tmp_path)
    assert "16 = 16 samples" in done.stdout


class TestBadUse:
    @pytest.mark.parametrize(
        ("words", "said"),
        [
            (("workload.py:two_sizes",), "two_sizes takes (height, width)"),
            (("workload.py:wrong_step",), "takes (inputs), and is called without"),
            (("workload.py:num_samples",), "is no function and no object with make()"),
            (("workload.py:nosuch",), "holds no nosuch"),
            (("workload.py", "{batch_size}"), "gets its size by a function call"),
            (("number.py",), "a value of type int, and no step"),
            (("nothing.py",), "returned nothing, and no step"),
            (("empty.py",), "declares no workload"),
            (("-m", "no_such_module"), "there is no module no_such_module"),
        ],
    )
    def test_what_declares_no_workload(self, tmp_path, words, said):
        files = {
            "workload.py": (SCRIPTS / "workload.py").read_text(),
            "number.py": "def make(batch_size):\n    return 5\n",
            "nothing.py": "class workload:\n    def make(self, batch_size):\n        pass\n",
            "empty.py": "x = 1\n",
        }
        for name, text in files.items():
            (tmp_path / name).write_text(text)
        done = run("run", "-q", "--workload", *words, folder=tmp_path)
        done.assert_refused()
        assert said in done.error
        assert "return step" in done.error or "and no step" not in said
        assert listing(tmp_path).keys() == files.keys()

    @pytest.mark.parametrize("words", [("--workload", "broken.py"), ("-m", "broken")])
    def test_a_module_that_does_not_import(self, tmp_path, words):
        (tmp_path / "broken.py").write_text("import nothing_like_this\n")
        done = run("run", "-q", *words, folder=tmp_path)
        assert done.code == 1, done
        assert "ModuleNotFoundError: No module named 'nothing_like_this'" in done.error
        assert done.stderr.count("Traceback") == 1
        assert "probes" not in done.stderr
