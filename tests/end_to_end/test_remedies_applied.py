"""Findings that are planted in a script, and what their remedies say, done: the finding is gone."""

import os
import re
from typing import NamedTuple

import pytest
from batchadvisor.advisor.explain.remedies import Workers
from batchadvisor.advisor.explain.verdict import verdict_of
from batchadvisor.probes.nvml.gpus import devices

from . import driver
from .driver import SCRIPTS, run_well
from .driver import run_preloaded as run

pytestmark = pytest.mark.slow

AGAIN = ("-q", "-o", "again", "--no-profile", "--goal", "memory")
OPTIONS = ("--json", "-q", "-o", "out", "--no-profile", "--goal", "memory")
TRAIN = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

data = TensorDataset(torch.randn(NUM, 8), torch.randn(NUM, 1))
loader = DataLoader(data, batch_size=4, shuffle=True)
model = nn.Sequential(nn.Linear(8, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
total = 0.0
for epoch in range(400):
    for x, y in loader:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        total += loss.item()
"""


def train(num=4000):
    return TRAIN.replace("NUM", str(num))


def mended(text, *edits):
    """Makes the edits of a text."""
    for before, after in edits:
        assert before in text, before
        text = text.replace(before, after)
    return text


def script(name):
    return (SCRIPTS / f"{name}.py").read_text()


class Planted(NamedTuple):
    """A finding, and what its remedy says to do.

    Attributes:
        rule: of the finding.
        says: a regular expression that its remedy matches; groups fill in `edits` and `options`.
        text: of the script.
        options: before.
        after: options in place of those, None where they stay; `{}` is filled in.
        edits: of the script.
        words: of the script.
    """

    rule: str
    says: str
    text: str
    options: tuple = ()
    after: tuple | None = None
    edits: tuple = ()
    words: tuple = ()


PLAIN = train().replace("nn.BatchNorm1d(64), ", "")
SHORT = train(64).replace("nn.BatchNorm1d(64), ", "")
ENDS = mended(
    PLAIN,
    ("total += loss.item()", "total += 1\n        if total == 60:\n            raise SystemExit"),
)
PLANTED = {
    "few steps": Planted(
        "training.few_steps", r"sizes up to \d+ leave 10 \(--max-batch (\d+)\)\.", SHORT,
        ("--max-batch", "64"), ("--max-batch", "{}"),
    ),
    "few steps at sizes": Planted(
        "training.few_steps", r"sizes up to (\d+) leave 10\.$", SHORT,
        ("--sizes", "4,32"), ("--sizes", "4,{}"),
    ),
    "far from its own": Planted(
        "training.far", r"keep to --max-batch (\d+) until", PLAIN,
        ("--max-batch", "512"), ("--max-batch", "{}"),
    ),
    "far, the batch kept": Planted(
        "training.far", r"; (--keep-effective-batch) changes nothing", PLAIN,
        ("--max-batch", "512"), ("{}",),
    ),
    "far at sizes": Planted(
        "training.far", r"keep to --sizes up to (\d+) until a larger one has trained as well\.$",
        PLAIN, ("--sizes", "4,512"), ("--sizes", "4,{}"),
    ),
    "a bound of steps": Planted(
        "bound.steps", r"(--max-batch) lifts", train(40),
        ("--goal", "throughput"), ("--goal", "throughput", "{}", "40"),
    ),
    "more than the data": Planted(
        "size.above_data", r"ask for sizes up to (\d+):", train(100),
        ("--sizes", "8,200"), ("--sizes", "8,{}"),
    ),
    "a small BatchNorm": Planted(
        "batch_norm.small", "^GroupNorm, or a larger batch", train(),
        ("--sizes", "4"), edits=(("BatchNorm1d(64)", "GroupNorm(4, 64)"),),
    ),
    "a small BatchNorm, in a larger batch": Planted(
        "batch_norm.small", "^GroupNorm, or a larger batch", train(),
        ("--sizes", "4"), ("--sizes", "4,32"),
    ),
    "a script that ends": Planted(
        "trial.script_ended", "or a larger step limit", ENDS,
        ("--sizes", "4,5,6,7,8,9,10,11,12,13,14,15"), edits=(("== 60:", "== 400_000:"),),
    ),
    "lengths": Planted(
        "inputs.vary", "^run with (--worst-case), which", script("varying_lengths"),
        ("--sizes", "4,8"), ("--sizes", "4,8", "{}"),
    ),
    "lengths, the longest cut": Planted(
        "inputs.vary", "", script("varying_lengths"),
        ("--sizes", "4,8"), edits=(("400 if i % 50 == 7 else 10 + i % 13", "10"),),
    ),
    "lengths that nobody knows": Planted(
        "inputs.unordered", r"^leave it out, and either keep memory free for them "
        r"\((--memory-margin)\) or sort", script("words_in_collate"),
        ("--sizes", "5", "--worst-case"), ("--sizes", "5", "{}", "30%"),
    ),
    "a budget below the longest": Planted(
        "budget.too_short", r"take at least max_tokens=(\d+)",
        script("token_budget").replace("max_tokens=300", "max_tokens=50"),
        ("--sizes", "60,120"), edits=(("max_tokens=50", "max_tokens={}"),),
    ),
    "two tasks": Planted(
        "steps.mixed", "trains on one of these loaders alone", script("tasks"),
        ("--sizes", "16,32"), edits=(("[task(), task()]", "[task()]"),),
    ),
    "a sum of graphs": Planted(
        "memory.creep", r"total (\+= loss\.item\(\))", PLAIN.replace("loss.item()", "loss"),
        ("--sizes", "4,8"), edits=(("+= loss\n", "{}\n"),),
    ),
    "a list of graphs": Planted(
        "memory.creep", r"(kept\.append\(loss\.item\(\)\))",
        PLAIN.replace("total = 0.0", "kept = []").replace("total += loss.item()",
        "kept.append(loss)"),
        ("--sizes", "4,8"), edits=(("kept.append(loss)", "{}"),),
    ),
    "a list that grows": Planted(
        "memory.creep", "empty or bound `kept`",
        PLAIN.replace("total = 0.0", "kept = []").replace("total += loss.item()",
        "kept.append(loss.detach())"),
        ("--sizes", "4,8"), edits=(("kept.append", "del kept[10:]; kept.append"),),
    ),
    "a last batch that fails": Planted(
        "tail.crash", r"shuffle=False, (drop_last=True)\) \(|(drop_last=True)",
        script("uneven_tail"), ("--sizes", "8"),
        edits=(("batch_size=8)", "batch_size=8, drop_last=True)"),), words=("flat",),
    ),
    "a last batch that fails, at another size": Planted(
        "tail.crash", r"batch_size = (\d+) \(", script("uneven_tail"),
        ("--sizes", "8"), ("--sizes", "{}"), words=("flat",),
    ),
    "weights that are not finite": Planted(
        "tail.nan", "drop_last=True", script("uneven_tail"), ("--sizes", "8"),
        edits=(("batch_size=8)", "batch_size=8, drop_last=True)"),), words=("nan",),
    ),
    "a short last batch": Planted(
        "tails.loader.short", r"without a harmful tail: (\d+)", train(129),
        ("--sizes", "4"), ("--sizes", "{}"),
    ),
}  # fmt: skip


def findings(folder, text, options, words):
    folder.mkdir()
    (folder / "train.py").write_text(text)
    done = run_well("run", *OPTIONS, *options, "train.py", *words, folder=folder)
    return done.findings


@pytest.mark.parametrize("name", PLANTED)
def test_what_the_remedy_says_takes_the_finding_away(name, tmp_path):
    case = PLANTED[name]
    found = findings(tmp_path / "before", case.text, case.options, case.words)
    assert case.rule in found, found
    remedy = found[case.rule].remedy
    said = re.search(case.says, remedy)
    assert said is not None, remedy
    filled = [part for part in said.groups() if part is not None]
    edits = [(before, after.format(*filled)) for before, after in case.edits]
    options = case.options if case.after is None else [part.format(*filled) for part in case.after]
    found = findings(tmp_path / "after", mended(case.text, *edits), options, case.words)
    left = found.get(case.rule)
    assert left is None or (left.severity == "info" and not left.remedy), left


LOADS = """\
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Slow(Dataset):
    def __len__(self):
        return 4000

    def __getitem__(self, i):
        time.sleep(LOAD)
        return torch.ones(8)


loader = DataLoader(Slow(), batch_size=4, num_workers=0)
model = nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for x in loader:
    optimizer.zero_grad()
    model(x).mean().backward()
    optimizer.step()
    time.sleep(REST)
"""


def wait_of(folder, text):
    """Share of a step that waited; both parts of it sleep, which a busy machine hardly changes."""
    folder.mkdir()
    (folder / "train.py").write_text(text)
    options = ("-q", "-o", "out", "--no-profile", "--sizes", "4", "--budget", "8s")
    done = run_well("run", *options, "train.py", folder=folder)
    trial = done.record.trials[0]
    return trial.input_wait_s.median / trial.step_s.median


@pytest.mark.parametrize(("load_s", "rest_s", "number"), [(0.01, 0.05, 0), (0.03, 0.06, 1)])
def test_as_many_workers_as_the_remedy_says_end_the_wait(load_s, rest_s, number, tmp_path):
    text = mended(LOADS, ("LOAD", str(load_s)), ("REST", str(rest_s)))
    text = mended(text, ("num_workers=0", f"num_workers={number}"))
    wait = wait_of(tmp_path / "before", text)
    limited = {"num_workers": number, "gpu": True}
    verdict = verdict_of(None, wait=wait, num_cores=64, **limited)
    assert verdict.limit == "input", wait
    (said,) = re.findall(r"^num_workers=(\d+) \(64 cores\), .* or cheaper", verdict.remedy)
    enough = Workers(number, wait=wait).enough
    assert int(said) == max(4, enough)
    more = mended(text, (f"num_workers={number}", f"num_workers={enough}"))
    wait = wait_of(tmp_path / "after", more)
    assert verdict_of(None, wait=wait, **limited).limit != "input", (enough, wait)


def test_cheaper_samples_end_the_wait(tmp_path):
    text = mended(LOADS, ("LOAD", "0.02"), ("REST", "0.02"))
    wait = wait_of(tmp_path / "before", text)
    verdict = verdict_of(None, wait=wait, num_workers=0, num_cores=2)
    assert verdict.limit == "input", wait
    assert "and cheaper or cached preprocessing: such workers alone do not" in verdict.remedy
    one = wait_of(tmp_path / "one worker", mended(text, ("num_workers=0", "num_workers=1")))
    assert verdict_of(None, wait=one, num_workers=1).limit == "input", one
    cheap = wait_of(
        tmp_path / "cheap", mended(text, ("0.02)\n        return", "0.0001)\n        return"))
    )
    assert verdict_of(None, wait=cheap, num_workers=0).limit != "input", cheap


class TestErrors:
    """What is done is what the error says; then the same script has an answer."""

    @pytest.mark.parametrize(
        ("options", "says", "after"),
        [
            (("--sizes", "400"), "Name smaller ones with --sizes.", ("--sizes", "8")),
            (
                ("--multiple-of", "400"),
                "A smaller --multiple-of lets smaller sizes be tried.",
                ("--multiple-of", "8", "--max-batch", "8"),
            ),
            (
                ("--sizes", "1", "--memory-limit", "200MiB"),
                "--memory-limit may be raised.",
                ("--sizes", "1", "--memory-limit", "900MiB"),
            ),
        ],
    )
    def test_nothing_fits(self, options, says, after, tmp_path):
        limit = () if "--memory-limit" in options else ("--memory-limit", "450MiB")
        words = (SCRIPTS / "memory_hungry.py",)
        done = run("run", *OPTIONS, *limit, *options, *words, folder=tmp_path)
        assert done.code == 2, done
        assert "nothing fits" in done.error
        assert done.error.endswith(says)
        done = run_well("run", *AGAIN, *limit, *after, *words, folder=tmp_path)

    @pytest.mark.parametrize(
        ("line", "says", "mended_line"),
        [
            (
                "open('numbers.txt')",
                "or give the script another path, which counts from the working folder.",
                "open('lib/numbers.txt')",
            ),
            (
                "data = TensorDataset(torch.empty(0, 8), torch.empty(0, 1))",
                "Look at the folder and the filters from which the script makes its dataset.",
                "",
            ),
            (
                "import os; os.get_terminal_size(1)",
                "or let it test sys.stdout.isatty() first.",
                "import os, sys; sys.stdout.isatty() and os.get_terminal_size(1)",
            ),
            (
                "nn.Linear(1, 1).to('cuda')",
                "give it its own option for the CPU",
                "nn.Linear(1, 1).to('cpu')",
            ),
            (
                "torch.empty(1 << 50)",
                "This is a fault of the script, not of its batch size",
                "torch.empty(1 << 5)",
            ),
        ],
        ids=["a path", "no data", "a terminal", "a GPU", "an absurd request"],
    )
    def test_a_script_that_does_not_run_here(self, line, says, mended_line, tmp_path):
        if "cuda" in line and devices():
            pytest.skip("a GPU is here")
        (tmp_path / "lib").mkdir()
        (tmp_path / "lib" / "numbers.txt").write_text("")
        text = mended(PLAIN, ("loader = ", f"{line}\nloader = "))
        (tmp_path / "train.py").write_text(text)
        done = run("run", *OPTIONS, "--sizes", "4", "train.py", folder=tmp_path)
        assert done.code == 1, done
        assert says in done.error
        (tmp_path / "train.py").write_text(mended(text, (line, mended_line)))
        done = run_well("run", *AGAIN, "--sizes", "4", "train.py", folder=tmp_path)

    def test_a_module_in_another_folder(self, tmp_path):
        (tmp_path / "lib").mkdir()
        (tmp_path / "lib" / "own_helpers.py").write_text("")
        (tmp_path / "train.py").write_text(f"import own_helpers\n{PLAIN}")
        done = driver.run("run", *OPTIONS, "--sizes", "4", "train.py", folder=tmp_path)
        assert done.code == 1, done
        assert "or add the folder that holds own_helpers to PYTHONPATH." in done.error
        path = os.pathsep.join(filter(None, ["lib", os.environ.get("PYTHONPATH")]))
        variables = {"PYTHONPATH": path}
        done = driver.run("run", *AGAIN, "--sizes", "4", "train.py", folder=tmp_path,
                          variables=variables)  # fmt: skip
        assert done.code == 0, done
