"""Which words are ours, which the script's, and which start it: before anything runs."""

import sys
from pathlib import Path

import pytest
from batchadvisor.cli.run import run
from batchadvisor.errors import UsageError
from batchadvisor.features.estimate.command import estimate
from batchadvisor.session.setup.options import check_script
from batchadvisor.session.setup.wrapped import launcher_words, unwrapped

TORCHRUN = (sys.executable, "-m", "torch.distributed.run")


def test_a_script_that_may_not_be_read(tmp_path, monkeypatch):
    script = tmp_path / "model.py"
    script.touch()

    def refuse(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(UsageError, match=r"Permission denied\. Make it readable, or name another"):
        check_script(str(script))


@pytest.mark.parametrize("command", [run, estimate])
@pytest.mark.parametrize(
    ("typed", "arguments"),
    [
        ("x.py --a", ("--a",)),
        ("x.py -- --a", ("--a",)),
        ("-- x.py --a", ("--a",)),
        ("-- x.py -- --a", ("--", "--a")),  # the second is the script's
        ("x.py -- -- --a", ("--", "--a")),
        ("x.py --a -- b", ("--a", "--", "b")),
        ("x.py --", ()),
    ],
)
def test_the_first_two_dashes_are_ours(command, typed, arguments):
    with command.make_context(command.name, typed.split()) as context:
        assert context.params["script"] == "x.py"
        assert context.params["arguments"] == arguments


class TestCommandsThatStartTheScript:
    @pytest.mark.parametrize(
        ("typed", "wrapped"),
        [
            ("python3.11 -u train.py --bs 4", ((), "train.py", ("--bs", "4"), False)),
            ("/env/bin/python -m pkg.train --bs 4", ((), "pkg.train", ("--bs", "4"), True)),
            (
                "torchrun --nproc-per-node 2 train.py --bs 4 -m",
                ((*TORCHRUN, "--nproc-per-node", "2"), "train.py", ("--bs", "4", "-m"), False),
            ),
            (
                "torchrun --standalone -m pkg.train --bs 4",
                ((*TORCHRUN, "--standalone"), "pkg.train", ("--bs", "4"), True),
            ),
            ("train.py --lr 1 other.py", None),
            ("pkg/accelerate.py other.py", None),
            ("trainer other.py", None),
        ],
    )
    def test_the_script_is_found_in_them(self, typed, wrapped):
        script, *arguments = typed.split()
        assert unwrapped(script, arguments) == wrapped

    @pytest.mark.parametrize("words", [(), ("--nproc-per-node", "2"), ("-m",)])
    def test_one_without_a_script(self, words):
        with pytest.raises(UsageError, match="names no script to start") as raised:
            unwrapped("torchrun", words)
        assert "batchadvisor run torchrun train.py" in str(raised.value.remedy)

    def test_a_launcher_that_cannot_be_used(self, monkeypatch):
        with pytest.raises(UsageError, match="deepspeed is no script"):
            unwrapped("deepspeed", ("train.py",))
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
        with pytest.raises(UsageError, match="accelerate is not installed"):
            unwrapped("accelerate", ("launch", "train.py"))

    def test_a_script_of_that_name(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "uv").write_text("")
        assert unwrapped("uv", ()) is None

    @pytest.mark.parametrize(
        ("typed", "num_script_words", "words"),
        [
            ("-q torchrun --nproc-per-node 2 -m pkg --lr 1", 3, "torchrun --nproc-per-node 2 -m"),
            ("-q train.py torchrun", 2, ""),
        ],
    )
    def test_their_words_are_told_as_typed(self, typed, num_script_words, words):
        command = ("batchadvisor", "run", *typed.split())
        assert launcher_words(command, num_script_words) == tuple(words.split())
