"""A batch size that nobody wrote: the default of a library's class that the script calls."""

import sys
from types import ModuleType

import pytest
import torch
from batchadvisor.probes.source.unwritten import unwritten_size

LIBRARY = """
class Agent:
    def __init__(self, policy, env=None, batch_size: int = 32, seed=0):
        pass

class Exact:
    def __init__(self, *, eval_batch_size=8):
        pass

def fit(data, batch_size=None):
    pass
"""


@pytest.fixture
def asked(tmp_path, monkeypatch):
    """What is said of a script with this text, of which nothing runs."""
    monkeypatch.chdir(tmp_path)
    library = ModuleType("library")
    exec(LIBRARY, vars(library))
    monkeypatch.setitem(sys.modules, "library", library)

    def ask(text):
        (tmp_path / "train.py").write_text(text)
        script = ModuleType("the_script")
        vars(script).update(__file__=str(tmp_path / "train.py"), library=library, torch=torch)
        exec("def own(data, batch_size=32): pass", vars(script))
        monkeypatch.setitem(sys.modules, "the_script", script)
        vars(script).update(Agent=library.Agent, made=library.Agent("mlp"))
        return unwritten_size([script])

    return ask


@pytest.mark.parametrize("call", ["Agent('mlp', env, seed=1)", "library.Agent(policy=made)"])
def test_the_call_and_its_default_are_named(asked, call):
    name = call.partition("(")[0]
    assert asked(f"x = 1\nmodel = {call}\n") == (
        f"{name}(...) at train.py:2 takes batch_size=32 where the call names none"
    )


@pytest.mark.parametrize(
    "call",
    [
        "Agent('mlp', env, batch_size=8)",
        "Agent('mlp', env, 8)",
        "Agent(*args)",
        "Agent('mlp', **settings)",
        "library.Exact()",
        "library.fit(data)",
        "made.learn(1)",
        "torch.utils.data.DataLoader(data)",
        "unknown(2)",
        "own(2)",
    ],
)
def test_what_says_a_size_or_has_none_is_no_such_call(asked, call):
    assert asked(f"model = {call}\n") == ""
