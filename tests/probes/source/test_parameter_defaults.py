"""The size is a parameter with that very default: what calls of its function give comes first."""

import textwrap

import pytest
from batchadvisor.probes.source.batch_size_source import find_batch_size_source
from batchadvisor.records import SourceLine

DATA = """
class Data(LightningDataModule):
    def __init__(self, num=100, batch_size: int = 16):
        self.batch_size = batch_size

    def train_dataloader(self):
        return DataLoader(self.train, batch_size=self.batch_size)  # here
"""
PER_DEVICE = """
class Data(LightningDataModule):
    def __init__(self, batch_size: int = 16):
        self.per_device = batch_size

    def setup(self):
        self.per_device = self.hparams.batch_size // self.trainer.world_size

    def train_dataloader(self):
        return DataLoader(self.train, batch_size=self.per_device)  # here
"""
"""As lightning-hydra-template has it: Hydra makes it of a settings file, and no text calls it."""
DEFAULT = ("data.py", "batch_size: int = {}")
CALLS = {
    "an option, by name": (
        'parser.add_argument("--batch_size", default=16)\ndata = Data(batch_size=args.batch_size)',
        ("train.py", "default={}")),
    "a constant, by position": ("BS = 16\ndata = data.Data(100, BS)", ("train.py", "BS = {}")),
    "a number": ("data = Data(batch_size=16)", ("train.py", "batch_size={}")),
    "for training, not for evaluation": (
        "data = Data(batch_size=16)\nother = Data(batch_size=500)", ("train.py", "batch_size={}")),
    "nothing": ("data = Data(100)", DEFAULT),
    "nothing, beside a call for evaluation": (
        "data = Data(100)\nother = Data(batch_size=500)", DEFAULT),
    "nothing that is known": ("data = make(Data)", DEFAULT),
    "nothing, it is another's method": ("data = Other().Data", DEFAULT),
}  # fmt: skip


@pytest.fixture
def find(tmp_path):
    def _find(data, train="", settings="", *, seen=True):
        for name, text in (("data.py", data), ("train.py", train), ("data.yaml", settings)):
            (tmp_path / name).write_text(textwrap.dedent(text))
        line = 1 + data.partition("# here")[0].count("\n")
        source = find_batch_size_source(
            SourceLine(file=str(tmp_path / "data.py"), line=line),
            16,
            callers=[SourceLine(file=str(tmp_path / "train.py"), line=1)] if seen else [],
            settings=[(tmp_path / "data.yaml", "data.yaml")] if settings else [],
            files=[str(tmp_path / "train.py")],
        )
        return source.place.file.rpartition("/")[2], source.template

    return _find


@pytest.mark.parametrize("seen", [True, False])
@pytest.mark.parametrize("calls", CALLS)
def test_what_the_calls_give(find, calls, seen):
    train, where = CALLS[calls]
    assert find(DATA, train, seen=seen) == where


def test_a_setting_reaches_a_class_that_no_text_calls(find):
    assert find(PER_DEVICE, settings="batch_size: 16\n") == ("data.yaml", "batch_size: {}")


def test_without_a_setting_the_default_stays(find):
    assert find(PER_DEVICE, settings="batch_size: 500\n") == DEFAULT


def test_a_setting_does_not_reach_a_default_that_a_call_leaves(find):
    assert find(PER_DEVICE, "data = Data()", settings="batch_size: 16\n") == DEFAULT


def test_the_method_of_another_object_is_no_call(find):
    data = """
    def train(batch_size=16):
        for batch in DataLoader(data, batch_size):  # here
            model.train(mode)
    """
    assert find(data, "model.train(True)") == ("data.py", "batch_size={}")
