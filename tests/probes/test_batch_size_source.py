"""Where the batch size is written, in many kinds of script."""

import textwrap

import pytest
from batchadvisor.probes.batch_size_source import find_batch_size_source
from batchadvisor.records import SourceLine


@pytest.fixture
def find(tmp_path):
    """Finds the size in a script; the line of `# here` makes the loader."""

    def _find(text, size=16, arguments=()):
        script = tmp_path / "train.py"
        source = textwrap.dedent(text)
        script.write_text(source, encoding="utf-8")
        lines = source.splitlines()
        line = next(number for number, one in enumerate(lines, 1) if "# here" in one)
        return find_batch_size_source(SourceLine(file=str(script), line=line), size, arguments)

    return _find


def shown(source, size=32):
    """(line, text before, text after), as advice shows it."""
    return source.place.line, source.before, source.template.format(size)


class TestInTheCall:
    def test_keyword(self, find):
        source = find("x = 1\nloader = DataLoader(ds, batch_size=16, shuffle=True)  # here\n")
        assert shown(source) == (2, "batch_size=16", "batch_size=32")

    def test_positional(self, find):
        source = find("loader = DataLoader(ds, 16)  # here\n")
        assert shown(source) == (1, "DataLoader(ds, 16)", "DataLoader(ds, 32)")

    def test_positional_with_module(self, find):
        source = find("loader = torch.utils.data.DataLoader(ds, 16, True)  # here\n")
        assert shown(source)[2] == "torch.utils.data.DataLoader(ds, 32, True)"

    def test_the_same_number_elsewhere_in_the_call(self, find):
        source = find("loader = DataLoader(make(16), 16, num_workers=16)  # here\n")
        assert shown(source)[2] == "DataLoader(make(16), 32, num_workers=16)"

    def test_multi_line_call(self, find):
        source = find(
            """
            loader = DataLoader(  # here
                ds,
                batch_size=16,
                shuffle=True,
            )
            """
        )
        assert shown(source) == (4, "batch_size=16", "batch_size=32")

    def test_multi_line_call_positional(self, find):
        source = find("loader = DataLoader(  # here\n    ds,\n    16,\n)\n")
        assert shown(source) == (3, "batch_size=16", "batch_size=32")

    def test_any_line_of_the_call_will_do(self, find):
        """Python names the line of the call differently from version to version."""
        source = find("loader = DataLoader(\n    ds,  # here\n    batch_size=16,\n)\n")
        assert shown(source)[:2] == (3, "batch_size=16")

    @pytest.mark.parametrize("size", [8, 64])
    def test_two_loaders_on_a_line(self, find, size):
        text = "a, b = DataLoader(x, batch_size=8), DataLoader(y, batch_size=64)  # here\n"
        source = find(text, size)
        assert shown(source) == (1, f"batch_size={size}", "batch_size=32")

    def test_letters_of_several_bytes_before_the_number(self, find):
        source = find('loader = DataLoader(load("größe→"), batch_size=16)  # here\n')
        assert shown(source) == (1, "batch_size=16", "batch_size=32")
        source = find('loader = DataLoader(load("größe→"), 16)  # here\n')
        assert shown(source)[2] == 'DataLoader(load("größe→"), 32)'

    def test_odd_line_ends(self, tmp_path):
        """A form feed or a line separator ends no line for Python."""
        script = tmp_path / "train.py"
        script.write_text('a = "é\u2028é"\n\x0c\nl = DataLoader(é("ü"), 16)\n', encoding="utf-8")
        source = find_batch_size_source(SourceLine(file=str(script), line=3), 16)
        assert shown(source) == (3, 'DataLoader(é("ü"), 16)', 'DataLoader(é("ü"), 32)')

    def test_call_that_ends_on_the_line_of_the_number(self, find):
        source = find("loader = DataLoader(ds,  # here\nölwanne, batch_size=16)\n")
        assert shown(source) == (2, "batch_size=16", "batch_size=32")
        source = find("loader = BatchSampler(s,  # here\n   é, 16)\n")
        assert shown(source) == (2, "batch_size=16", "batch_size=32")

    def test_braces_in_the_source(self, find):
        source = find('loader = DataLoader(load({"a": 1}), 16)  # here\n')
        assert shown(source)[2] == 'DataLoader(load({"a": 1}), 32)'

    def test_batch_sampler(self, find):
        source = find("loader = DataLoader(ds, batch_sampler=BatchSampler(s, 16, False))  # here\n")
        assert shown(source) == (1, "BatchSampler(s, 16, False)", "BatchSampler(s, 32, False)")

    def test_batch_sampler_by_keyword(self, find):
        source = find(
            "loader = DataLoader(ds, batch_sampler=ByLength(ds, batch_size=16))  # here\n"
        )
        assert shown(source)[0] == 1
        assert shown(source)[2] == "ByLength(ds, batch_size=32)"

    def test_batch_sampler_made_before(self, find):
        source = find(
            """
            batches = ByLength(ds, batch_size=16)
            loader = DataLoader(ds, batch_sampler=batches)  # here
            """
        )
        assert shown(source)[0] == 2
        assert shown(source)[2] == "ByLength(ds, batch_size=32)"


class TestByName:
    def test_assigned_among_others(self, find):
        loader = "\nloader = DataLoader(ds, BATCH)  # here\n"
        source = find("BATCH, (EPOCHS, LR) = 16, (16, 0.1)" + loader)
        assert shown(source) == (
            1, "BATCH, (EPOCHS, LR) = 16, (16, 0.1)", "BATCH, (EPOCHS, LR) = 32, (16, 0.1)"
        )  # fmt: skip
        source = find("EPOCHS, (BATCH, LR) = 16, (16, 0.1)" + loader)
        assert shown(source)[2] == "EPOCHS, (BATCH, LR) = 16, (32, 0.1)"
        source = find("*rest, BATCH = 16, 3, 16" + loader)
        assert source.template == ""

    def test_constant(self, find):
        source = find("BATCH = 16\nloader = DataLoader(ds, batch_size=BATCH)  # here\n")
        assert shown(source) == (1, "BATCH = 16", "BATCH = 32")

    def test_annotated_constant(self, find):
        source = find("BATCH: int = 16\nloader = DataLoader(ds, BATCH)  # here\n")
        assert shown(source) == (1, "BATCH: int = 16", "BATCH: int = 32")

    def test_of_two_assignments_the_one_with_the_value(self, find):
        source = find("B = 4\nif big:\n    B = 16\nloader = DataLoader(ds, batch_size=B)  # here\n")
        assert shown(source) == (3, "B = 16", "B = 32")

    def test_function_default(self, find):
        source = find(
            """
            def make(ds, batch_size=16, *, workers=2):
                return DataLoader(ds, batch_size=batch_size, num_workers=workers)  # here
            """
        )
        assert shown(source) == (2, "batch_size=16", "batch_size=32")

    def test_keyword_only_default(self, find):
        source = find(
            """
            def make(ds, *, size: int = 16):
                return DataLoader(ds, batch_size=size)  # here
            """
        )
        assert shown(source) == (2, "size: int = 16", "size: int = 32")

    def test_keyword_at_the_caller(self, find):
        source = find(
            """
            def make(ds, size):
                return DataLoader(ds, batch_size=size)  # here
            make(ds, size=16)
            """
        )
        assert shown(source) == (4, "size=16", "size=32")

    def test_dataclass_field(self, find):
        source = find(
            """
            class Config:
                lr: float = 0.1
                batch_size: int = 16
            loader = DataLoader(ds, batch_size=cfg.batch_size)  # here
            """
        )
        assert shown(source) == (4, "batch_size: int = 16", "batch_size: int = 32")

    def test_attribute(self, find):
        source = find(
            """
            class Trainer:
                def __init__(self):
                    self.batch = 16
                def loader(self):
                    return DataLoader(ds, batch_size=self.batch)  # here
            """
        )
        assert shown(source) == (4, "self.batch = 16", "self.batch = 32")

    def test_dictionary(self, find):
        source = find(
            """
            config = {"lr": 0.1, "batch": 16}
            loader = DataLoader(ds, batch_size=config["batch"])  # here
            """
        )
        assert shown(source) == (2, '"batch": 16', '"batch": 32')

    def test_dictionary_over_several_lines(self, find):
        source = find(
            """
            config = {
                "lr": 0.1,
                "batch":
                    16,
            }
            loader = DataLoader(ds, batch_size=config["batch"])  # here
            """
        )
        assert shown(source) == (5, "batch_size=16", "batch_size=32")

    @pytest.mark.parametrize(
        ("settings", "before", "after"),
        [
            ("{'shuffle': True, 'batch_size': 16}", "'batch_size': 16", "'batch_size': 32"),
            ("dict(shuffle=True, batch_size=16)", "batch_size=16", "batch_size=32"),
        ],
    )
    def test_unpacked(self, find, settings, before, after):
        text = "test_kwargs = {'batch_size': 16}\n"
        text += f"train_kwargs = {settings}\n"
        text += "loader = DataLoader(ds, **train_kwargs)  # here\n"
        assert shown(find(text)) == (2, before, after)

    def test_unpacked_entry_of_a_configuration(self, find):
        text = "cfg = {\n'model': {'batch_size': 16},\n'loader': {'batch_size': 16},\n}\n"
        text += "loader = DataLoader(ds, **cfg['loader'])  # here\n"
        assert shown(find(text)) == (3, "'batch_size': 16", "'batch_size': 32")

    def test_config_call(self, find):
        source = find(
            """
            cfg = Config(lr=0.1, batch_size=16)
            loader = DataLoader(ds, batch_size=cfg.batch_size)  # here
            """
        )
        assert shown(source) == (2, "batch_size=16", "batch_size=32")


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


class TestUnresolved:
    @pytest.mark.parametrize(
        "argument", ["int(os.environ['B'])", "sizes[i]", "2 * base", "cfg.train.size", "b"]
    )
    def test_the_call_is_named(self, find, argument):
        source = find(f"loader = DataLoader(ds, batch_size={argument})  # here\n")
        assert source.place.line == 1
        assert source.before == f"batch_size={argument}"
        assert source.template == ""

    def test_settings_from_a_file_are_named(self, find):
        source = find("loader = DataLoader(  # here\n    ds,\n    **cfg['loader'],\n)\n")
        assert (source.place.line, source.before, source.template) == (3, "**cfg['loader']", "")
        assert find("Trainer(model, **settings).fit()  # here\n") is None

    def test_a_batch_sampler_is_named(self, find):
        source = find("loader = DataLoader(ds, batch_sampler=PerClass(y, 3, 8))  # here\n", 24)
        assert (source.before, source.template) == ("batch_sampler=PerClass(y, 3, 8)", "")

    def test_a_number_that_is_not_the_size(self, find):
        """The line says 8, the loader has 16: it is not the place to change."""
        source = find("loader = DataLoader(ds, batch_size=8)  # here\n")
        assert source.template == ""

    def test_a_constant_of_another_value(self, find):
        source = find("B = 8\nloader = DataLoader(ds, batch_size=B * 2)  # here\n")
        assert (source.before, source.template) == ("batch_size=B * 2", "")

    def test_no_batch_size_in_the_call(self, find):
        assert find("loader = DataLoader(ds)  # here\n", size=1) is None
        assert find("loader = make()  # here\n") is None

    def test_no_source(self, tmp_path):
        place = SourceLine(file=str(tmp_path / "none.py"), line=1)
        assert find_batch_size_source(place, 16) is None

    @pytest.mark.parametrize("data", [b"def (", b"\xff\xfe\x00", b"a = '\x00'\n"])
    def test_a_file_that_is_not_python(self, tmp_path, data):
        file = tmp_path / "odd.py"
        file.write_bytes(data)
        assert find_batch_size_source(SourceLine(file=str(file), line=1), 16) is None

    def test_true_is_not_one(self, find):
        source = find("loader = DataLoader(ds, batch_size=True)  # here\n", size=1)
        assert source.template == ""
