"""What is said of a file that was written."""

import pytest
from batchadvisor.cli.common import wrote


@pytest.mark.parametrize(
    ("num_bytes", "size"),
    [(0, "0 bytes"), (999, "999 bytes"), (1000, "1 kB"), (1499600, "1500 kB")],
)
def test_its_size_is_never_rounded_to_nothing(tmp_path, capsys, num_bytes, size):
    path = tmp_path / "plan.md"
    path.write_bytes(b"x" * num_bytes)
    wrote("plan", path)
    assert capsys.readouterr().out == f"Wrote plan  {path} ({size})\n"
