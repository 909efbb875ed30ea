"""What the GPU in software needs is named where it is missing."""

from types import SimpleNamespace

import pytest

from .conftest import builder


@pytest.fixture
def packages(tmp_path, monkeypatch):
    """A folder of packages in which a CUDA build of torch seems to be."""
    library = builder()
    for folder in ("torch/lib", "nvidia/cu13/include"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "torch/lib/libc10_cuda.so").touch()
    found = SimpleNamespace(submodule_search_locations=[str(tmp_path / "torch")])
    monkeypatch.setattr(library.importlib.util, "find_spec", lambda name: found)
    return library, tmp_path


def refused(library, tmp_path, **options):
    with pytest.raises(library.MissingError) as refusal:
        library.build(tmp_path, **options)
    return str(refusal.value)


def test_no_compiler(packages, monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert refused(*packages).startswith("no C compiler")


def test_no_cuda_build_of_torch(packages):
    _, folder = packages
    (folder / "torch/lib/libc10_cuda.so").unlink()
    assert refused(*packages).startswith("no CUDA build of torch")


def test_another_cuda_version(packages):
    _, folder = packages
    (folder / "nvidia/cu13").rename(folder / "nvidia/cu12")
    assert refused(*packages).startswith("another CUDA version")


def test_no_headers(packages, tmp_path):
    assert refused(*packages, headers=tmp_path).startswith("headers missing")
