"""The line that sets a budget: an argument, a name, an option, a number in a range."""

import textwrap

import pytest
from batchadvisor.probes.loader.remade_samplers import BUDGET_NAME
from batchadvisor.probes.source.setting_source import find_setting_source
from batchadvisor.records import SourceLine


def looked_for(tmp_path, text, names, values, *arguments, made_by="Batches", **outside):
    script = tmp_path / "train.py"
    script.write_text(textwrap.dedent(text))
    place = SourceLine(file=str(script), line=1)
    return find_setting_source(names, values, (place,), arguments, made_by, **outside)


@pytest.mark.parametrize(
    ("text", "line", "after"),
    [
        ("a = Batches(lengths, max_tokens=4096)", 1, "max_tokens=512"),
        ("MAX = 4096\na = Batches(lengths, max_tokens=MAX)", 1, "MAX = 512"),
        ("import x\na = Batches(lengths, 4096)", 2, "Batches(lengths, 512)"),
        ("settings = {'max_tokens': 4096}\nBatches(**settings)", 1, "'max_tokens': 512"),
    ],
)
def test_where_it_is_written(tmp_path, text, line, after):
    source, name, value = looked_for(tmp_path, text, "max_tokens", (4096, 4096))
    assert (name, value) == ("max_tokens", 4096)
    assert (source.place.line, source.template.format(512)) == (line, after)


OPTION = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--max-tokens", type=int, default=4096)
args = parser.parse_args()
batches = by_size(order, args.max_tokens)
"""


def test_an_option(tmp_path):
    source, name, value = looked_for(tmp_path, OPTION, BUDGET_NAME, (4000, 4200))
    assert (name, value, source.option) == ("max_tokens", 4096, "--max-tokens")
    typed = ("--max-tokens", "4100")
    source, _, value = looked_for(tmp_path, OPTION, BUDGET_NAME, (4100, 4100), *typed)
    assert (value, source.template.format(512)) == (4100, "--max-tokens 512")


@pytest.mark.parametrize("text", ["a = cut(max_tokens=4096)", "a = cut(seed=5050)"])
def test_a_number_out_of_range_or_of_another_name_is_not_the_budget(tmp_path, text):
    assert looked_for(tmp_path, text, BUDGET_NAME, (5000, 5100)) is None


READ = """
import yaml
cfg = yaml.safe_load(open("conf.yaml"))
batches = by_size(order, cfg["data"]["max_tokens"])
"""
FILES = {
    "conf.yaml": ("data:\n  shuffle: true\n  max_tokens: 4096\n", 3, "max_tokens: 512"),
    "conf.toml": ("[data]\nmax_tokens = 4096\n", 2, "max_tokens = 512"),
    "conf.json": ('{"data":\n {"max_tokens": 4096}}', 2, '"max_tokens": 512'),
}


def opened(tmp_path, text, name="conf.yaml"):
    """A settings file that the script has opened."""
    (tmp_path / name).write_text(text)
    return [(tmp_path / name, name)]


@pytest.mark.parametrize("names", ["max_tokens", BUDGET_NAME])
@pytest.mark.parametrize("kind", FILES)
def test_in_a_settings_file(tmp_path, kind, names):
    text, line, after = FILES[kind]
    settings = opened(tmp_path, text, kind)
    source, name, value = looked_for(tmp_path, READ, names, (4096, 4096), settings=settings)
    assert (name, value) == ("max_tokens", 4096)
    assert (source.place.file, source.place.line) == (kind, line)
    assert source.template.format(512) == after


def test_a_settings_file_comes_before_the_default_that_it_repeats(tmp_path):
    settings = opened(tmp_path, "max_tokens: 4096\n")
    text = "class Settings:\n    max_tokens: int = 4096\n"
    source, _, _ = looked_for(tmp_path, text, "max_tokens", (4096, 4096), settings=settings)
    assert source.place.file == "conf.yaml"
    assert [(other.place.line, other.number) for other in source.others] == [(2, 4096)]


def test_an_override_is_the_last_word(tmp_path):
    settings = opened(tmp_path, "data:\n  max_tokens: 2048\n")
    typed = "data.max_tokens=4096"
    found = looked_for(tmp_path, READ, BUDGET_NAME, (4096, 4096), typed, settings=settings)
    source, name, value = found
    assert (name, value) == ("max_tokens", 4096)
    assert source.template.format(512) == "data.max_tokens=512"


def test_a_dataclass_of_another_file(tmp_path):
    other = tmp_path / "settings.py"
    other.write_text("@dataclass\nclass Data:\n    max_tokens: int = 4096\n    seed: int = 4095\n")
    text = "batches = by_size(order, cfg.max_tokens)"
    found = looked_for(tmp_path, text, BUDGET_NAME, (4000, 4100), files=[str(other)])
    source, name, value = found
    assert (name, value, source.place.line) == ("max_tokens", 4096, 3)
    assert source.template.format(512) == "max_tokens: int = 512"


def test_settings_of_another_number_or_name_are_not_the_budget(tmp_path):
    settings = opened(tmp_path, "max_tokens: 100\nseed: 4096\n")
    assert looked_for(tmp_path, READ, BUDGET_NAME, (4096, 4096), settings=settings) is None
