"""What cannot be a script."""

from pathlib import Path

import pytest
from batchadvisor.errors import UsageError
from batchadvisor.session.setup.options import check_script


def test_a_script_that_may_not_be_read(tmp_path, monkeypatch):
    script = tmp_path / "model.py"
    script.touch()

    def refuse(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(UsageError) as caught:
        check_script(str(script))
    assert str(caught.value) == (
        f"cannot read {script}: Permission denied. Make it readable, or name another script."
    )
