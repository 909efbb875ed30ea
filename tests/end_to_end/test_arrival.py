"""Sizes that are asked for and change nothing of what a step trains on."""

import pytest

from .driver import run_preloaded as run
from .driver import run_well

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
ONE_ITEM = ITEMS.replace("COLLATE", "lambda items: items[0]")
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
QUICK = (
    *("--json", "-q", "-o", "out", "--no-profile", "--goal", "memory", "--sizes", "4,16"),
    *("--budget", "60s"),
)


@pytest.mark.parametrize(
    ("text", "words", "said"),
    [
        (
            CONSTANT,
            ("--batch-size", "{batch_size}"),
            (
                "asked for 8 and 32 by --batch-size, every step trained on 32 x 10 both times (the "
                "first tensor that entered the model). Name what sets it: batchadvisor run -q "
                "--budget 60s --set B={batch_size} train.py. "
                "train.py:2 may set it: B = 32."
            ),
        ),
        (
            OPTIONS.replace("2 ** 5", "32"),
            ("--batch-size={batch_size}",),
            (
                "asked for 24 and 96 by --batch-size, every step trained on 32 x 10 both times "
                "(the first tensor that entered the model). Name what sets it: batchadvisor run "
                "-q --budget 60s train.py --mini-batch-size {batch_size}. "
                "train.py:15 may set it: default=32 of --mini-batch-size."
            ),
        ),
        (
            ONE_ITEM,
            (),
            "where batches are made. train.py:14 may set it: rows=64.",
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


def test_items_that_are_joined_follow_the_size(tmp_path):
    joined = "lambda items: tuple(map(torch.cat, zip(*items)))"
    (tmp_path / "train.py").write_text(ITEMS.replace("COLLATE", joined))
    done = run_well("run", *QUICK, "train.py", folder=tmp_path)
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
    done = run_well("run", *[word for word in QUICK if word != "-q"], *words, folder=tmp_path)
    assert done.record.discovery.native_batch_size == 48
    arrived = [trial.arrived_batch_size for trial in done.record.trials if trial.ran]
    assert arrived == [trial.batch_size for trial in done.record.trials if trial.ran]
    assert len(set(arrived)) > 1
    assert (
        "every step trained on 48 x 10, whatever the loader was asked for: --mini-batch-size=48 "
        "sets the size, and the script is started once for each"
    ) in done.stderr
    # What the user insists on is steered.
    insisted = ("-q", "--budget", "60s", "--loader", "0", "-o", "again")
    done = run("run", *insisted, *words, folder=tmp_path)
    assert done.code == 1, done
    assert "by batch_size, every step trained on 48 x 10 both times" in done.error
    assert "--mini-batch-size=48 on the command line may set it." in done.error
    follow = "--template train.py --mini-batch-size={batch_size}"
    assert follow in done.error
    assert done.stdout == ""
    quick = ["third" if word == "out" else word for word in QUICK]
    done = run_well("run", *quick, *follow.split(), folder=tmp_path)
    assert [trial.arrived_batch_size for trial in done.record.trials if trial.ran][:2] == [4, 16]


EVENTS = f"""\
import torch
from torch.utils.data import DataLoader
{TRAIN}
class Events(DataLoader):
    def __init__(self, num, batch_size):
        self.events_per_batch = batch_size
        super().__init__(range(0, num, batch_size), 1, shuffle=False, collate_fn=self)
    def __call__(self, starts):
        return batch(self.events_per_batch)
BATCH_SIZE = 40
nodes = torch.nn.Linear(10, 10)
seen = BATCH_SIZE
while True:
    for x, y in Events(4000, BATCH_SIZE):
        seen += 20
        train(nodes(torch.randn(seen, 10))[: len(x)] + x, y)
"""


def test_a_loader_that_cuts_its_batches_itself(tmp_path):
    """It draws one start for each, and what else enters the model grows by itself."""
    (tmp_path / "train.py").write_text(EVENTS)
    words = ("--goal", "knee", "--budget", "60s", "--max-batch", "160", "--no-profile")
    done = run_well("run", *words, "--json", "-o", "out", "train.py", folder=tmp_path)
    assert "BATCH_SIZE = 40 (train.py:19) sets the size" in done.stderr
    discovery = done.record.discovery
    assert (discovery.native_batch_size, discovery.primary.num_samples) == (40, None)
    ran = [trial.batch_size for trial in done.record.trials if trial.ran]
    assert ran[0] == 40  # the script's own comes first


@pytest.mark.parametrize("known", [True, False])
def test_the_own_size_is_found_by_doing_what_is_written(known, tmp_path):
    """Where the text does not say it."""
    text = OPTIONS if known else OPTIONS.replace("default=2 ** 5", "required=True")
    (tmp_path / "train.py").write_text(text)
    words = ("train.py", "--mini-batch-size", "{batch_size}")
    done = run_well("run", *QUICK, *words, folder=tmp_path)
    discovery, advice = done.record.discovery, done.advice
    if known:
        assert (discovery.native_batch_size, discovery.why_own_unknown) == (32, "")
        return
    assert "does not come to its training loop" in discovery.why_own_unknown
    assert (advice.standing, advice.native, advice.training) == ("own unknown", None, None)
    assert "The script's own size is unknown, nothing is compared with it" in advice.reason
    assert advice.headline.startswith("Use batch size 16")
    assert advice.change == "the script's argument {batch_size} → 16"
