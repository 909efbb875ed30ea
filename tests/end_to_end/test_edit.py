"""The change that an answer names, tried in a process of its own; no file is changed."""

import pytest

from .driver import run_preloaded as run
from .driver import run_well

pytestmark = pytest.mark.slow

TRAIN = """\
import sys
import torch
from torch.utils.data import DataLoader, TensorDataset
def train(batch_size, accumulate=1):
    data = TensorDataset(torch.randn(8192, 10), torch.randint(0, 2, (8192,)))
    loader = DataLoader(data, batch_size=batch_size)
    model = torch.nn.Linear(10, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    while True:
        for number, (x, y) in enumerate(loader, 1):
            torch.nn.functional.cross_entropy(model(x), y).backward()
            if number % accumulate == 0:
                optimizer.step()
"""
PLAIN = TRAIN + "train(batch_size=16)\n"
BOUND = f"""{TRAIN}
LARGEST = 16
def main(config):
    size, accumulate = config["batch_size"], 1
    if size > LARGEST:
        size, accumulate = LARGEST, size // LARGEST
    train(size, accumulate)
main({{"batch_size": 16}})
"""
TYPED = TRAIN + "train(int(sys.argv[sys.argv.index('--batch-size') + 1]))\n"
SWALLOWED = BOUND.replace("LARGEST = 16", "LARGEST = 4 * 4")
REFUSES = TRAIN + "B = 16\nif B > 16:\n    raise ValueError('not so large')\ntrain(B)\n"
OPTIONS = ("--json", "-q", "-o", "out", "--no-profile", "--goal", "memory", "--sizes", "16,64")


CHECKED = "checked: started so, the script trains on batches of 64"


@pytest.mark.parametrize(
    ("text", "words", "change", "check"),
    [
        (PLAIN, (), "train.py:14  batch_size=16 → batch_size=64", CHECKED),
        (
            TYPED,
            ("--batch-size", "16"),
            "train.py:14  --batch-size 16 → --batch-size 64",
            CHECKED,
        ),
        (
            BOUND,
            (),
            (
                'train.py:21  "batch_size": 16 → "batch_size": 64; '
                "and train.py:15  LARGEST = 16 → LARGEST = 64"
            ),
            CHECKED,
        ),
        (
            SWALLOWED,
            (),
            'train.py:21  "batch_size": 16 → "batch_size": 64',
            (
                "checked, and not enough: started so, the script trains on batches of 16, 4 for "
                "each step"
            ),
        ),
        (
            REFUSES,
            (),
            "train.py:14  B = 16 → B = 64",
            "unchecked: started so, it did not train: ValueError: not so large",
        ),
    ],
    ids=["plain", "typed", "bound", "swallowed", "refuses"],
)
def test_the_change_is_tried(tmp_path, text, words, change, check):
    script = tmp_path / "train.py"
    script.write_text(text)
    done = run_well("run", *OPTIONS, "--budget", "120s", "train.py", *words, folder=tmp_path)
    assert done.advice.recommended.batch_size == 64
    assert done.advice.change == change
    assert done.advice.change_check == check
    assert script.read_text() == text
    for name in ("page.md", "page.html"):
        assert run("report", "out", "-o", name, folder=tmp_path).code == 0
        page = (tmp_path / name).read_text()
        assert f"({check})" in page
    told = run("advise", "out", folder=tmp_path).stdout
    assert check in " ".join(told.split())


def test_no_time_is_left_for_it(tmp_path):
    (tmp_path / "train.py").write_text(f"import time\ntime.sleep(6)\n{PLAIN}")
    options = ("--json", "-q", "-o", "out", "--no-profile", "--budget", "4s", "--goal", "memory")
    # The first trial may always be made.
    done = run_well("run", *options, "--sizes", "64", "train.py", folder=tmp_path)
    assert done.advice.change.startswith("train.py:16  batch_size=16 → batch_size=64")
    assert done.advice.change_check == "unchecked: no time was left for it"
