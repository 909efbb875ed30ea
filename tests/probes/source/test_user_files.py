"""The files in which the size of a script is looked for."""

import sys
from types import ModuleType

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
    for nth, file in enumerate(files):
        module = ModuleType(f"of_the_user_{nth}")
        module.__file__ = str(file)
        monkeypatch.setitem(sys.modules, module.__name__, module)
    assert "models/cnn.py" in call_site.user_files()
