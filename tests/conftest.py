"""For all tests: settings, where the recorded traces are, how to make small synthetic ones."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest
from hypothesis import settings

# The same examples every time, and none fails because the machine is busy.
settings.register_profile("steady", deadline=None, derandomize=True)
settings.load_profile("steady")

TRACES = Path(__file__).parents[1].parent / "shared" / "traces"


@pytest.fixture(scope="session")
def recorded():
    """Folder of the recorded traces; the test is skipped where they are not."""
    if not (TRACES / "expected.json").exists():
        message = f"the recorded traces are not at {TRACES}"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    return TRACES


@pytest.fixture(scope="session")
def expected(recorded):
    """Reference values by trace."""
    return json.loads((recorded / "expected.json").read_text())


@pytest.fixture
def write(tmp_path):
    """Writes a synthetic trace: `write(events, **document)` or `write(text)`; returns its path."""

    def write(content, name="synthetic.json", indent=None, **document):
        if isinstance(content, (str, bytes)):
            data = content.encode() if isinstance(content, str) else content
        else:
            document = {"schemaVersion": 1, **document, "traceEvents": content}
            data = json.dumps(document, indent=indent).encode()
        path = tmp_path / name
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return path

    return write
