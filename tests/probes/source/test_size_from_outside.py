"""The batch size comes from an option, or from callers of the function with the loader."""

import pytest
from batchadvisor.probes.source.batch_size_source import find_batch_size_source
from batchadvisor.records import SourceLine

from .as_shown import shown

PARSER = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("-b", "--batch-size", type=int, default=16, help="samples")
args = parser.parse_args()
loader = DataLoader(ds, batch_size=args.batch_size)  # here
"""


class TestOptions:
    def test_default(self, find):
        source = find(PARSER)
        assert shown(source) == (4, "default=16", "default=32")
        assert source.option == "--batch-size"

    @pytest.mark.parametrize(
        ("arguments", "before", "after"),
        [
            (("--batch-size", "16"), "--batch-size 16", "--batch-size 32"),
            (("--batch-size=16",), "--batch-size=16", "--batch-size=32"),
            (("--lr", "1", "-b", "16"), "-b 16", "-b 32"),
            (("--lr", "1", "-b16"), "-b16", "-b32"),
        ],
    )
    def test_given_on_the_command_line(self, find, arguments, before, after):
        source = find(PARSER, arguments=arguments)
        assert shown(source) == (4, before, after)
        assert source.option == "--batch-size"

    def test_behind_an_unpacked_dictionary(self, find):
        text = PARSER.replace("# here", "") + "train_kwargs = {'batch_size': args.batch_size}\n"
        text += "loader = DataLoader(ds, **train_kwargs)  # here\n"
        assert shown(find(text)) == (4, "default=16", "default=32")

    def test_required_option(self, find):
        text = PARSER.replace("default=16", "required=True")
        source = find(text, size=24)
        assert shown(source) == (4, "--batch-size", "--batch-size 32")

    def test_destination(self, find):
        source = find(
            """
            parser.add_argument("--bs", dest="batch", default=16)
            loader = DataLoader(ds, batch_size=args.batch)  # here
            """
        )
        assert shown(source) == (2, "default=16", "default=32")
        assert source.option == "--bs"

    def test_click(self, find):
        source = find(
            """
            @click.command()
            @click.option("--batch-size", default=16)
            def main(batch_size):
                loader = DataLoader(ds, batch_size=batch_size)  # here
            """
        )
        assert shown(source) == (3, "default=16", "default=32")

    def test_behind_a_batch_sampler_that_is_made_before(self, find):
        text = PARSER.replace("loader = DataLoader(ds, batch_size=args.batch_size)  # here", "")
        text += "batches = GroupedBatchSampler(sampler, groups, args.batch_size)\n"
        text += "loader = DataLoader(ds, batch_sampler=batches)  # here\n"
        assert shown(find(text)) == (4, "default=16", "default=32")

    def test_another_option_is_not_taken(self, find):
        text = PARSER + 'parser.add_argument("--test-batch-size", default=16)\n'
        assert find(text).option == "--batch-size"


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


class TestCallers:
    """The function that makes the loader gets the size from its callers."""

    def test_keywords_that_a_wrapper_passes_on(self, find):
        """As karpathy/makemore does."""
        source = find(WRAPPER)
        assert shown(source) == (11, "default=16", "default=32")
        assert source.option == "--batch-size"

    def test_keywords_and_the_command_line(self, find):
        source = find(WRAPPER, size=24, arguments=("--batch-size", "24"))
        assert shown(source) == (11, "--batch-size 24", "--batch-size 32")

    def test_a_number_at_the_caller(self, find):
        text = WRAPPER.replace("args.batch_size", "16")
        assert shown(find(text)) == (13, "batch_size=16", "batch_size=32")

    @pytest.mark.parametrize(
        "call", ["make(data, 16)", "make(data, bs=16)", "make(*[data], bs=16)"]
    )
    def test_a_parameter(self, find, call):
        text = f"def make(ds, bs):\n    return DataLoader(ds, batch_size=bs)  # here\nl = {call}\n"
        assert shown(find(text))[:2] == (3, call if "bs" not in call else "bs=16")

    def test_a_parameter_of_a_method(self, find):
        text = """
        class Data:
            def loader(self, ds, size):
                return DataLoader(ds, batch_size=size)  # here
            @staticmethod
            def other(ds, size):
                pass
        Data().loader(train, 16)
        """
        assert shown(find(text))[2] == "Data().loader(train, 32)"

    def test_through_several_functions(self, find):
        text = """
        def inner(ds, **settings):
            return DataLoader(ds, **settings)  # here
        def outer(ds, size, **more):
            return inner(ds, batch_size=size, **more)
        SIZE = 16
        outer(train, SIZE, shuffle=True)
        """
        assert shown(find(text)) == (6, "SIZE = 16", "SIZE = 32")

    def test_of_two_callers_the_one_with_the_size(self, find):
        text = """
        def make(ds, size):
            return DataLoader(ds, batch_size=size)  # here
        make(test, 64)
        make(train, 16)
        """
        assert shown(find(text))[0] == 5

    def test_a_function_that_calls_itself(self, find):
        text = """
        def make(ds, **settings):
            if not ds:
                return make(load(), **settings)
            return DataLoader(ds, **settings)  # here
        """
        assert find(text) is None

    def test_a_caller_that_cannot_be_followed_is_named(self, find):
        text = WRAPPER.replace("args.batch_size", "cfg.train.size")
        source = find(text)
        assert (source.place.line, source.before) == (13, "batch_size=cfg.train.size")

    def test_a_line_that_cannot_be_edited_is_never_named(self, find):
        assert find(WRAPPER.partition("if __name__")[0]) is None

    def test_an_option_that_nobody_declares_here(self, find):
        """Hydra, a parser of dataclasses: what was typed says it."""
        text = "loader = DataLoader(ds, batch_size=cfg.batch_size)  # here\n"
        source = find(text, arguments=("--batch-size=16",))
        assert shown(source)[1:] == ("--batch-size=16", "--batch-size=32")
        assert find(text, arguments=("--batch-size=8",)).template == ""

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
        place = SourceLine(file=str(wrapper), line=2)
        source = find_batch_size_source(place, 16, (), callers)
        assert source.place == SourceLine(file=str(main), line=1)
        assert source.option == "--bs"

    def test_options_of_another_file(self, tmp_path):
        """The loader's own line reads `args` that the script made."""
        module, main = tmp_path / "loaders.py", tmp_path / "main.py"
        module.write_text("def make(args):\n    return DataLoader(ds, args.batch_size)\n")
        main.write_text("p.add_argument('--batch_size', default=16)\nmake(p.parse_args())\n")
        caller = SourceLine(file=str(main), line=2)
        place = SourceLine(file=str(module), line=2)
        source = find_batch_size_source(place, 16, (), [caller])
        assert (source.place.file, shown(source)) == (str(main), (1, "default=16", "default=32"))


def test_a_parameters_default_is_not_what_its_caller_gave(find):
    """As nlp_example.py of Accelerate does."""
    source = find(
        """
        def get_dataloaders(accelerator, batch_size=16):
            return DataLoader(ds, batch_size=batch_size)  # here

        def training_function(config):
            lr, batch_size = config["lr"], int(config["batch_size"])
            return get_dataloaders(accelerator, batch_size)

        training_function({"lr": 2e-5, "batch_size": 16})
        """
    )
    assert shown(source) == (9, '"batch_size": 16', '"batch_size": 32')
