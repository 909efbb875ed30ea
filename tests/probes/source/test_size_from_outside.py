"""The batch size comes from an option, or from callers of the function with the loader."""

import pytest
from batchadvisor.probes.source.batch_size_source import find_batch_size_source
from batchadvisor.records import SourceLine

from .as_shown import changed, shown

PARSER = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("-b", "--batch-size", type=int, default=16, help="samples")
args = parser.parse_args()
"""
LOADER = "loader = DataLoader(ds, batch_size=args.batch_size)  # here\n"
WRAPPER = """
class InfiniteDataLoader:
    def __init__(self, dataset, **kwargs):
        sampler = torch.utils.data.RandomSampler(dataset, replacement=True)
        self.loader = DataLoader(dataset, sampler=sampler, **kwargs)  # here
        self.iterator = iter(self.loader)

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--num-workers", "-n", type=int, default=4)
    parser.add_argument("--batch-size", "-b", type=int, default=16)
    args = parser.parse_args()
    loader = InfiniteDataLoader(train, batch_size=args.batch_size, num_workers=args.num_workers)
"""
"""Keywords that a wrapper passes on, as in karpathy/makemore."""
OPTIONS = {
    "default": (PARSER + LOADER, 4, "default={}", "--batch-size"),
    "beside another option": (
        PARSER + LOADER + 'parser.add_argument("--test-batch-size", default=16)\n',
        4, "default={}", "--batch-size"),
    "behind an unpacked dictionary": (
        PARSER + "more = {'batch_size': args.batch_size}\nl = DataLoader(ds, **more)  # here\n",
        4, "default={}", "--batch-size"),
    "behind a batch sampler made before": (
        PARSER + "batches = GroupedBatchSampler(sampler, groups, args.batch_size)\n"
        "loader = DataLoader(ds, batch_sampler=batches)  # here\n",
        4, "default={}", "--batch-size"),
    "of another destination": ("""
        parser.add_argument("--bs", dest="batch", default=16)
        loader = DataLoader(ds, batch_size=args.batch)  # here
        """, 2, "default={}", "--bs"),
    "click": ("""
        @click.command()
        @click.option("--batch-size", default=16)
        def main(batch_size):
            loader = DataLoader(ds, batch_size=batch_size)  # here
        """, 3, "default={}", "--batch-size"),
    "through a wrapper": (WRAPPER, 11, "default={}", "--batch-size"),
    "of one of several subcommands": ("""
        evaluate.add_argument("--batch-size", type=int, default=256)
        train.add_argument("--batch-size", type=int, default=16)
        loader = DataLoader(ds, batch_size=args.batch_size)  # here
        """, 3, "default={}", "--batch-size"),
    "of two, by a condition": ("""
        parser.add_argument("--test-batch-size", default=1000)
        parser.add_argument("--batch-size", default=16)
        size = args.test_batch_size if test else args.batch_size
        loader = DataLoader(ds, batch_size=size)  # here
        """, 3, "default={}", "--batch-size"),
}  # fmt: skip
CALLERS = {
    "a number at the caller": (WRAPPER.replace("args.batch_size", "16"), 13, "batch_size={}"),
    "a parameter of a method": ("""
        class Data:
            def loader(self, ds, size):
                return DataLoader(ds, batch_size=size)  # here
            @staticmethod
            def other(ds, size):
                pass
        Data().loader(train, 16)
        """, 8, "Data().loader(train, {})"),
    "several functions": ("""
        def inner(ds, **settings):
            return DataLoader(ds, **settings)  # here
        def outer(ds, size, **more):
            return inner(ds, batch_size=size, **more)
        SIZE = 16
        outer(train, SIZE, shuffle=True)
        """, 6, "SIZE = {}"),
    "of two the one with the size": ("""
        def make(ds, size):
            return DataLoader(ds, batch_size=size)  # here
        make(test, 64)
        make(train, 16)
        """, 5, "make(train, {})"),
}  # fmt: skip


@pytest.mark.parametrize("how", OPTIONS)
def test_an_option(find, how):
    text, line, written, option = OPTIONS[how]
    source = find(text)
    assert shown(source) == changed(line, written)
    assert source.option == option


@pytest.mark.parametrize(
    ("text", "line", "arguments", "written"),
    [
        (PARSER + LOADER, 4, ("--batch-size", "24"), "--batch-size {}"),
        (PARSER + LOADER, 4, ("--batch-size=24",), "--batch-size={}"),
        (PARSER + LOADER, 4, ("--lr", "1", "-b", "24"), "-b {}"),
        (PARSER + LOADER, 4, ("--lr", "1", "-b24"), "-b{}"),
        (WRAPPER, 11, ("--batch-size", "24"), "--batch-size {}"),
    ],
)
def test_an_option_on_the_command_line(find, text, line, arguments, written):
    source = find(text, 24, arguments)
    assert shown(source) == changed(line, written, own=24)
    assert source.option == "--batch-size"


def test_a_required_option(find):
    text = PARSER.replace("default=16", "required=True") + LOADER
    assert shown(find(text, 24)) == (4, "--batch-size", "--batch-size 32")


def test_an_option_that_nobody_declares_here(find):
    """Hydra, a parser of dataclasses: what was typed says it."""
    source = find(LOADER, arguments=("--batch-size=16",))
    assert shown(source) == changed(1, "--batch-size={}")
    assert find(LOADER, arguments=("--batch-size=8",)).template == ""


class TestCallers:
    """The function that makes the loader gets the size from its callers."""

    @pytest.mark.parametrize("which", CALLERS)
    def test_the_caller_that_sets_it(self, find, which):
        text, line, written = CALLERS[which]
        assert shown(find(text)) == changed(line, written)

    @pytest.mark.parametrize(
        ("call", "written"),
        [
            ("make(data, 16)", "make(data, {})"),
            ("make(data, bs=16)", "bs={}"),
            ("make(*[data], bs=16)", "bs={}"),
        ],
    )
    def test_a_parameter(self, find, call, written):
        text = f"def make(ds, bs):\n    return DataLoader(ds, batch_size=bs)  # here\nl = {call}\n"
        assert shown(find(text)) == changed(3, written)

    def test_a_function_that_calls_itself(self, find):
        text = """
        def make(ds, **settings):
            if not ds:
                return make(load(), **settings)
            return DataLoader(ds, **settings)  # here
        """
        assert find(text) is None

    def test_a_caller_that_cannot_be_followed_is_named(self, find):
        source = find(WRAPPER.replace("args.batch_size", "cfg.train.size"))
        assert (source.place.line, source.before) == (13, "batch_size=cfg.train.size")

    def test_a_line_that_cannot_be_edited_is_never_named(self, find):
        assert find(WRAPPER.partition("if __name__")[0]) is None

    def test_in_another_file(self, tmp_path):
        """Who called is known by then: the lines from the loader outwards."""
        wrapper, main = tmp_path / "data.py", tmp_path / "main.py"
        wrapper.write_text("def make(ds, size, **more):\n    return DataLoader(ds, size, **more)\n")
        main.write_text(
            "parser.add_argument('--bs', default=16)\n"
            "def test():\n    return data.make(test_set, 64)\n"
            "def train():\n    return data.make(train_set, args.bs)\n"
            "train()\n"
        )
        callers = [SourceLine(file=str(main), line=line) for line in (5, 6)]
        source = find_batch_size_source(SourceLine(file=str(wrapper), line=2), 16, (), callers)
        assert (source.place, source.option) == (SourceLine(file=str(main), line=1), "--bs")

    def test_options_of_another_file(self, tmp_path):
        """The loader's own line reads `args` that the script made."""
        module, main = tmp_path / "loaders.py", tmp_path / "main.py"
        module.write_text("def make(args):\n    return DataLoader(ds, args.batch_size)\n")
        main.write_text("p.add_argument('--batch_size', default=16)\nmake(p.parse_args())\n")
        caller = SourceLine(file=str(main), line=2)
        source = find_batch_size_source(SourceLine(file=str(module), line=2), 16, (), [caller])
        assert source.place.file == str(main)
        assert shown(source) == changed(1, "default={}")
