"""Options that libraries make of fields and parameters: the one that is found is one they take."""

import subprocess
import sys

import pytest
from batchadvisor.probes.source.named_size import Script, find_size
from batchadvisor.probes.source.placeholder import filled

from ..needs import framework_of_scripts

pytestmark = pytest.mark.frameworks

CLASS = """\
from dataclasses import dataclass, field
@dataclass
class Args:
    lr: float = 0.1
    batch_size: int = 24
"""
SCRIPTS = {
    "tyro": "import tyro\n" + CLASS + "print(tyro.cli(Args).batch_size)",
    "tyro, nested": "import tyro\n"
    + CLASS
    + "@dataclass\nclass All:\n    train: Args = field(default_factory=Args)\n"
    + "print(tyro.cli(All).train.batch_size)",
    "transformers": "from transformers import HfArgumentParser\n"
    + CLASS
    + "print(HfArgumentParser(Args).parse_args_into_dataclasses()[0].batch_size)",
    "simple_parsing": "import simple_parsing\n"
    + CLASS
    + "print(simple_parsing.parse(Args).batch_size)",
    "simple_parsing, a parser": "from simple_parsing import ArgumentParser\n"
    + CLASS
    + "parser = ArgumentParser()\nparser.add_arguments(Args, dest='args')\n"
    + "print(parser.parse_args().args.batch_size)",
    "fire": "import fire\ndef main(batch_size=24):\n    print(batch_size)\nfire.Fire(main)",
    "typer": "import typer\ndef main(batch_size: int = 24):\n    print(batch_size)\n"
    "typer.run(main)",
    "absl": "from absl import app, flags\nflags.DEFINE_integer('batch_size', 24, '')\n"
    "app.run(lambda _: print(flags.FLAGS.batch_size))",
    "click": "import click\n@click.command()\n@click.option('--batch-size', default=24)\n"
    "def main(batch_size):\n    print(batch_size)\nmain()",
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_library_takes_it(name, tmp_path, monkeypatch):
    framework_of_scripts(name.partition(",")[0])
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(SCRIPTS[name] + "\n")
    place = find_size(Script("train.py"))
    assert place.number == 24
    printed = [
        subprocess.run(
            [sys.executable, "train.py", *words], capture_output=True, text=True, check=True
        ).stdout.strip()
        for words in ((), filled(place.arguments, 7))
    ]
    assert printed == ["24", "7"]
