"""The one place that sets a batch size, found by its name."""

import pytest
from batchadvisor.probes.source.named_size import (
    NoPlace,
    Script,
    SizePlace,
    find_named,
    find_size,
)

TYRO = """\
import tyro
from dataclasses import dataclass
@dataclass
class Loop:
    batch_size: int = 24
@dataclass
class Args:
    loop: Loop
    eval_batch_size: int = 8
args = tyro.cli(Args)
"""
FIELDS = """\
from dataclasses import dataclass, field
@dataclass
class Base:
    batch_size: int = field(default=24)
@dataclass
class Args(Base):
    lr: float = 0.1
"""
MAIN = "def main(lr: float = 0.1, batch_size: int = 24):\n    ...\n"
COMPUTED = """\
args.minibatch_size = int(args.batch_size // args.num_minibatches)
args.batch_size = args.num_envs * args.num_steps
parser.add_argument("--num-envs", type=int, default=4)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def found(folder, text, *arguments, **more):
    (folder / "train.py").write_text(text)
    return find_size(Script("train.py", arguments, **more))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('parser.add_argument("-b", "--batch-size", default=24)', "--batch-size {batch_size}"),
        ('@click.option("--bs", default=24)\ndef main(bs): ...', "--bs {batch_size}"),
        ('flags.DEFINE_integer("batch_size", 24, "")', "--batch_size {batch_size}"),
        ('def f(size: int = typer.Option(24, "--batch-size")): ...', "--batch-size {batch_size}"),
        (TYRO, "--loop.batch-size {batch_size}"),
        (FIELDS + "HfArgumentParser((Args, Other))", "--batch_size {batch_size}"),
        (
            FIELDS + "import simple_parsing as sp\nsp.parse(config_class=Args)",
            "--batch_size {batch_size}",
        ),
        (FIELDS + "parser.add_arguments(Args, dest='args')", "--batch_size {batch_size}"),
        (FIELDS + "from tyro import cli\ncli(Args)", "--batch-size {batch_size}"),
        (MAIN + "import fire\nfire.Fire(main)", "--batch_size {batch_size}"),
        (MAIN + "import typer\ntyper.run(main)", "--batch-size {batch_size}"),
        ("batch_size = 24\nexec(open('configurator.py').read())", "--batch_size={batch_size}"),
    ],
)
def test_an_option(folder, text, words):
    place = found(folder, text + "\n", "--lr", "1")
    assert isinstance(place, SizePlace), place
    assert " ".join(place.arguments) == f"--lr 1 {words}"
    assert place.number == 24
    assert place.replacement is None
    assert place.source.template.format(24) == place.source.before


def test_a_file_that_overrides_variables(folder):
    """nanoGPT's configurator executes the files on its command line; options come after them."""
    (folder / "small.py").write_text("batch_size = 64\nunknown = 2\n")
    place = found(folder, "batch_size = 12\nexec(open('c.py').read())\n", "small.py", "--lr=1")
    assert place.arguments == ("small.py", "--lr=1", "--batch_size={batch_size}")
    assert (place.number, str(place.source.place)) == (64, "small.py:1")


@pytest.mark.parametrize(
    ("typed", "filled"),
    [
        ("-b 32 --lr 1", "-b {batch_size} --lr 1"),
        ("--batch-size=32", "--batch-size={batch_size}"),
        ("train.batch_size=32 lr=1", "train.batch_size={batch_size} lr=1"),
        ("--eval-batch-size 64 --train.bs 32", "--eval-batch-size 64 --train.bs {batch_size}"),
    ],
)
def test_what_was_typed_is_the_last_word(folder, typed, filled):
    text = 'parser.add_argument("-b", "--batch-size", default=24)\nBATCH_SIZE = 4\n'
    place = found(folder, text, *typed.split())
    assert (place.number, " ".join(place.arguments)) == (32, filled)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("BATCH_SIZE = 24\nEVAL_BATCH_SIZE = 8\n", 1),
        ("lr = 0.1\nB, T = 24, 1024\n", 2),
        ("def main():\n    batch_size = 24\n", 2),
        ("class Config:\n    batch_size = 24\n", 2),
        ("config = {\n    'batch_size': 24,\n}\n", 2),
        ("train(model, batch_size=24)\n", 1),
        (FIELDS + "args = Args()\n", 4),
        (MAIN + "main()\n", 1),
        # The more exact name, and what is said outside of functions.
        ("batch_size = 512\nmicro_batch_size = 24\n", 2),
        ("def get(batch_size=8):\n    ...\nbatch_size = 24\n", 3),
    ],
)
def test_a_number_in_the_text(folder, text, line):
    place = found(folder, text)
    assert isinstance(place, SizePlace), place
    assert (place.number, place.arguments) == (24, ())
    assert (place.replacement.line, place.replacement.number) == (line, 24)
    assert place.source.place.line == line


def test_a_number_in_a_module_of_the_script(folder):
    (folder / "settings.py").write_text("WIDTH = 8\nBATCH_SIZE = 24\n")
    place = found(folder, "import settings\nprint(settings.BATCH_SIZE)\n")
    assert str(place.source.place) == "settings.py:2"
    assert find_named(Script("train.py"), "settings.WIDTH").number == 8


@pytest.mark.parametrize(
    ("name", "text", "column"),
    [
        ("a.yaml", "data:\n  batch_size: 24  # rows\n  val_batch_size: 8\n", 14),
        ("a.json", '{\n "lr": 1,\n "batch_size": 24}\n', 15),
        ("a.toml", "[train]\nbatch_size = 24\n", 13),
    ],
)
def test_a_key_of_a_settings_file(folder, name, text, column):
    (folder / name).write_text(text)
    for place in (found(folder, "", "--config", name), found(folder, "", settings=(name,))):
        assert place.number == 24
        assert str(place.source.place).startswith(name)
        assert place.replacement.column == column
        assert place.replacement.end_column == column + 2


def test_a_module_is_run(folder):
    (folder / "pkg").mkdir()
    (folder / "pkg/train.py").write_text("BATCH_SIZE = 24\n")
    assert find_size(Script("pkg.train", module=True)).number == 24
    # One that lies elsewhere on the path of modules was seen when it ran.
    (folder / "src").mkdir()
    (folder / "pkg").rename(folder / "src/pkg")
    known = Script("pkg.train", module=True, files=("src/pkg/train.py",))
    assert str(find_size(known).source.place) == "src/pkg/train.py:1"


def test_several(folder):
    place = found(folder, "def one():\n    batch_size = 8\ndef two():\n    batch_size = 16\n")
    assert [each.number for each in place.several] == [8, 16]


def test_computed_from_others(folder):
    place = found(folder, COMPUTED)
    assert place.computed == (
        "minibatch_size = args.batch_size // args.num_minibatches (train.py:1)",
        "batch_size = args.num_envs * args.num_steps (train.py:2)",
    )
    assert place.settings == ("--num-envs", "num_steps", "num_minibatches")


@pytest.mark.parametrize(
    "text",
    [
        "batch_size = args.batch_size // world_size\n",  # of itself, and that is an option
        "batch = data[i * batch_size]\n",
        "n = rows * columns\n",
    ],
)
def test_not_computed(folder, text):
    option = 'parser.add_argument("--batch-size", type=int)\n'
    assert found(folder, text + option).arguments == ("--batch-size", "{batch_size}")


@pytest.mark.parametrize("text", ["lr = 0.1\nnum_batches = 24\n", "(", "eval_batch_size = 8\n"])
def test_nothing_sets_it(folder, text):
    assert found(folder, text) == NoPlace()


class TestByItsName:
    TEXT = "ROWS = 24\ndef f():\n    n = 4\ndef g():\n    n = 8\n"

    def test_a_number(self, folder):
        (folder / "train.py").write_text(self.TEXT)
        assert find_named(Script("train.py"), "ROWS").number == 24
        assert find_named(Script("train.py"), "train.py:5").number == 8

    def test_an_option(self, folder):
        (folder / "train.py").write_text('parser.add_argument("--rows", default=24)\n')
        for name in ("rows", "--rows"):
            place = find_named(Script("train.py", ("x",)), name)
            assert place.arguments == ("x", "--rows", "{batch_size}")

    def test_options_are_listed_by_their_names(self, folder):
        (folder / "train.py").write_text('parser.add_argument("--rows", default=24)\nN = 2\n')
        said = [each.text for each in find_named(Script("train.py"), "other")]
        assert said == ["default=24 of --rows (train.py:1)", "N = 2 (train.py:2)"]

    @pytest.mark.parametrize(("name", "numbers"), [("n", [4, 8]), ("other", [24, 4, 8])])
    def test_not_one(self, folder, name, numbers):
        """Those of the name; where there is none, all."""
        (folder / "train.py").write_text(self.TEXT)
        assert [each.number for each in find_named(Script("train.py"), name)] == numbers


def test_a_number_that_is_glued_to_its_option(folder):
    place = found(folder, 'parser.add_argument("-b", "--batch-size", default=32)', "-b16")
    assert (place.number, place.source.before, place.arguments) == (16, "-b16", ("-b{batch_size}",))


def test_two_numbers_on_one_line_are_two_places(folder):
    none = found(folder, "train(batch_size=20); evaluate(batch_size=20)\n")
    assert len(none.several) == 2


@pytest.mark.parametrize("name", ["batch_size", "train.batch_size"])
def test_a_key_of_a_settings_file_that_was_passed_can_be_named(folder, name):
    (folder / "train.py").write_text("train(read(sys.argv[1]))\n")
    (folder / "c.yaml").write_text("lr: 0.1\ntrain:\n  batch_size: 24\n")
    place = find_named(Script("train.py", ("c.yaml",)), name)
    assert (place.number, place.replacement.line) == (24, 3)
