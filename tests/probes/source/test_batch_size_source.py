"""Where the batch size is written, in many kinds of script."""

import pytest
from batchadvisor.probes.doors import script_watch
from batchadvisor.probes.source.batch_size_source import (
    find_accumulation_source,
    find_batch_size_source,
)
from batchadvisor.records import SourceLine

from .as_shown import changed, shown

IN_THE_CALL = {
    "keyword": ("x = 1\nl = DataLoader(ds, batch_size=16, shuffle=True)  # here",
                2, "batch_size={}"),
    "positional": ("l = DataLoader(ds, 16)  # here", 1, "DataLoader(ds, {})"),
    "of a module": ("l = torch.utils.data.DataLoader(ds, 16, True)  # here",
                    1, "torch.utils.data.DataLoader(ds, {}, True)"),
    "the same number elsewhere": ("l = DataLoader(make(16), 16, num_workers=16)  # here",
                                  1, "DataLoader(make(16), {}, num_workers=16)"),
    "several lines": ("l = DataLoader(  # here\n    ds,\n    batch_size=16,\n)",
                      3, "batch_size={}"),
    "several lines, positional": ("l = DataLoader(  # here\n    ds,\n    16,\n)",
                                  3, "batch_size={}"),
    # Python names the line of the call differently from version to version.
    "another line of the call": ("l = DataLoader(\n    ds,  # here\n    batch_size=16,\n)",
                                 3, "batch_size={}"),
    "letters of several bytes": ('l = DataLoader(load("größe→"), batch_size=16)  # here',
                                 1, "batch_size={}"),
    "letters of several bytes, positional": ('l = DataLoader(load("größe→"), 16)  # here',
                                             1, 'DataLoader(load("größe→"), {})'),
    "ends on the line of the number": ("l = DataLoader(ds,  # here\nölwanne, batch_size=16)",
                                       2, "batch_size={}"),
    "ends there, positional": ("l = BatchSampler(s,  # here\n   é, 16)", 2, "batch_size={}"),
    "one of two": ("l = DataLoader(ds, batch_size=64 if test else 16)  # here",
                   1, "batch_size=64 if test else {}"),
    "batch sampler": ("l = DataLoader(ds, batch_sampler=BatchSampler(s, 16, False))  # here",
                      1, "BatchSampler(s, {}, False)"),
    "batch sampler by keyword": (
        "l = DataLoader(ds, batch_sampler=ByLength(ds, batch_size=16))  # here",
        1, "ByLength(ds, batch_size={})"),
    "batch sampler made before": (
        "batches = ByLength(ds, batch_size=16)\nl = DataLoader(ds, batch_sampler=batches)  # here",
        1, "ByLength(ds, batch_size={})"),
}  # fmt: skip
BY_NAME = {
    "the first of several": (
        "BATCH, (EPOCHS, LR) = 16, (16, 0.1)\nl = DataLoader(ds, BATCH)  # here",
        1, "BATCH, (EPOCHS, LR) = {}, (16, 0.1)"),
    "inside of several": ("EPOCHS, (BATCH, LR) = 16, (16, 0.1)\nl = DataLoader(ds, BATCH)  # here",
                          1, "EPOCHS, (BATCH, LR) = 16, ({}, 0.1)"),
    "constant": ("BATCH = 16\nl = DataLoader(ds, batch_size=BATCH)  # here", 1, "BATCH = {}"),
    "one of two, by the device": (
        "BATCH = 64 if cuda.is_available() else 16\nl = DataLoader(ds, BATCH)  # here",
        1, "BATCH = 64 if cuda.is_available() else {}"),
    "annotated": ("BATCH: int = 16\nl = DataLoader(ds, BATCH)  # here", 1, "BATCH: int = {}"),
    "of two the one with the value": (
        "B = 4\nif big:\n    B = 16\nl = DataLoader(ds, batch_size=B)  # here", 3, "B = {}"),
    "function default": ("""
        def make(ds, batch_size=16, *, workers=2):
            return DataLoader(ds, batch_size=batch_size, num_workers=workers)  # here
        """, 2, "batch_size={}"),
    "keyword-only default": ("""
        def make(ds, *, size: int = 16):
            return DataLoader(ds, batch_size=size)  # here
        """, 2, "size: int = {}"),
    "keyword at the caller": ("""
        def make(ds, size):
            return DataLoader(ds, batch_size=size)  # here
        make(ds, size=16)
        """, 4, "size={}"),
    "dataclass field": ("""
        class Config:
            lr: float = 0.1
            batch_size: int = 16
        loader = DataLoader(ds, batch_size=cfg.batch_size)  # here
        """, 4, "batch_size: int = {}"),
    "attribute": ("""
        class Trainer:
            def __init__(self):
                self.batch = 16
            def loader(self):
                return DataLoader(ds, batch_size=self.batch)  # here
        """, 4, "self.batch = {}"),
    "dictionary": ("""
        config = {"lr": 0.1, "batch": 16}
        loader = DataLoader(ds, batch_size=config["batch"])  # here
        """, 2, '"batch": {}'),
    "dictionary over several lines": ("""
        config = {
            "batch":
                16,
        }
        loader = DataLoader(ds, batch_size=config["batch"])  # here
        """, 4, "batch_size={}"),
    "unpacked": ("""
        test_kwargs = {'batch_size': 16}
        train_kwargs = {'shuffle': True, 'batch_size': 16}
        loader = DataLoader(ds, **train_kwargs)  # here
        """, 3, "'batch_size': {}"),
    "unpacked from a call": ("""
        test_kwargs = {'batch_size': 16}
        train_kwargs = dict(shuffle=True, batch_size=16)
        loader = DataLoader(ds, **train_kwargs)  # here
        """, 3, "batch_size={}"),
    "unpacked entry of a configuration": ("""
        cfg = {
        'model': {'batch_size': 16},
        'loader': {'batch_size': 16},
        }
        loader = DataLoader(ds, **cfg['loader'])  # here
        """, 4, "'batch_size': {}"),
    "config call": ("""
        cfg = Config(lr=0.1, batch_size=16)
        loader = DataLoader(ds, batch_size=cfg.batch_size)  # here
        """, 2, "batch_size={}"),
    # As nlp_example.py of Accelerate does: a parameter's default is not what its caller gave.
    "a caller's number, not the default": ("""
        def get_dataloaders(accelerator, batch_size=16):
            return DataLoader(ds, batch_size=batch_size)  # here

        def training_function(config):
            lr, batch_size = config["lr"], int(config["batch_size"])
            return get_dataloaders(accelerator, batch_size)

        training_function({"lr": 2e-5, "batch_size": 16})
        """, 9, '"batch_size": {}'),
}  # fmt: skip
FOUND = {**IN_THE_CALL, **BY_NAME}


@pytest.mark.parametrize("where", FOUND)
def test_where_it_is_written(find, where):
    text, line, written = FOUND[where]
    assert shown(find(text)) == changed(line, written)


@pytest.mark.parametrize("size", [8, 64])
def test_two_loaders_on_a_line(find, size):
    text = "a, b = DataLoader(x, batch_size=8), DataLoader(y, batch_size=64)  # here\n"
    assert shown(find(text, size)) == changed(1, "batch_size={}", own=size)


def test_odd_line_ends(tmp_path):
    """A form feed or a line separator ends no line for Python."""
    script = tmp_path / "train.py"
    script.write_text('a = "é\u2028é"\n\x0c\nl = DataLoader(é("ü"), 16)\n', encoding="utf-8")
    source = find_batch_size_source(SourceLine(file=str(script), line=3), 16)
    assert shown(source) == changed(3, 'DataLoader(é("ü"), {})')


def test_a_byte_order_mark(find):
    """Editors on Windows write one; Python reads past it."""
    assert shown(find("\ufeffl = DataLoader(ds, 16)  # here\n")) == changed(1, "DataLoader(ds, {})")


def test_braces_in_the_source(find):
    source = find('loader = DataLoader(load({"a": 1}), 16)  # here\n')
    assert shown(source)[2] == 'DataLoader(load({"a": 1}), 32)'


class TestUnresolved:
    @pytest.mark.parametrize(
        "argument",
        [
            "batch_size=int(os.environ['B'])",
            "batch_size=sizes[i]",
            "batch_size=cfg.train.size",
            "batch_size=b",
            "batch_size=B * 2",
            "batch_size=8",  # the loader has 16: it is not the place to change
            "**cfg['loader']",
            "batch_sampler=PerClass(y, 3, 8)",
        ],
    )
    def test_the_call_is_named(self, find, argument):
        source = find(f"B = 8\nloader = DataLoader(  # here\n    ds,\n    {argument},\n)\n")
        assert shown(source) == (4, argument, "")

    def test_a_starred_name_has_no_place(self, find):
        source = find("*rest, BATCH = 16, 3, 16\nloader = DataLoader(ds, BATCH)  # here\n")
        assert source.template == ""

    def test_true_is_not_one(self, find):
        assert find("loader = DataLoader(ds, batch_size=True)  # here\n", size=1).template == ""

    @pytest.mark.parametrize(
        "text", ["DataLoader(ds)", "make()", "Trainer(model, **settings).fit()"]
    )
    def test_no_batch_size_in_the_call(self, find, text):
        assert find(f"loader = {text}  # here\n", size=1) is None

    @pytest.mark.parametrize("data", [None, b"def (", b"\xff\xfe\x00", b"a = '\x00'\n"])
    def test_no_file_or_one_that_is_not_python(self, tmp_path, data):
        file = tmp_path / "odd.py"
        if data is not None:
            file.write_bytes(data)
        assert find_batch_size_source(SourceLine(file=str(file), line=1), 16) is None


@pytest.mark.parametrize(
    ("text", "line", "before"),
    [
        ("args = TrainingArguments(\n    'out',\n    gradient_accumulation_steps=4)\n", 3,
         "gradient_accumulation_steps=4"),
        ("trainer = L.Trainer(accumulate_grad_batches=4)\n", 1, "accumulate_grad_batches=4"),
        ("accum_iter: int = 4\n", 1, "accum_iter: int = 4"),
        ("p.add_argument('--gradient-accumulation-steps', type=int, default=4)\n", 1, "default=4"),
        ("gradient_accumulation_steps = 2\n", None, ""),
        ("steps = 4\n", None, ""),
        ("def broken(\n", None, ""),
    ],
)  # fmt: skip
def test_accumulation_in_the_script(tmp_path, text, line, before):
    script = tmp_path / "train.py"
    script.write_text(text)
    source = find_accumulation_source(4, files=[str(script)])
    assert (None if source is None else source.place.line) == line
    if source is not None:
        assert source.before == before
        assert source.template.format(8) == before.replace("4", "8")


def test_accumulation_in_a_settings_file_and_on_the_command_line(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_text("training:\n  grad_accum_steps: 4\n")
    settings = [(path, "a.yaml")]
    source = find_accumulation_source(4, settings=settings)
    assert (f"{source.place}", source.before) == ("a.yaml:2", "grad_accum_steps: 4")
    source = find_accumulation_source(4, ("training.grad_accum_steps=4",), settings)
    assert source.template == "training.grad_accum_steps={}"
    assert find_accumulation_source(8, settings=settings) is None


def test_the_same_loader_again_costs_nothing(tmp_path, monkeypatch):
    """A script may make one in every step: its line is not looked for while steps are timed."""
    script = tmp_path / "train.py"
    script.write_text("import torch\nloader = DataLoader(data, batch_size=8)\n")
    place, asked = SourceLine(file=str(script), line=2), []

    def find(place, size, *args, **named):
        asked.append(size)
        return real(place, size, *args, **named)

    real = script_watch.find_batch_size_source
    monkeypatch.setattr(script_watch, "find_batch_size_source", find)
    watch = script_watch.ScriptWatch(())
    sources = [watch.source_of(place, size) for size in (8, 8, 16, 8)]
    assert asked == [8, 16]
    assert sources[0].template == "batch_size={}"
    assert sources[1] == sources[3] == sources[0]
