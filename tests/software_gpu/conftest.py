"""Torch's own CUDA build on the GPU in software: built once, one machine for each test."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from batchadvisor.session.recording.store import read_record

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "scripts/software_gpu"


def builder():
    """The module that builds it."""
    spec = importlib.util.spec_from_file_location("software_gpu_library", FOLDER / "library.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def library(tmp_path_factory):
    """What builds it, and the library itself."""
    module = builder()
    try:
        return module, module.build(tmp_path_factory.mktemp("software_gpu"))
    except module.MissingError as missing:
        if os.environ.get("CI") == "true":
            pytest.fail(str(missing))
        pytest.skip(str(missing))


class Machine:
    """Cards as a text states them; what is started sees them and nothing of other tests."""

    def __init__(self, library, folder, cards):
        module, path = library
        self.folder = folder
        model = folder / "cards.conf"
        model.write_text(cards)
        self.environment = module.environment(
            path, model, folder.with_name(f"{folder.name}-machine")
        )

    def run(self, *words, timeout_s=120, code=0, **environment):
        """Output of a command, which ends with that code."""
        done = subprocess.run(
            [sys.executable, *map(str, words)], cwd=self.folder, capture_output=True, text=True,
            timeout=timeout_s, check=False, env={**self.environment, **environment},
        )  # fmt: skip
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    def script(self, text, *words, **options):
        """Output of a script."""
        path = self.folder / "script.py"
        path.write_text(text)
        return self.run(path, *words, **options)

    def answer(self, *words, **options):
        """Record and advice of `batchadvisor run`, as it prints them."""
        options = {"timeout_s": 240, **options}
        said = self.run("-m", "batchadvisor", "run", "-q", "--json", "-o", "out", *words, **options)
        return json.loads(said)

    def advise(self, *words, **options):
        """The record of `batchadvisor run`."""
        self.answer(*words, **options)
        return read_record(self.folder / "out")


@pytest.fixture
def machine(library, tmp_path):
    """Makes a machine of a text that states its cards."""
    return lambda cards="": Machine(library, tmp_path, cards)
