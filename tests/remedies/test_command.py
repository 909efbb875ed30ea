"""`--try`: what is wrong with it is said before anything is measured."""

from pathlib import Path

import msgspec
import pytest
from batchadvisor.advisor.advise import advise
from batchadvisor.cli.run import run
from batchadvisor.errors import UsageError
from batchadvisor.features.remedies.added import offered
from batchadvisor.features.remedies.catalogue import PLAUSIBLE, REMEDY_NAMES, plausible
from batchadvisor.features.remedies.command import check
from batchadvisor.features.remedies.trying import names_of
from batchadvisor.records import StepFlops
from batchadvisor.session.setup.options import RunOptions
from click.testing import CliRunner

from ..on_paper import record_of, trial_of


def options(**changes):
    return RunOptions(script="train.py", **{"tried": "all", **changes})


class TestNames:
    def test_they_are_split(self):
        assert names_of(" amp,compile ,amp") == ("amp", "compile")
        assert names_of("all") == ("all",)

    @pytest.mark.parametrize("text", ["amp,wrkers", "", ","])
    def test_an_unknown_one_lists_them_all(self, text):
        with pytest.raises(UsageError) as raised:
            names_of(text)
        assert all(name in str(raised.value) for name in ("all", *REMEDY_NAMES))

    def test_verdicts_name_remedies_that_there_are(self):
        assert {name for names in PLAUSIBLE.values() for name in names} <= set(REMEDY_NAMES)
        assert plausible("cannot tell", convolves=True) == ""

    @pytest.mark.parametrize(
        ("convolutions", "names"),
        [(0, "amp,compile"), (5, "amp,compile,channels_last"), (None, "amp,compile")],
    )
    def test_a_layout_of_pictures_is_offered_where_something_convolves(self, convolutions, names):
        """An older record does not tell; `--try` takes it all the same."""
        flops = StepFlops(
            forward=10, backward=20, convolutions=convolutions, by_dtype={"float32": 30}
        )
        command = ("batchadvisor", "run", "train.py")
        record = record_of([trial_of(8, 0.1, flops=flops)], state="finished", command=command)
        advice = advise(record)
        full = msgspec.structs.replace(advice.verdict, limit="saturated")
        advice = msgspec.structs.replace(advice, verdict=full)
        assert offered(record, advice, Path("no such folder")) == names


class TestRefused:
    @pytest.mark.parametrize(
        "changes",
        [{"num_ranks": 2}, {"gpus": "all"}, {"door": "template"}, {"dry_run": True}],
    )
    def test_runs_in_which_nothing_can_be_tried(self, changes):
        with pytest.raises(UsageError, match="--try cannot be used here"):
            check(options(**changes))

    def test_others_are_taken(self):
        assert check(options(tried="amp")) == ("amp",)

    @pytest.mark.parametrize(
        ("words", "said"),
        [
            (("all", "--device", "cpu:1,cpu:1"), "several devices"),
            (("nothing",), "'nothing' is no remedy"),
        ],
    )
    def test_the_command_ends_before_anything_starts(self, words, said, tmp_path):
        script = tmp_path / "train.py"
        script.write_text("raise SystemExit('it must not run')\n")
        done = CliRunner().invoke(run, ["--try", *words, str(script)])
        assert isinstance(done.exception, UsageError)
        assert said in str(done.exception)
