"""The files in which the size of a script is looked for."""

from types import ModuleType, SimpleNamespace

from batchadvisor.probes.source import call_site


def test_the_project_comes_before_libraries_that_lie_beside_it(tmp_path, monkeypatch):
    """A library on PYTHONPATH may have more files than are looked through."""
    project = tmp_path / "project"
    project.mkdir()
    monkeypatch.setattr(call_site, "_started_in", [])
    monkeypatch.setattr(call_site, "MOST_FILES", 2)
    monkeypatch.chdir(project)
    files = [
        *(tmp_path / "library" / f"part{nth}.py" for nth in range(3)),
        project / "models" / "cnn.py",
    ]
    modules = {}
    for nth, file in enumerate(files):
        modules[f"module{nth}"] = module = ModuleType("module")
        module.__file__ = str(file)
    monkeypatch.setattr(call_site, "sys", SimpleNamespace(modules=modules))
    assert "models/cnn.py" in call_site.user_files()
