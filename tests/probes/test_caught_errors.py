"""What a loop catches and forgets."""

import subprocess
import sys

import pytest

START = "import sys, torch\nfrom batchadvisor.probes.doors.caught_errors import CaughtErrors\n"
LOOP = """
{before}
caught_errors = CaughtErrors()
def loop():
    for number in range(3):
        caught_errors.look()
        try:
            {action}
        except Exception:
            pass
loop()
caught_errors.stop()
print([caught_errors.seen, caught_errors.out_of_memory, sys.gettrace() is None])
"""
ACTIONS = {
    "torch.zeros(2, 3) @ torch.zeros(4)": "['RuntimeError: size mismatch, ",
    "raise MemoryError('no')": "['MemoryError: no', True, True]",
    "raise RuntimeError('CUDA out of memory.')": "['RuntimeError: CUDA out of memory.', True",
    "{}['x']": "[\"KeyError: 'x'\", False, True]",
    "next(iter([]))": "['', False, True]",
    "pass": "['', False, True]",
}
DEBUGGER = "def trace(*_): return None\nsys.settrace(trace)"


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    """What was seen of each action, and of one under a debugger; torch is imported once."""
    loops = [LOOP.format(action=action, before="") for action in ACTIONS]
    loops.append(LOOP.format(action="{}['x']", before=DEBUGGER))
    # Exceptions count in the user's files alone, so the code stands in one.
    file = tmp_path_factory.mktemp("caught") / "script.py"
    file.write_text(START + "".join(loops))
    done = subprocess.run(
        [sys.executable, file], capture_output=True, text=True, check=False, timeout=100
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == len(loops)
    return dict(zip([*ACTIONS, "under a debugger"], lines, strict=True))


@pytest.mark.parametrize("action", ACTIONS)
def test_what_is_seen(seen, action):
    assert seen[action].startswith(ACTIONS[action])


def test_a_debugger_is_left_alone(seen):
    assert seen["under a debugger"] == "['', False, False]"
