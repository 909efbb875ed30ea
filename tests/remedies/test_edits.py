"""Remedies written into the text of a script: the lines as `git apply` gets them, or the reason."""

import subprocess
import textwrap
from pathlib import Path

import msgspec
import pytest
import torch
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


PLACES = {
    "loader_place": "DataLoader(",
    "call_place": " model(",
    "backward_place": ".backward(",
    "optimizer_place": "SGD(",
}


def edits_for(settings, text=TRAIN, **places):
    """The edits of the text, which stands in a file, for these settings."""
    return edits_of(settings, places_in(text, **places), "train.py")


def places_in(text, **places):
    """What is known of the script with this text."""
    Path("train.py").write_text(text)
    words = {**PLACES, **places}
    places = {name: line_of(text, each) for name, each in words.items() if each in text}
    return msgspec.structs.replace(A_SCRIPT, **places)


def after(settings, text=TRAIN, **places):
    """The text as it is with these settings."""
    changed = edited(text.encode(), edits_for(settings, text, **places)).decode()
    compile(changed, "train.py", "exec")
    return changed


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


WORKERS = Settings(num_workers=2, persistent_workers=True)
AUTOCAST = Settings(autocast="bfloat16")
COMPILE = Settings(compile="default")
UNDER_AUTOCAST = """\
    for batch in loader:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = model(batch)
            loss = out.mean()
        loss.backward()
"""


@pytest.mark.parametrize(
    ("call", "changed"),
    [
        ("DataLoader(data)", "DataLoader(data, NEW)"),
        ("DataLoader(data, num_workers=args.n)", "DataLoader(data, NEW)"),
        (
            "DataLoader(\n    a,\n    num_workers=0,  # few\n)",
            "DataLoader(\n    a,\n    NEW,  # few\n)",
        ),
        ("DataLoader((data), batch_size=(8))", "DataLoader((data), batch_size=(8), NEW)"),
        ("torch.utils.data.DataLoader(d=data)", "torch.utils.data.DataLoader(d=data, NEW)"),
        ("DataLoader(Words('ä'), 8)", "DataLoader(Words('ä'), 8, NEW)"),
    ],
)
def test_arguments_are_added_or_replaced(call, changed):
    wanted = changed.replace("NEW", "num_workers=2, persistent_workers=True")
    assert after(WORKERS, f"loader = {call}\n") == f"loader = {wanted}\n"


@pytest.mark.parametrize(
    ("settings", "lines"),
    [
        # An optimizer is known by its class.
        (Settings(optimizer="fused"), "SGD(model.parameters(), lr=0.1, fused=True)"),
        # Two remedies of one call.
        (
            WORKERS.and_(Settings(prefetch_factor=4, pin_memory=True)),
            "prefetch_factor=4, persistent_workers=True, pin_memory=True)",
        ),
        (COMPILE, "model.compile()\nfor epoch in range(3):\n"),
        # Behind the imports.
        (
            Settings(threads=1, variables=(("OMP_NUM_THREADS", "1"),)),
            "DataLoader\ntorch.set_num_threads(1)\n\nmodel",
        ),
        (AUTOCAST, UNDER_AUTOCAST),  # the forward pass and the loss
    ],
)
def test_lines_stand_where_they_belong(settings, lines):
    assert lines in after(settings)


def test_a_model_is_compiled_in_the_function_that_makes_it():
    main = f"import torch\ndef main():\n{textwrap.indent(TRAIN, '    ')}"
    assert "    model.compile()\n    for epoch in range(3):\n" in after(COMPILE, main)


def test_a_model_that_a_loop_makes_anew_is_compiled_within_that_loop():
    """Before that loop there is no model, or the one of the round before."""
    folds = TRAIN.replace("model = make()\n", "").replace(
        "for epoch", "for fold in range(2):\n  model = make()\n  model.fold = fold\n  for epoch"
    )
    assert "  model.fold = fold\n  model.compile()\n  for epoch" in after(COMPILE, folds)
    anew = TRAIN.replace("        out", "        model = make()\n        out")
    with pytest.raises(NoDiffError, match="makes it anew"):
        after(COMPILE, anew)


def test_lines_for_torch_stand_behind_its_import():
    late = "import os\nos.environ['A'] = '1'\nimport torch\nimport sys\nx = 1\n"
    changed = after(Settings(threads=1), late)
    assert changed == late.replace("sys\n", "sys\ntorch.set_num_threads(1)\n")


def test_tabs_stay_tabs():
    changed = after(AUTOCAST, TRAIN.replace("    ", "\t"))
    assert UNDER_AUTOCAST.replace("    ", "\t") in changed


def test_an_optimizer_is_told_one_implementation():
    """torch refuses two."""
    text = TRAIN.replace("lr=0.1", "lr=0.1, foreach=True")
    changed = after(Settings(optimizer="fused"), text)
    (line,) = [each for each in changed.splitlines() if "SGD(" in each]
    model = torch.nn.Linear(1, 1)
    exec(line, {"torch": torch, "model": model})
    assert line.endswith("foreach=None, fused=True)")


@pytest.mark.parametrize(
    ("settings", "used"),
    [
        (COMPILE, {"modules": ("Generator", "Critic")}),
        (Settings(optimizer="fused"), {"num_optimizer_places": 2}),
        (Settings(threads=1).and_(Settings(variables=(("MALLOC_MMAP_MAX_", "0"),))), {}),
    ],
)
def test_what_was_changed_in_several_places_is_not_written_in_one(settings, used):
    with pytest.raises(NoDiffError):
        edits_of(settings, msgspec.structs.replace(places_in(TRAIN), **used), "train.py")


LOADER, LOSS = "DataLoader(data, batch_size=8)", "loss = out.mean()"


@pytest.mark.parametrize(
    ("settings", "before", "text", "why"),
    [
        (WORKERS, LOADER, "DataLoader(data, **options)", "from elsewhere"),
        (WORKERS, LOADER, "DataLoader(data, *options)", "from elsewhere"),
        (WORKERS, LOADER, "DataLoader(a, 8, True, None, None, 0)", "without their name"),
        (WORKERS, LOADER, "make(DataLoader(a), DataLoader(b))", "by that name"),
        (WORKERS, LOADER, "Loader(data)  # DataLoader(", "by that name"),
        (
            AUTOCAST,
            "out = model(batch)\n        loss = out.mean()\n        loss.backward()",
            "out = model(batch).mean().backward()",
            "side by side",
        ),
        (AUTOCAST, LOSS, "loss = out.mean(); print('''a\n''')", "several lines"),
        (
            AUTOCAST,
            "import torch\n",
            "import torch as t\nfrom torch import optim\n",
            "import torch",
        ),
        (AUTOCAST, LOSS, "loss = out.mean()\n        if 0: loss.backward( )", "several backward"),
        (COMPILE, "for epoch in range(3):", "def train(model):", "made elsewhere"),
        (Settings(threads=1), "model = ", "torch.set_num_threads(2)\nmodel = ", "threads itself"),
    ],
)
def test_what_is_left_as_it_is(settings, before, text, why):
    text = TRAIN.replace(before, text, 1)
    backward = "loss.backward()" if "loss.backward()" in text else ".backward()"
    with pytest.raises(NoDiffError, match=why):
        after(settings, text, backward_place=backward)


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
def test_all_lines_or_none(settings):
    with pytest.raises(NoDiffError):
        after(settings)


def test_all_of_it_applies_as_a_diff(tmp_path):
    settings = Settings(num_workers=2, autocast="bfloat16", optimizer="fused", compile="default")
    changed = after(settings)
    diff = diff_of(edits_for(settings))
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    subprocess.run(["git", "apply"], input=diff, text=True, check=True, cwd=tmp_path)
    assert (tmp_path / "train.py").read_text() == changed


def test_a_byte_order_mark_is_in_no_column(tmp_path):
    file = tmp_path / "train.py"
    file.write_text("size = 16\n", encoding="utf-8-sig")
    diff = diff_of([Edit(str(file), 1, 7, 1, 9, "48")])
    assert diff.endswith("-\ufeffsize = 16\n+\ufeffsize = 48\n")


def test_edits_that_meet_are_refused():
    one, other = Edit("a.py", 1, 0, 1, 3, "x"), Edit("a.py", 1, 1, 1, 2, "y")
    with pytest.raises(NoDiffError, match="meet"):
        edited(b"abc\n", [one, other])
