"""Commands that start the script themselves, typed after `run`."""

import sys

import pytest
from batchadvisor.errors import UsageError
from batchadvisor.session.setup.wrapped import launcher_words, unwrapped

PYTHON = sys.executable
TORCHRUN = (PYTHON, "-m", "torch.distributed.run")


class TestUnwrapped:
    @pytest.mark.parametrize("script", ["train.py", "pkg/accelerate.py", "trainer"])
    def test_a_script(self, script):
        assert unwrapped(script, ("--lr", "1", "other.py")) is None

    def test_plain_python(self):
        wrapped = unwrapped("python3.11", ("-u", "train.py", "--bs", "4"))
        assert wrapped == ((), "train.py", ("--bs", "4"), False)
        wrapped = unwrapped("/env/bin/python", ("-m", "pkg.train", "--bs", "4"))
        assert wrapped == ((), "pkg.train", ("--bs", "4"), True)

    def test_a_launcher(self):
        words = ("--nproc-per-node", "2", "train.py", "--bs", "4", "-m")
        wrapped = unwrapped("torchrun", words)
        assert wrapped == ((*TORCHRUN, *words[:2]), "train.py", ("--bs", "4", "-m"), False)

    def test_a_module_under_a_launcher(self):
        wrapped = unwrapped("torchrun", ("--standalone", "-m", "pkg.train", "--bs", "4"))
        assert wrapped == ((*TORCHRUN, "--standalone"), "pkg.train", ("--bs", "4"), True)

    @pytest.mark.parametrize("words", [(), ("--nproc-per-node", "2"), ("-m",)])
    def test_no_script(self, words):
        with pytest.raises(UsageError, match="names no script to start") as raised:
            unwrapped("torchrun", words)
        assert "batchadvisor run torchrun train.py" in str(raised.value.remedy)

    def test_a_launcher_whose_words_are_not_known(self):
        with pytest.raises(UsageError, match="deepspeed is no script"):
            unwrapped("deepspeed", ("train.py",))

    def test_a_launcher_that_is_not_installed(self, monkeypatch):
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
        with pytest.raises(UsageError, match="accelerate is not installed"):
            unwrapped("accelerate", ("launch", "train.py"))

    def test_a_script_of_that_name(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "uv").write_text("")
        assert unwrapped("uv", ()) is None


def test_the_words_as_typed():
    typed = [
        "batchadvisor",
        "run",
        "-q",
        "torchrun",
        "--nproc-per-node",
        "2",
        "-m",
        "pkg",
        "--lr",
        "1",
    ]
    assert launcher_words(typed, 3) == ("torchrun", "--nproc-per-node", "2", "-m")
    assert launcher_words(["batchadvisor", "run", "-q", "train.py", "torchrun"], 2) == ()
