"""The script as `__main__`, in a process of its own."""

import os
import subprocess
import sys

import pytest
from batchadvisor.probes.source.thread_variables import THREAD_VARIABLES

from ..end_to_end.preloaded import run_code

ORDER = """
from batchadvisor.probes.process.orders import WorkOrder

order = WorkOrder(
    script="train.py", arguments=(), module=False, worker=0, device="cpu",
    memory_limit_bytes=None, data_limit_bytes=None, run_folder="out", scratch_folder="scratch",
    loader=None, batch_cap=None, profile_schedule=(0, 1, 3), with_stack=False,
)
"""
RUN = """
from batchadvisor.probes.worker.run_script import become_the_script, run_script
become_the_script(order)
run_script(order, None)
"""
AHEAD = """
import os, sys
from batchadvisor.probes.process.channel import Channel
from batchadvisor.probes.worker.main import import_ahead
from batchadvisor.probes.worker.run_script import steer

import_ahead()
assert "torch._dynamo" not in sys.modules
ahead = set(sys.modules)

def run(door):
    late = sorted(name for name in set(sys.modules) - ahead if name.startswith("batchadvisor"))
    print(" ".join(late) or "nothing", flush=True)
    os._exit(0)

steer(order, Channel(*os.pipe()), 0.0, run)
"""
LEAVES = """
import sys
import os
from pathlib import Path
os.mkdir("elsewhere")
os.chdir("elsewhere")
print(Path(__file__).resolve().parent == Path.cwd().parent)
from batchadvisor.probes.source.call_site import source_text, user_call_site
place = user_call_site()
print(place.file)
print(source_text(place) == Path(__file__).read_text())
print(sys.argv[0], sys.modules["__main__"].__dict__ is globals())
"""
TENSORBOARD = """
def compat():
    import tensorflow
compat()
"""


def said(folder, code, **variables):
    """What a process prints that has an order and then runs this code."""
    done = subprocess.run(
        [sys.executable, "-c", ORDER + code],
        capture_output=True, text=True, check=False, cwd=folder, env={**os.environ, **variables},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def forked(folder, code):
    """The same in a process that has torch already."""
    exit_code, output, errors = run_code(ORDER + code, folder=folder)
    assert exit_code == 0, errors
    return output


@pytest.mark.parametrize("name", THREAD_VARIABLES)
def test_threads_that_the_script_asks_for_before_it_imports_torch(tmp_path, name, monkeypatch):
    for other in THREAD_VARIABLES:
        monkeypatch.delenv(other, raising=False)
    (tmp_path / "train.py").write_text(
        "import os\n"
        f"before = os.environ['{name}']\n"
        f"os.environ['{name}'] = '1'\n"
        "import torch\n"
        "print(before, torch.get_num_threads())\n"
    )
    assert said(tmp_path, RUN, **{name: "2"}).split() == ["2", "1"]


def test_a_script_that_leaves_its_folder(tmp_path):
    """Its `__file__` still names it, and so do the places that are shown."""
    (tmp_path / "train.py").write_text(LEAVES)
    assert forked(tmp_path, RUN).splitlines() == ["True", "train.py", "True", "train.py True"]


def test_a_process_that_stands_by_has_imported_all_that_a_script_is_steered_with(tmp_path):
    assert said(tmp_path, AHEAD) == "nothing\n"


def test_another_number_in_the_source(tmp_path):
    """In the script itself and in a module of its own; what is on disk stays."""
    (tmp_path / "train.py").write_text("import sizes\nB = 32\nprint(B, sizes.WIDTH)\n")
    (tmp_path / "sizes.py").write_text("WIDTH = 8\n")
    replaced = """
import ast, msgspec
from batchadvisor.probes.source.replaced import replacement_of
numbers = [
    replacement_of(file, ast.parse(text).body[0].value, number)
    for file, text, number in (("train.py", "\\nB = 32", 5), ("sizes.py", "WIDTH = 8", 3))
]
order = msgspec.structs.replace(order, replacements=tuple(numbers))
order = msgspec.json.decode(msgspec.json.encode(order), type=WorkOrder)
"""
    assert forked(tmp_path, replaced + RUN) == "5 3\n"
    assert "32" in (tmp_path / "train.py").read_text()


def test_another_number_in_a_settings_file(tmp_path):
    """However it is opened; what is on disk stays."""
    text = '{"lr": 0.1, "batch_size": 32}'
    (tmp_path / "a.json").write_text(text)
    (tmp_path / "scratch").mkdir()
    (tmp_path / "train.py").write_text(
        "import io, json\n"
        "from pathlib import Path\n"
        "for text in (open('a.json').read(), Path('a.json').read_text(),\n"
        "             io.open(Path('a.json').resolve(), 'rb').read()):\n"
        "    print(json.loads(text))\n"
    )
    replaced = """
import msgspec
from batchadvisor.probes.source.named_size import Script, find_size
place = find_size(Script("train.py", settings=("a.json",)))
order = msgspec.structs.replace(order, replacements=(place.replacement.with_number(128),))
"""
    assert forked(tmp_path, replaced + RUN) == "{'lr': 0.1, 'batch_size': 128}\n" * 3
    assert (tmp_path / "a.json").read_text() == text


@pytest.mark.parametrize(
    ("script", "imports"),
    [
        ("import keras", True),
        ("from tensorflow import keras", True),
        ("import importlib\nimportlib.import_module('keras')", True),
        ("import tensorboard", False),
        ("import json", False),
    ],
)
def test_whose_import_of_keras_it_is(script, imports, tmp_path):
    """TensorBoard imports TensorFlow, and that Keras, for a script that trains with torch."""
    packages = tmp_path / "site-packages"
    packages.mkdir()
    for name, text in (("keras", ""), ("tensorflow", "import keras"), ("tensorboard", TENSORBOARD)):
        (packages / f"{name}.py").write_text(text)
    (tmp_path / "train.py").write_text(script)
    door = """
import sys
sys.path.insert(0, "site-packages")
from batchadvisor.probes.doors.keras import KerasDoor
door = KerasDoor(None, order, 0.0)
door.install()
"""
    assert forked(tmp_path, door + RUN + "print(door.imported)\n") == f"{imports}\n"
