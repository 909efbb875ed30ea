"""Where a number may be set that steps train on, whatever is asked for."""

import pytest
from batchadvisor.probes.source.number_place import place_of_number

OPTIONS = """\
parser.add_argument("-b", "--batch-size", default=32)
parser.add_argument("--mini-batch-size", default=32)
WIDTH = 32
"""


@pytest.mark.parametrize(
    ("text", "numbers", "line", "before"),
    [
        ("import torch\nB = 32\nWIDTH = 32\n", (32, 10), 2, "B = 32"),
        ("def items(n=100, rows=64):\n    pass\n", (64, 13), 1, "rows=64"),
        ("loader = Loader(batch_size=16)\nK = 16\n", (16,), 1, "batch_size=16"),
        ("settings = {'batch': 16}\n", (7, 16), 1, "'batch': 16"),
        (OPTIONS, (32,), 2, "default=32"),
        ("A = 32\nC = 32\n", (32,), None, None),
        ("A = 32.0\nC = 1\n", (32, 1), None, None),
        ("def (\n", (32,), None, None),
    ],
)
def test_the_place(tmp_path, monkeypatch, text, numbers, line, before):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(text)
    place = place_of_number("train.py", numbers, besides="--batch-size")
    if line is None:
        assert place is None
        return
    name, found = place
    assert name in found.before or text is OPTIONS
    assert (found.place.line, found.before) == (line, before)
    assert found.option == ("--mini-batch-size" if text is OPTIONS else None)
