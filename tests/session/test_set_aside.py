"""What a part of a run wrote, while another part may do without it."""

import pytest
from batchadvisor.records import Profile
from batchadvisor.session.recording.store import SAMPLES, RunStore

from ..on_paper import trial_of


def traced(name):
    return trial_of(8, 0.1, profile=Profile(trace=f"traces/{name}"))


@pytest.fixture
def store(tmp_path):
    """Rows and a trace of the first part."""
    store = RunStore(tmp_path / "out")
    (store.folder / "traces").mkdir()
    (store.folder / "traces/first.json").write_text("first")
    store.append([{"trial": 0}])
    yield store
    store.close()


def files(store):
    return {
        str(path.relative_to(store.folder)): path.read_text().strip()
        for path in store.folder.rglob("*")
        if path.is_file() and path.suffix != ".lock" and path.read_text()
    }


def test_it_is_there_again_where_the_other_part_came_to_nothing(store):
    before = files(store)
    store.set_aside([traced("first.json")])
    assert SAMPLES not in files(store)
    store.append([{"trial": 0, "of": "the second"}])
    (store.folder / "traces/first.json").write_text("second")
    store.put_back([traced("first.json")])
    assert files(store) == before


def test_nothing_is_left_of_it_where_the_other_part_stands(store):
    store.set_aside([traced("first.json")])
    (store.folder / "traces/second.json").write_text("second")
    store.append([{"trial": 0, "of": "the second"}])
    store.forget_aside()
    left = files(store)
    assert left.pop("traces/second.json") == "second"
    assert list(left) == [SAMPLES]
    assert "the second" in left[SAMPLES]
