"""`{batch_size}` in arguments, and the command that is proposed."""

import pytest
from batchadvisor.probes.source.named_size import Script
from batchadvisor.probes.source.placeholder import (
    command,
    filled,
    has_placeholder,
    proposal,
    source_of,
    without_placeholder,
)

ARGPARSE = 'parser.add_argument("-b", "--batch-size", type=int, default=24)\n'
OVERRIDDEN = """\
batch_size = 12
for word in sys.argv[1:]:
    key, value = word[2:].split("=")
    globals()[key] = int(value)
"""
GIVEN = """\
parser.add_argument("--test_size", type=int, default=100)
parser.add_argument("--train_size", type=int, default=24)
loader = DataLoader(data, **{"batch_size": args.train_size})
others = DataLoader(data, batch_size=args.test_size)
"""
CONFIGURED = "lr = 0.1\nbatch_size = 12\nexec(open('configurator.py').read())\n"


@pytest.fixture
def script(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def write(text, name="train.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
        return name

    return write


@pytest.mark.parametrize(
    ("arguments", "wanted", "left"),
    [
        (("-b", "{batch_size}"), ("-b", "7"), ()),
        (("--bs={batch_size}", "x"), ("--bs=7", "x"), ("x",)),
        (("data={n}", "t.b={batch_size}x2"), ("data={n}", "t.b=7x2"), ("data={n}",)),
        (("fit", "{batch_size}"), ("fit", "7"), ("fit",)),
        (("--a", "{batch_size}", "--b", "{batch_size}"), ("--a", "7", "--b", "7"), ()),
    ],
)
def test_filling_in(arguments, wanted, left):
    assert has_placeholder(arguments)
    assert filled(arguments, 7) == wanted
    assert without_placeholder(arguments) == left
    assert not has_placeholder(wanted)


def test_a_command_can_be_typed():
    assert command("my train.py", ["--b={batch_size}", "a b", "$x"]) == (
        "batchadvisor run 'my train.py' --b={batch_size} 'a b' '$x'"
    )
    assert command("a.b", [], module=True, options=["--template"]) == (
        "batchadvisor run --template -m a.b"
    )


@pytest.mark.parametrize(
    ("text", "arguments", "said"),
    [
        (ARGPARSE, ("--lr", "1"), "run train.py --lr 1 --batch-size {batch_size} "),
        (ARGPARSE, ("-b", "32", "--lr", "1"), "run train.py -b {batch_size} --lr 1 "),
        (CONFIGURED, (), "run train.py --batch_size={batch_size} "),
        (OVERRIDDEN, (), "run train.py --batch_size={batch_size} "),
        (GIVEN, (), "run train.py --train_size {batch_size} "),
        (GIVEN, ("--train_size", "500"), "run train.py --train_size {batch_size} "),
        ("pass\n", ("--per_device_train_batch_size", "4"), "_batch_size {batch_size} "),
    ],
)
def test_the_proposal(script, text, arguments, said):
    assert said in proposal(Script(script(text), arguments))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("print('{}')\n", "Nothing in it is named like a batch size."),
        ("ROWS = 2\n", "batchadvisor run --set NAME={batch_size} train.py."),
        ("BATCH = 2\n", "each size: batchadvisor run --set BATCH={batch_size} train.py "),
        ("f(bs=2)\ng(bs=4)\n", "--set NAME={batch_size}: bs=2 (train.py:1), bs=4 (train.py:2)."),
        ("batch_size = rows * columns\n", "rows and columns set it together"),
    ],
)
def test_the_proposal_where_no_option_sets_it(script, text, said):
    assert said in proposal(Script(script(text)))
    assert "--template" not in proposal(Script(script(text)))


def test_the_proposal_for_a_module(script):
    script(ARGPARSE, "pkg/train.py")
    script(ARGPARSE.replace("--batch-size", "--bs"), "pkg/__main__.py")
    said = proposal(Script("pkg.train", module=True))
    assert "-m pkg.train --batch-size {batch_size}" in said
    assert "-m pkg --bs {batch_size}" in proposal(Script("pkg", module=True))
    # A module of an installed package is not looked for.
    said = proposal(Script("json.tool", module=True), forced=True)
    assert "run --template --set NAME={batch_size} -m json.tool" in said


class TestSourceOf:
    def test_an_option(self, script):
        size, source = source_of(script("\n" + ARGPARSE), ("-b", "{batch_size}"))
        assert size == 24
        assert str(source.place) == "train.py:2"
        assert source.template.format(48) == "default=48"

    def test_an_assignment(self, script):
        size, source = source_of(script(CONFIGURED), ("--batch_size={batch_size}",))
        assert size == 12
        assert (source.before, source.template) == ("batch_size = 12", "batch_size = {}")

    @pytest.mark.parametrize(
        ("text", "arguments"),
        [
            (ARGPARSE.replace("24", "None"), ("-b", "{batch_size}")),
            (ARGPARSE, ("{batch_size}",)),
            ("syntax error here", ("-b", "{batch_size}")),
        ],
    )
    def test_unknown(self, script, text, arguments):
        assert source_of(script(text), arguments) == (None, None)
