"""The line that sets a budget: an argument, a name, an option, a number in a range."""

import textwrap

import pytest
from batchadvisor.probes.loader.remade_samplers import BUDGET_NAME
from batchadvisor.probes.source.setting_source import find_setting_source
from batchadvisor.records import SourceLine


def looked_for(tmp_path, text, names, values, *arguments, made_by="Batches"):
    script = tmp_path / "train.py"
    script.write_text(textwrap.dedent(text))
    place = SourceLine(file=str(script), line=1)
    return find_setting_source(names, values, (place,), arguments, made_by)


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


def test_a_number_out_of_range_is_not_the_budget(tmp_path):
    assert looked_for(tmp_path, "a = cut(max_tokens=4096)", BUDGET_NAME, (5000, 5100)) is None
    assert looked_for(tmp_path, "a = cut(seed=5050)", BUDGET_NAME, (5000, 5100)) is None
