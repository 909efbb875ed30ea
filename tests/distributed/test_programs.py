"""Ranks that a script starts as programs: who is one, and what the start-up hook does to it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from batchadvisor.probes.distributed import start_hook
from batchadvisor.probes.distributed.started_programs import rank_named

HOOK = str(Path(start_hook.__file__).parent)
VARIABLE = "BATCHADVISOR_STEERED_RANK"
SHOW = "import json, os, sys; print(json.dumps([dict(os.environ), sys.path, sys.argv]))"


def python(*arguments, path, **variables):
    """Environment, sys.path and sys.argv that a program sees whose PYTHONPATH is `path`."""
    clean = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    if path:
        clean["PYTHONPATH"] = os.pathsep.join(map(str, path))
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        env={**clean, **variables}, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


class TestWhoIsARank:
    @pytest.mark.parametrize(
        ("environment", "named"),
        [
            ({"RANK": "1", "WORLD_SIZE": "2"}, (1, 2)),
            ({"LOCAL_RANK": "1", "NODE_RANK": "0", "WORLD_SIZE": "4"}, (1, 4)),
            ({"LOCAL_RANK": "1", "NODE_RANK": "1", "WORLD_SIZE": "4"}, None),
            ({"RANK": "0", "WORLD_SIZE": "1"}, None),
            ({"WORLD_SIZE": "2"}, None),
            ({"LOCAL_RANK": "3", "WORLD_SIZE": "2"}, None),
            ({}, None),
        ],
    )
    def test_named(self, environment, named):
        assert rank_named(environment) == named


class TestHook:
    def test_without_the_variable_nothing_happens(self):
        with_hook = json.loads(python("-c", SHOW, path=[HOOK, "/tmp"]))
        without = json.loads(python("-c", SHOW, path=["/tmp"]))
        assert with_hook == without

    def test_its_traces_are_taken_out_where_code_is_run(self):
        seen = python("-c", SHOW, path=[HOOK], **{VARIABLE: "1:/nowhere"})
        environment, path, _ = json.loads(seen)
        assert "PYTHONPATH" not in environment
        assert VARIABLE not in environment
        assert HOOK not in path

    def test_the_users_own_start_up_module_runs(self, tmp_path):
        (tmp_path / "sitecustomize.py").write_text("print('mine')\n")
        assert python("-c", "", path=[HOOK, tmp_path]) == "mine\n"
        assert python("-c", "", path=[tmp_path, HOOK]) == "mine\n"

    @pytest.mark.parametrize(
        ("words", "run"),
        [
            (["-W", "ignore", "{}/show.py", "a", "-m"], ["script", "{}/show.py", "a", "-m"]),
            (["-m", "show", "a"], ["module", "show", "a"]),
            (["-mshow"], ["module", "show"]),
        ],
    )
    def test_a_script_or_a_module_is_handed_over_with_its_arguments(self, words, run, tmp_path):
        """Here to a module of ours that shows what it was called with."""
        (tmp_path / "show.py").write_text("raise AssertionError('the script ran unsteered')\n")
        room = tmp_path / "batchadvisor" / "probes" / "distributed"
        room.mkdir(parents=True)
        for folder in (room, room.parent, room.parent.parent):
            (folder / "__init__.py").touch()
        shows = f"def main():\n    {SHOW}\n"
        (room / "started_program.py").write_text(shows)
        words = [word.format(tmp_path) for word in words]
        seen = python(*words, path=[HOOK, tmp_path], **{VARIABLE: "1:/plan"})
        environment, path, arguments = json.loads(seen)
        assert arguments[1:] == ["1:/plan", *(word.format(tmp_path) for word in run)]
        assert environment["PYTHONPATH"] == str(tmp_path)
        assert HOOK not in path
