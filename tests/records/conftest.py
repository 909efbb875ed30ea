"""A folder to write a record into."""

import pytest
from batchadvisor.session.recording.store import RunStore


@pytest.fixture
def store(tmp_path):
    return RunStore(tmp_path / "runs" / "one")
