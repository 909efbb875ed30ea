"""What a loop catches and forgets."""

import subprocess
import sys

import pytest

CODE = """
import sys, torch
from batchadvisor.probes.swallowed import Witness
witness = Witness()
{before}
def loop():
    for number in range(3):
        witness.look()
        try:
            {action}
        except Exception:
            pass
loop()
witness.stop()
print([witness.seen, witness.out_of_memory, sys.gettrace() is None])
"""


def seen(action, tmp_path, before=""):
    """Exceptions count in the user's files alone, so the code stands in one."""
    file = tmp_path / "script.py"
    file.write_text(CODE.format(action=action, before=before))
    done = subprocess.run(
        [sys.executable, file], capture_output=True, text=True, check=False, timeout=100
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize(
    ("action", "wanted"),
    [
        ("torch.zeros(2, 3) @ torch.zeros(4)", "['RuntimeError: size mismatch, "),
        ("raise MemoryError('no')", "['MemoryError: no', True, True]"),
        ("raise RuntimeError('CUDA out of memory.')", "['RuntimeError: CUDA out of memory.', True"),
        ("{}['x']", "[\"KeyError: 'x'\", False, True]"),
        ("next(iter([]))", "['', False, True]"),
        ("pass", "['', False, True]"),
    ],
)
def test_what_is_seen(action, wanted, tmp_path):
    assert seen(action, tmp_path).startswith(wanted)


def test_a_debugger_is_left_alone(tmp_path):
    before = "def trace(*_): return None\nsys.settrace(trace)"
    assert seen("{}['x']", tmp_path, before) == "['', False, False]"
