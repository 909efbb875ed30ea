"""A folder that the script made in an earlier process of the run, and makes again."""

import os
from pathlib import Path

import pytest
from batchadvisor.probes.worker.made_folders import may_be_made_again


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "mkdir", os.mkdir)  # put back when the test is over
    monkeypatch.chdir(tmp_path)
    (tmp_path / "logs").mkdir()
    (tmp_path / "other").mkdir()
    may_be_made_again(("logs", str(tmp_path / "logs" / "sample")))
    return tmp_path


def test_it_is_made_again(folder):
    os.makedirs("logs")  # noqa: PTH103
    os.makedirs("logs/sample")  # noqa: PTH103
    os.mkdir(b"logs")  # noqa: PTH102
    Path("logs").mkdir()
    Path("logs", "sample").mkdir(parents=True)
    assert (folder / "logs" / "sample").is_dir()


def test_any_other_is_refused(folder):
    with pytest.raises(FileExistsError):
        os.makedirs("other")  # noqa: PTH103
    with pytest.raises(FileExistsError):
        Path("other").mkdir()
    at = os.open(folder / "other", os.O_RDONLY)
    os.mkdir("logs", dir_fd=at)
    with pytest.raises(FileExistsError):
        os.mkdir("logs", dir_fd=at)
    os.close(at)


def test_a_file_of_that_name_is_refused(folder):
    (folder / "logs").rmdir()
    (folder / "logs").write_text("")
    with pytest.raises(FileExistsError):
        os.makedirs("logs")  # noqa: PTH103
