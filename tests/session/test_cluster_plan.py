"""`batchadvisor plan`: what it reads, what it prints, what it refuses."""

import json
import shlex

import msgspec
import pytest
from batchadvisor.cli import cli
from batchadvisor.errors import UsageError
from batchadvisor.features.plan.records import ClusterPlan
from batchadvisor.records import DeviceRun, DevicesRecord, ScriptInfo
from click.testing import CliRunner

from ..plans import gpu_record, job_record, type_record, write


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Three probed types, from three hosts."""
    for name in ("a100", "v100", "t4"):
        write(tmp_path / name, type_record(name))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*words):
    return CliRunner().invoke(cli, ["plan", *words], catch_exceptions=True, terminal_width=100)


def plan(*words):
    done = run(*words, "--json")
    assert done.exit_code == 0, done.output or done.exception
    return msgspec.json.decode(done.stdout.encode(), type=ClusterPlan)


def refused(*words):
    done = run(*words)
    error = done.exception
    if isinstance(error, UsageError):
        assert error.exit_code == 2
        return str(error)
    assert done.exit_code == 2
    return done.output


class TestNames:
    def test_by_folder_device_or_a_part_of_it(self, folder):
        counts = ("--count", "t4=8", "--count", "V100-SXM2-16GB=2", "--count", "A100=4")
        answer = plan("a100", "v100", "t4", *counts)
        named = {card.name: card.count for card in answer.cards}
        assert named == {"A100": 4, "V100-SXM2-16GB": 2, "t4": 8}
        assert answer.global_batch == sum(card.count * card.recommended for card in answer.cards)

    def test_unknown(self, folder):
        text = refused("a100", "t4", "--count", "H100=4")
        assert text.startswith("--count H100: no record is of that type; there are NVIDIA A100")
        write(folder / "l40", gpu_record("NVIDIA L40S", 0.01, 0.001))
        assert "no record is of that type" in refused("l40", "--count", "L4=1")  # part of a word

    def test_two_records_of_a_name(self, folder):
        write(folder / "a100-40", gpu_record("NVIDIA A100-PCIE-40GB", 0.013, 0.0006))
        both = ("a100", "a100-40")
        answer = plan(*both, "--count", "A100=4", "--count", "PCIE=2")  # a folder's own name first
        assert [(card.name, card.count) for card in answer.cards] == [("A100", 4), ("PCIE", 2)]
        text = refused(*both, "--count", "a100=4", "--count", "SXM4=1")
        assert "--count SXM4: NVIDIA A100-SXM4-80GB (a100) has its number already" in text

    def test_ambiguous(self, folder):
        for name, device in (("one", "NVIDIA L4"), ("two", "NVIDIA L4 Tensor")):
            write(folder / name, gpu_record(device, 0.01, 0.001))
        text = refused("one", "two", "--count", "NVIDIA=4")
        assert text.startswith("--count NVIDIA means 2 records: NVIDIA L4 (one), NVIDIA L4 Tensor")

    @pytest.mark.parametrize(
        ("option", "example", "texts"),
        [
            ("--count", "A100=4", ("A100", "A100=", "A100=0", "A100=-1", "=4", "A100=x")),
            ("--price", "A100=2.1", ("A100=0", "A100=-1", "A100=1e-300", "A100=nan", "A100=inf")),
        ],
    )
    def test_no_number(self, folder, option, example, texts):
        for text in texts:
            said = refused("a100", option, text)
            assert f"is no name and number: write {example}" in said, text


class TestRecords:
    def test_a_run_on_several_devices_has_several_records(self, folder):
        runs = [DeviceRun(device=name, model=name, folder=name) for name in ("a100", "t4")]
        several = DevicesRecord(state="finished", started_at="", command=("x",), devices=(*runs,))
        (folder / "devices.json").write_bytes(msgspec.json.encode(several))
        answer = plan(".", "--count", "a100=1", "--count", "t4=1")
        assert {card.name for card in answer.cards} == {"a100", "t4"}

    def test_half_a_record_is_a_finding_and_the_others_are_kept(self, folder):
        path = folder / "t4/record.json"
        path.write_bytes(path.read_bytes()[:500])
        answer = plan("a100", "v100", "t4", "--count", "a100=2", "--count", "v100=2")
        assert answer.findings[0].rule == "plan-unreadable"
        assert "is not a record" in answer.left_out["t4"]
        text = refused("a100", "t4", "--count", "a100=2", "--count", "t4=2")
        assert text.startswith("--count t4: its record cannot be read (")

    def test_no_record_at_all(self, folder):
        assert refused("a100", "nowhere").startswith("cannot read a record from nowhere")

    def test_other_jobs(self, folder):
        write(folder / "other", type_record("t4", script=ScriptInfo(path="gan.py", digest="ff")))
        text = refused("a100", "other")
        assert text.startswith(
            "Records of different jobs have no common plan: a100 is of train.py, other of gan.py."
        )

    def test_a_global_batch_below_the_gpus(self, folder):
        text = refused("a100", "--count", "a100=8", "--global-batch", "7")
        assert "7 is fewer samples than there are GPUs (8)" in text

    def test_ranks_tell_tsync(self, folder):
        write(folder / "ranks", job_record("a100", 64, 0.022, 0.010, alone_s=0.020))
        answer = plan("a100", "ranks", "--count", "a100=2", "--up-to", "256")
        assert len(answer.cards) == 1
        assert answer.link.confidence == "measured"
        assert answer.link.busy_factor == pytest.approx(1.1, rel=0.03)
        assert answer.options[0].sync_s == pytest.approx(0.010, rel=0.1)
        assert max(point.num_gpus for point in answer.forecast) == 256
        text = refused("a100", "--interconnect", "pcie4", "--up-to", "256")
        assert "only a measured Tsync is taken further" in text

    def test_of_a_link_the_reason_that_tsync_is_unknown_stays(self, folder):
        """Beside ranks that were measured, whose sharing of a host is taken."""
        one = type_record("a100")
        discovery = msgspec.structs.replace(one.discovery, num_parameters=None)
        write(folder / "a100", msgspec.structs.replace(one, discovery=discovery))
        write(folder / "ranks", job_record("a100", 64, 0.022, 0.010, alone_s=0.020))
        words = ("a100", "ranks", "--count", "a100=2", "--interconnect", "pcie4")
        answer = plan(*words)
        assert answer.link.busy_factor == pytest.approx(1.1, rel=0.03)
        assert answer.link.unavailable == {"sync_s": "the number of parameters is not known"}
        assert answer.options[0].unavailable["sync_s"] == "the number of parameters is not known"
        assert "Tsync is" not in run(*words).output


class TestOutput:
    WORDS = (
        "a100", "t4", "--count", "a100=2", "--count", "t4=4", "--interconnect", "100GbE",
        "--price", "a100=2",
    )  # fmt: skip

    def test_the_text(self, folder):
        done = run(*self.WORDS)
        assert done.exit_code == 0
        lines = done.output.splitlines()
        assert lines[0].startswith("768 samples a step over 6 GPUs: 2 x a100 with ")
        for heading in ("One GPU alone", "Split plan", "Compared", "Findings"):
            assert heading in lines
        assert "Forecast for a100 and t4, strong scaling: 768 samples a step stay" in lines
        assert lines[-1].startswith("Next: batchadvisor plan a100 t4 --count a100=2")
        assert lines[-1].endswith("-o plan.html")

    def test_one_by_one(self, folder):
        done = run("t4", "a100")
        assert done.output.startswith("A100-SXM4-80GB is quickest. Batch size of each: T4 64")
        assert "--count T4=2" in done.output.splitlines()[-1]

    def test_a_chart_of_estimates_has_no_table_of_values(self, folder):
        assert run(*self.WORDS, "-o", "plan.html").exit_code == 0
        text = (folder / "plan.html").read_text()
        assert 'class="chart"' in text
        assert "<summary>Values</summary>" not in text

    def test_the_next_command_means_each_of_two_folders_of_a_name(self, folder):
        places = ("one/run", "two/run")
        for place in places:
            write(folder / place, type_record("t4"))
        words = shlex.split(run(*places).output.splitlines()[-1].removeprefix("Next: "))
        answer = plan(*words[2:])
        assert [card.count for card in answer.cards] == [2, 2]

    def test_equal_cards_are_both_named(self, folder):
        write(folder / "other", type_record("a100"))
        at = ("--global-batch", "128")
        best = "One GPU at 128 samples a step: one"
        assert run("a100", "t4", *at).output.startswith(f"{best} A100-SXM4-80GB is quickest (estim")
        assert run("a100", "t4", "other", *at).output.startswith(
            f"{best} a100 and one other are equally quick, within 3 % (estimate)"
        )
        price = ("--price", "a100=2", "--price", "other=2", "--price", "t4=9")
        text = " ".join(run("a100", "t4", "other", *price).output.split())
        assert "A100 and other alone give the most samples per unit of price: 3,290,000 (T4" in text

    @pytest.mark.parametrize("suffix", ["html", "md", "json"])
    def test_files(self, folder, suffix):
        done = run(*self.WORDS, "-o", f"plan.{suffix}")
        assert done.exit_code == 0
        size = (folder / f"plan.{suffix}").stat().st_size
        assert done.output == f"Wrote plan  plan.{suffix} ({size / 1000:.0f} kB)\n"
        text = (folder / f"plan.{suffix}").read_text()
        assert "100GbE" in text
        if suffix == "json":
            assert json.loads(text)["kind"] == "cluster-plan"
            return
        assert "class SplitSampler(Sampler):" in text
        assert "SIZES = [" in text
        assert "src=" not in text
        again = run(*self.WORDS, "-o", f"plan.{suffix}")
        assert again.exit_code == 0  # it is ours

    def test_a_file_of_the_users_is_kept(self, folder):
        (folder / "plan.md").write_text("mine")
        assert "was not written by this command" in refused("a100", "-o", "plan.md")
        assert "the suffix sets the format" in refused("a100", "-o", "plan.pdf")
        assert "Use one of them" in refused("a100", "--json", "-o", "plan.md")

    def test_nothing_of_a_record_is_markup(self, folder):
        device = "<b>|`x`\x1b[31m"
        write(folder / "evil", gpu_record(device, 0.012, 0.0005))
        for suffix in ("html", "md"):
            run("evil", "a100", "--count", "evil=2", "-o", f"plan.{suffix}")
            text = (folder / f"plan.{suffix}").read_text()
            assert "<b>" not in text
            assert "\x1b" not in text
        assert "\x1b" not in run("evil", "a100").output
