"""The threads that a script asks for at its top, by its text."""

import os

import pytest
from batchadvisor.probes.source.thread_variables import as_at_the_import, thread_variables

OMP, MKL = "OMP_NUM_THREADS", "MKL_NUM_THREADS"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (f"import os\nos.environ['{OMP}'] = '2'\nimport torch", {OMP: "2"}),
        (f"from os import environ\nenviron['{OMP}'] = str(4)", {OMP: "4"}),
        (f"import os, numpy\nos.environ.setdefault('{MKL}', '1')", {MKL: "1"}),
        (f"import os\nos.environ.update({{'{OMP}': '1'}}, {MKL}='2')", {OMP: "1", MKL: "2"}),
        (f"import os\nos.environ['{OMP}'] = '2'\nos.environ.setdefault('{OMP}', '1')", {OMP: "2"}),
        ("import os\nos.environ['OTHER'] = '1'", {}),
        (f"import os\nos.environ['{OMP}'] = os.environ['CORES']", {}),
        (f"import os\nos.environ['{OMP}'] = 2", {}),
        (f"def main():\n    os.environ['{OMP}'] = '2'\n", {}),
        (f"def main():\n    import torch\nos.environ['{OMP}'] = '2'\n", {OMP: "2"}),
        (f"import torch, os\nos.environ['{OMP}'] = '2'", {}),
        (f"from .model import Net\nos.environ['{OMP}'] = '2'", {}),
        (f"import lightning\nos.environ['{OMP}'] = '2'", {}),
        (f"try:\n    import torch\nexcept ImportError:\n    pass\nos.environ['{OMP}'] = '2'", {}),
    ],
)  # fmt: skip
def test_what_holds_where_torch_is_imported(text, found):
    assert thread_variables(text, {}) == found


def test_a_default_is_none_where_the_user_chose():
    text = f"import os\nos.environ.setdefault('{OMP}', '1')"
    assert thread_variables(text, {OMP: "8"}) == {}


def test_the_environment_is_as_it_was(tmp_path, monkeypatch):
    monkeypatch.setenv(OMP, "3")
    monkeypatch.delenv(MKL, raising=False)
    script = tmp_path / "train.py"
    script.write_text(f"import os\nos.environ.update({OMP}='1', {MKL}='1')\nimport torch")
    before = dict(os.environ)
    with as_at_the_import(script):
        assert (os.environ[OMP], os.environ[MKL]) == ("1", "1")
    assert dict(os.environ) == before
    for text in ("def", "\0"):
        script.write_text(text)
        with as_at_the_import(script):
            assert dict(os.environ) == before
    with as_at_the_import(tmp_path / "none.py"):
        assert dict(os.environ) == before
