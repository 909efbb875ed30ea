"""Sizes that are asked for and change nothing of what a step trains on."""

import pytest

from .driver import run_preloaded as run

pytestmark = pytest.mark.slow

TRAIN = """
model = torch.nn.Linear(10, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def train(x, y):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
def batch(num):
    return torch.randn(num, 10), torch.randint(0, 2, (num,))
"""
CONSTANT = f"import torch\nB = 32\n{TRAIN}\nwhile True:\n    train(*batch(B))\n"
OPTIONS = f"""\
import argparse
import torch
{TRAIN}
parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=24)
parser.add_argument("--mini-batch-size", type=int, default=2 ** 5)
args = parser.parse_args()
while True:
    train(*batch(args.mini_batch_size))
"""
ITEMS = f"""\
import torch
from torch.utils.data import DataLoader, Dataset
{TRAIN}
class Batches(Dataset):
    def __init__(self, rows=64):
        self.rows = rows
    def __len__(self):
        return 1000
    def __getitem__(self, index):
        return batch(self.rows)
loader = DataLoader(Batches(), batch_size=1, collate_fn=COLLATE)
while True:
    for x, y in loader:
        train(x, y)
"""
CUT = f"""\
import torch
from torch.utils.data import DataLoader, TensorDataset
{TRAIN}
loader = DataLoader(TensorDataset(*batch(4096)), batch_size=16)
while True:
    for x, y in loader:
        train(x[:4], y[:4])
"""
WORKLOAD = f"""\
import torch
{TRAIN}
def workload(batch_size):
    return lambda: train(*batch(32))
"""
QUICK = ("--json", "-q", "-o", "out", "--no-profile", "--goal", "memory", "--sizes", "4,16")


@pytest.mark.parametrize(
    ("text", "words", "said"),
    [
        (
            CONSTANT,
            ("--batch-size", "{batch_size}"),
            (
                "asked for 8 and 32 by --batch-size, every step trained on 32 x 10 both times (the "
                "first tensor that entered the model). Name what sets it: batchadvisor run -q "
                "--budget 60s --set B={batch_size} train.py   (not tried). "
                "train.py:2 may set it: B = 32."
            ),
        ),
        (
            OPTIONS.replace("2 ** 5", "32"),
            ("--batch-size={batch_size}",),
            (
                "asked for 24 and 96 by --batch-size, every step trained on 32 x 10 both times "
                "(the first tensor that entered the model). Name what sets it: batchadvisor run "
                "-q --budget 60s train.py --mini-batch-size {batch_size}   (not tried). "
                "train.py:15 may set it: default=32 of --mini-batch-size."
            ),
        ),
        (
            ITEMS.replace("COLLATE", "lambda items: items[0]"),
            (),
            "by batch_size, every step trained on 64 x 10 both times",
        ),
        (CUT, (), "by batch_size, every step trained on 4 x 10 both times"),
        (
            WORKLOAD,
            ("--workload",),
            (
                "every step trained on 32 x 10 both times (the first tensor that entered the "
                "model). Make steps of the batch size that is asked for."
            ),
        ),
    ],
    ids=["constant", "option", "items", "cut", "workload"],
)
def test_a_size_that_does_not_arrive(tmp_path, text, words, said):
    (tmp_path / "train.py").write_text(text)
    command = (*words, "train.py") if "--workload" in words else ("train.py", *words)
    done = run("run", "-q", "--budget", "60s", *command, folder=tmp_path)
    assert done.code == 1, done
    assert "the batch size does not arrive: asked for " in done.error
    assert said in done.error
    assert done.stdout == ""  # no answer
    assert done.record.state == "failed"
    assert not any(trial.ran for trial in done.record.trials)


def test_the_place_of_a_batch_that_is_an_item(tmp_path):
    """A collate function that joins such items follows the size, and so is no error."""
    (tmp_path / "train.py").write_text(ITEMS.replace("COLLATE", "lambda items: items[0]"))
    done = run("run", "-q", *QUICK[4:], "train.py", folder=tmp_path)
    assert "where batches are made. train.py:14 may set it: rows=64." in done.error
    joined = "lambda items: tuple(map(torch.cat, zip(*items)))"
    (tmp_path / "train.py").write_text(ITEMS.replace("COLLATE", joined))
    done = run("run", *QUICK, "train.py", folder=tmp_path)
    assert done.code == 0, done
    assert done.record.trials[0].entered.inputs == ((4 * 64, 10),)


def test_the_option_that_was_typed(tmp_path):
    """The loader counts one item where a whole batch arrives; the option that makes it is known."""
    head = """\
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--mini-batch-size", type=int, default=1)
args = parser.parse_args()
"""
    text = head + ITEMS.replace("Batches()", "Batches(args.mini_batch_size)")
    text = text.replace("return batch(self.rows)", "return *batch(self.rows), index")
    collate = "lambda items: (*items[0][:2], torch.tensor([items[0][2]]))"
    text = text.replace("COLLATE", collate).replace("for x, y in loader", "for x, y, _ in loader")
    (tmp_path / "train.py").write_text(text)
    words = ("train.py", "--mini-batch-size=48")
    done = run("run", "-q", "--budget", "60s", *words, folder=tmp_path)
    assert done.code == 1, done
    assert "by batch_size, every step trained on 48 x 10 both times" in done.error
    assert "--mini-batch-size=48 on the command line may set it." in done.error
    follow = "--template train.py --mini-batch-size={batch_size}"
    assert follow in done.error
    assert done.stdout == ""
    done = run("run", *QUICK, *follow.split(), folder=tmp_path)
    assert done.code == 0, done
    assert [trial.arrived_batch_size for trial in done.record.trials if trial.ran][:2] == [4, 16]


class TestOwnSize:
    """Where the text does not say it, what the script does as it is written."""

    def test_it_is_found(self, tmp_path):
        (tmp_path / "train.py").write_text(OPTIONS)
        words = ("train.py", "--mini-batch-size", "{batch_size}")
        done = run("run", *QUICK, *words, folder=tmp_path)
        assert done.code == 0, done
        assert done.record.discovery.native_batch_size == 32
        assert not done.record.discovery.why_own_unknown

    def test_it_is_unknown(self, tmp_path):
        (tmp_path / "train.py").write_text(OPTIONS.replace("default=2 ** 5", "required=True"))
        words = ("train.py", "--mini-batch-size", "{batch_size}")
        done = run("run", *QUICK, *words, folder=tmp_path)
        assert done.code == 0, done
        assert "does not come to its training loop" in done.record.discovery.why_own_unknown
        assert done.advice.standing == "own unknown"
        assert done.advice.native is None
        assert done.advice.training is None
        assert "The script's own size is unknown, nothing is compared with it" in done.advice.reason
        assert done.advice.headline.startswith("Use batch size 16")
        assert done.advice.change == "the script's argument {batch_size} → 16"
