"""Remedies written into the text of a script: the lines as `git apply` gets them, or the reason."""

import subprocess
import textwrap
from pathlib import Path

import msgspec
import pytest
from batchadvisor.features.remedies.edits import edits_of
from batchadvisor.features.remedies.settings import Settings
from batchadvisor.records import SourceLine
from batchadvisor.session.change_diff import Edit, NoDiffError, diff_of, edited

from .known import A_SCRIPT

TRAIN = """\
import torch
from torch.utils.data import DataLoader

model = make()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(data, batch_size=8)
for epoch in range(3):
    for batch in loader:
        out = model(batch)
        loss = out.mean()
        loss.backward()
        optimizer.step()
"""


def line_of(text, words):
    (number,) = [n for n, line in enumerate(text.splitlines(), 1) if words in line]
    return SourceLine(file="train.py", line=number)


def after(settings, text=TRAIN, **places):
    """The lines of the text that are new with these settings."""
    Path("train.py").write_text(text)
    words = {
        "loader_place": "DataLoader(",
        "call_place": " model(",
        "backward_place": ".backward(",
        "optimizer_place": "SGD(",
        **places,
    }
    places = {
        name: None if each is None else line_of(text, each)
        for name, each in words.items()
        if each is None or each in text
    }
    used = msgspec.structs.replace(A_SCRIPT, **places)
    changed = edited(text.encode(), edits_of(settings, used, "train.py")).decode()
    compile(changed, "train.py", "exec")
    return changed


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


class TestCalls:
    WORKERS = Settings(num_workers=2, persistent_workers=True)

    @pytest.mark.parametrize(
        ("call", "changed"),
        [
            ("DataLoader(data)", "DataLoader(data, num_workers=2, persistent_workers=True)"),
            (
                "DataLoader(data, num_workers=args.n)",
                "DataLoader(data, num_workers=2, persistent_workers=True)",
            ),
            (
                "DataLoader(\n    data,\n    num_workers=0,  # few\n)",
                "DataLoader(\n    data,\n    num_workers=2, persistent_workers=True,  # few\n)",
            ),
            (
                "DataLoader((data), batch_size=(8))",
                "DataLoader((data), batch_size=(8), num_workers=2, persistent_workers=True)",
            ),
            (
                "torch.utils.data.DataLoader(dataset=data)",
                "torch.utils.data.DataLoader(dataset=data, num_workers=2, persistent_workers=True)",
            ),
            (
                "DataLoader(Words('ä'), 8)",
                "DataLoader(Words('ä'), 8, num_workers=2, persistent_workers=True)",
            ),
        ],
    )
    def test_arguments_are_added_or_replaced(self, call, changed):
        text = f"loader = {call}\n"
        assert after(self.WORKERS, text) == f"loader = {changed}\n"

    @pytest.mark.parametrize(
        ("call", "why"),
        [
            ("DataLoader(data, **options)", "from elsewhere"),
            ("make_loader(DataLoader(a), DataLoader(b))", "by that name"),
            ("Loader(data)  # DataLoader(", "by that name"),
        ],
    )
    def test_calls_that_cannot_be_changed_so(self, call, why):
        with pytest.raises(NoDiffError, match=why):
            after(self.WORKERS, f"loader = {call}\n")

    def test_an_optimizer_is_known_by_its_class(self):
        assert "SGD(model.parameters(), lr=0.1, fused=True)" in after(Settings(optimizer="fused"))

    def test_two_remedies_of_one_call(self):
        changed = after(self.WORKERS.and_(Settings(prefetch_factor=4, pin_memory=True)))
        assert "prefetch_factor=4, persistent_workers=True, pin_memory=True)" in changed


class TestStatements:
    def test_autocast_stands_around_the_forward_pass_and_the_loss(self):
        changed = after(Settings(autocast="bfloat16"))
        assert changed == TRAIN.replace(
            "        out = model(batch)\n        loss = out.mean()\n",
            '        with torch.autocast("cpu", dtype=torch.bfloat16):\n'
            "            out = model(batch)\n            loss = out.mean()\n",
        )

    @pytest.mark.parametrize(
        ("before", "text", "why"),
        [
            ("        out = model(batch)\n        loss = out.mean()\n        loss.backward()",
             "        out = model(batch).mean().backward()", "side by side"),
            ("loss = out.mean()", "loss = out.mean(); print('''a\n''')", "several lines"),
            ("import torch\n", "import torch as t\nfrom torch import optim\n", "import torch"),
            ("loss = out.mean()", "loss = out.mean()\n        if 0: loss.backward( )", "several"),
        ],
    )  # fmt: skip
    def test_loops_that_are_left_as_they_are(self, before, text, why):
        text = TRAIN.replace(before, text).replace("torch.optim.SGD", "SGD")
        with pytest.raises(NoDiffError, match=why):
            after(Settings(autocast="bfloat16"), text, backward_place="loss.backward()"
                  if "loss.backward()" in text else ".backward()")  # fmt: skip

    def test_a_model_is_compiled_before_its_loop(self):
        changed = after(Settings(compile="default"))
        assert "model.compile()\nfor epoch in range(3):\n" in changed

    def test_in_the_function_that_makes_it(self):
        main = f"import torch\ndef main():\n{textwrap.indent(TRAIN, '    ')}"
        changed = after(Settings(compile="default"), main)
        assert "    model.compile()\n    for epoch in range(3):\n" in changed

    def test_not_in_one_that_is_called_with_it(self):
        text = TRAIN.replace("for epoch in range(3):", "def train(model):")
        with pytest.raises(NoDiffError, match="made elsewhere"):
            after(Settings(compile="default"), text)


class TestTop:
    def test_threads_are_set_behind_the_imports(self):
        changed = after(Settings(threads=1, variables=(("OMP_NUM_THREADS", "1"),)))
        assert "DataLoader\ntorch.set_num_threads(1)\n\nmodel" in changed

    def test_not_where_the_script_sets_them(self):
        text = TRAIN.replace("model =", "torch.set_num_threads(2)\nmodel =", 1)
        with pytest.raises(NoDiffError, match=r"sets torch\.set_num_threads itself"):
            after(Settings(threads=1), text)

    @pytest.mark.parametrize(
        "settings",
        [
            Settings(variables=(("A", "1"),)),
            Settings(checkpoint=True),
            Settings(channels_last=True),
            Settings(widen=True),
            Settings(autocast="float16"),
            Settings(num_workers=1).and_(Settings(checkpoint=True)),
        ],
    )
    def test_all_lines_or_none(self, settings):
        with pytest.raises(NoDiffError):
            after(settings)


def test_all_of_it_applies_as_a_diff(tmp_path):
    settings = Settings(num_workers=2, autocast="bfloat16", optimizer="fused", compile="default")
    changed = after(settings)
    used = msgspec.structs.replace(
        A_SCRIPT,
        loader_place=line_of(TRAIN, "DataLoader("),
        call_place=line_of(TRAIN, " model("),
        backward_place=line_of(TRAIN, ".backward("),
        optimizer_place=line_of(TRAIN, "SGD("),
    )
    diff = diff_of(edits_of(settings, used, "train.py"))
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    subprocess.run(["git", "apply"], input=diff, text=True, check=True, cwd=tmp_path)
    assert (tmp_path / "train.py").read_text() == changed


def test_edits_that_meet_are_refused():
    one, other = Edit("a.py", 1, 0, 1, 3, "x"), Edit("a.py", 1, 1, 1, 2, "y")
    with pytest.raises(NoDiffError, match="meet"):
        edited(b"abc\n", [one, other])
