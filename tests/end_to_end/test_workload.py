"""Declared workloads: a function of the batch size instead of a training loop."""

import pytest

from .driver import SCRIPTS, listing
from .driver import run_preloaded as run

pytestmark = pytest.mark.slow

OPTIONS = ("--json", "-q", "-o", "out", "--no-profile", "--goal", "memory", "--sizes", "8,64")


@pytest.mark.parametrize("name", ["", ":held", ":direct"])
def test_it_runs(tmp_path, name):
    (tmp_path / "bench.py").write_text((SCRIPTS / "workload.py").read_text())
    done = run("run", "--workload", *OPTIONS, f"bench.py{name}", folder=tmp_path)
    assert done.code == 0, done
    assert done.stderr == ""
    assert done.left == []
    discovery = done.record.discovery
    assert discovery.door == "workload"
    assert discovery.native_batch_size == (12 if name == ":held" else 16)
    assert discovery.primary.num_samples == 4000
    assert [optimizer.name for optimizer in discovery.optimizers] == ["SGD"]
    assert discovery.num_parameters == 32 * 128 + 128 + 128 * 4 + 4
    searched = [trial for trial in done.record.trials if trial.purpose == "search"]
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
    done = run("run", "--dry-run", "--workload", "-m", "bench:make", folder=tmp_path)
    assert done.code == 0, done
    assert "16 = 16 samples" in done.stdout


class TestBadUse:
    @pytest.mark.parametrize(
        ("name", "said"),
        [
            ("two_sizes", "two_sizes takes (height, width)"),
            ("wrong_step", "takes (inputs), and is called without"),
            ("num_samples", "is no function and no object with make()"),
            ("nosuch", "holds no nosuch"),
        ],
    )
    def test_a_wrong_signature(self, tmp_path, name, said):
        script = f"{SCRIPTS / 'workload.py'}:{name}"
        done = run("run", "-q", "--workload", script, folder=tmp_path)
        done.assert_refused()
        assert said in done.error

    @pytest.mark.parametrize(
        ("code", "said"),
        [
            ("def make(batch_size):\n    return 5\n", "a value of type int, and no step"),
            (
                "class workload:\n    def make(self, batch_size):\n        pass\n",
                "returned nothing",
            ),
        ],
    )
    def test_a_make_that_makes_no_step(self, tmp_path, code, said):
        (tmp_path / "bare.py").write_text(code)
        done = run("run", "-q", "--workload", "bare.py", folder=tmp_path)
        done.assert_refused()
        assert said in done.error
        assert "return step" in done.error
        assert listing(tmp_path).keys() == {"bare.py"}

    def test_no_workload_in_it(self, tmp_path):
        (tmp_path / "empty.py").write_text("x = 1\n")
        done = run("run", "-q", "--workload", "empty.py", folder=tmp_path)
        done.assert_refused()
        assert "declares no workload" in done.error

    def test_a_module_that_is_not_there(self, tmp_path):
        done = run("run", "-q", "--workload", "-m", "no_such_module", folder=tmp_path)
        done.assert_refused()
        assert "there is no module no_such_module" in done.error

    @pytest.mark.parametrize("words", [("--workload", "broken.py"), ("-m", "broken")])
    def test_a_module_that_does_not_import(self, tmp_path, words):
        (tmp_path / "broken.py").write_text("import nothing_like_this\n")
        done = run("run", "-q", *words, folder=tmp_path)
        assert done.code == 1, done
        assert "ModuleNotFoundError: No module named 'nothing_like_this'" in done.error
        assert done.stderr.count("Traceback") == 1
        assert "probes" not in done.stderr

    def test_with_a_placeholder(self, tmp_path):
        script = SCRIPTS / "workload.py"
        done = run("run", "-q", "--workload", script, "{batch_size}", folder=tmp_path)
        done.assert_refused()
        assert "gets its size by a function call" in done.error
