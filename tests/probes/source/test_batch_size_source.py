"""Where the batch size is written, in many kinds of script."""

import pytest
from batchadvisor.probes.source.batch_size_source import find_batch_size_source
from batchadvisor.records import SourceLine

from .as_shown import shown


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
