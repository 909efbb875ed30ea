"""`batchadvisor estimate`, on scripts that know nothing of it."""

import json
import re

import msgspec
import pytest
from batchadvisor.features.estimate.fit.gpus import MEMORY_GIB
from batchadvisor.features.estimate.records import HARDLY_CHECKED
from batchadvisor.records import Variant

from .driver import SCRIPTS, line_of, listing, run_preloaded, run_well

GIB = 1 << 30


def estimate(folder, script, *words):
    """Options of ours, and what the script gets behind a `--`."""
    at = words.index("--") if "--" in words else len(words)
    result = run_preloaded("estimate", *words[:at], script, *words[at + 1 :], folder=folder)
    assert not result.left
    return result


def answered(folder, script, *arguments):
    result = estimate(folder, str(SCRIPTS / script), "--json", "-q", *arguments)
    assert result.code == 0, result
    assert listing(folder) == {}
    return json.loads(result.stdout)


VARIANTS = [
    Variant(bf16=bf16, checkpointed=checkpointed)
    for checkpointed in (False, True)
    for bf16 in (False, True)
]


class TestAnswers:
    @pytest.mark.slow
    def test_a_model_that_fills_gpus(self, tmp_path):
        """A range for each GPU; wider activations take more bytes a sample, fp32 more than bf16."""
        gpus = ("--gpu", "T4,8GiB,a10")
        words = ("--length", "512", "--tokens", "4000000", "--width")
        narrow, wide = (
            answered(tmp_path, "tiny_gpt.py", *gpus, "--", *words, width)
            for width in ("128", "512")
        )
        for answer in (narrow, wide):
            variants = [msgspec.convert(each["variant"], Variant) for each in answer["forecasts"]]
            assert variants == VARIANTS
            written, autocast, checkpointed, both = (
                {gpu["name"]: gpu for gpu in each["gpus"]} for each in answer["forecasts"]
            )
            assert list(written) == ["T4", "a GPU of 8GiB", "A10"]
            for gpu in written.values():
                assert gpu["is_bounded"]
                # CUDA's own memory is a larger share of a small GPU.
                share = 0.9 if gpu["memory_bytes"] > 10 * GIB else 0.85
                assert share * gpu["high"] <= gpu["low"] <= gpu["high"]
                name, high = gpu["name"], gpu["high"]
                assert high < autocast[name]["high"] < both[name]["high"]
                assert high < checkpointed[name]["high"] < both[name]["high"]
            assert written["a GPU of 8GiB"]["high"] < written["T4"]["low"]
        samples = [each["forecasts"][0]["sample_bytes"] for each in (narrow, wide)]
        assert 2 * samples[0] < samples[1] < 4 * samples[0]

    @pytest.mark.slow
    def test_where_the_bytes_are(self, tmp_path):
        answer = answered(tmp_path, "tiny_gpt.py", "--gpu", "T4")
        num = answer["num_parameters"]
        assert answer["batch_size"] == 16
        own = next(t for t in answer["forecasts"][0]["trials"] if t["batch_size"] == 16)
        assert own["parameter_bytes"] == own["gradient_bytes"] == 4 * num
        assert 8 * num <= own["optimizer_bytes"] < 8.5 * num
        assert own["input_bytes"] == 16 * 33 * 8
        assert own["peak_bytes"] > 16 * num + 16 * 32 * 512 * 4 * 2
        assert sum(own["at_peak"].values()) == own["peak_bytes"]
        (module,) = (place for place in own["modules"] if place["name"] == "Gpt > Linear")
        assert module["roles"]["loss and logits"] == 16 * 32 * 512 * 4
        head = line_of(SCRIPTS / "tiny_gpt.py", "return self.head")
        (line,) = (place for place in own["lines"] if place["name"].endswith(f"tiny_gpt.py:{head}"))
        assert line["roles"]["loss and logits"] == 16 * 32 * 512 * 4

    @pytest.mark.slow
    def test_what_is_said_of_checkpointing_comes_true_where_it_is_applied(self, tmp_path):
        without, applied = (
            answered(tmp_path, "tiny_gpt.py", "--gpu", "A100-80GB", "--", "--length", "256", *flags)
            for flags in ((), ("--checkpoint",))
        )
        assert without["blocks"] == "2 TransformerEncoderLayer"
        predicted, true = (
            [trial["peak_bytes"] for trial in answer["forecasts"][number]["trials"]]
            for answer, number in ((without, 2), (applied, 0))
        )
        assert predicted == pytest.approx(true, rel=0.02)

    @pytest.mark.slow
    @pytest.mark.parametrize(
        "script",
        ["accumulate_amp.py", "critic.py", "gan.py", "padded_texts.py", "tbptt.py", "compiled.py"],
    )
    def test_other_ways_to_train(self, script, tmp_path):
        answer = answered(tmp_path, script, "--gpu", "all")
        assert len(answer["forecasts"][0]["gpus"]) == len(MEMORY_GIB)
        peaks = [trial["peak_bytes"] for trial in answer["forecasts"][0]["trials"]]
        assert peaks == sorted(peaks)

    @pytest.mark.slow
    def test_samples_of_another_length(self, tmp_path):
        """As the script says of itself where it is started with that length."""
        gpu, words = ("--gpu", "T4"), ("--width", "32", "--tokens", "4000000")
        predicted = answered(tmp_path, "tiny_gpt.py", *gpu, "--seq-len", "129", "--", *words)
        true = answered(tmp_path, "tiny_gpt.py", *gpu, "--", *words, "--length", "128")
        (longer,) = predicted["lengths"]
        ahead, script = (
            {trial["batch_size"]: trial["peak_bytes"] for trial in each["trials"]}
            for each in (longer, true["forecasts"][0])
        )
        sizes = sorted(ahead.keys() & script.keys())
        assert len(sizes) >= 3
        assert sizes[-1] >= 64
        for size in sizes:
            assert ahead[size] == pytest.approx(script[size], rel=0.01), size

    def test_the_page(self, tmp_path):
        result = estimate(tmp_path, str(SCRIPTS / "tiny_gpt.py"), "--gpu", "T4", "-q")
        assert result.code == 0
        first, second, *_, last = result.stdout.strip().splitlines()
        assert first == "Batch size 16 should fit whole on T4"
        assert second.strip() == f"This is {HARDLY_CHECKED}."
        assert last.startswith("On the GPU: batchadvisor run ")
        words = (
            r"The tensors of a real step of batch 16 should take [\d.]+ MiB ±0\.5% at once \(est"
        )
        assert re.search(words, " ".join(result.stdout.split())), result.stdout
        assert listing(tmp_path) == {}

    @pytest.mark.slow
    def test_a_file(self, tmp_path):
        """Everything of the page, with every table whole and the step's timeline."""
        script = str(SCRIPTS / "tiny_gpt.py")
        result = estimate(tmp_path, script, "--gpu", "T4", "-q", "-o", "fits.html")
        assert result.code == 0
        assert result.stdout.startswith("Wrote report  fits.html")
        page = (tmp_path / "fits.html").read_text()
        headings = ("Largest batch that should fit", "By module", "Allocated over a step")
        assert all(text in page for text in (*headings, "all 3125"))
        assert set(listing(tmp_path)) == {"fits.html"}


class TestDoors:
    def test_arguments_as_for_a_run(self, tmp_path):
        """Everything after SCRIPT is its own, and meters that print end no step."""
        needed = ("sin", "-b", "8")
        meter = """
            print(f"{loss:.3f}", loss.detach().numpy(), (inputs > 0).numpy().mean())
        print("""
        text = (SCRIPTS / "needs_arguments.py").read_text()
        (tmp_path / "meter.py").write_text(text.replace("\n        print(", meter))
        options = ("--json", "-q", "--gpu", "T4")
        result = run_well("estimate", *options, "meter.py", *needed, folder=tmp_path)
        answer = json.loads(result.stdout)
        assert answer["arguments"] == list(needed)
        assert answer["batch_size"] == 8

    def test_a_script_that_lacks_a_module_is_started_once(self, tmp_path):
        (tmp_path / "lacks.py").write_text(
            "open('starts', 'a').write('x')\nimport torch, no_such_module\n"
        )
        result = estimate(tmp_path, "lacks.py")
        assert result.code == 1
        assert "No module named 'no_such_module'" in result.error
        assert "starting it again" not in result.stderr
        assert (tmp_path / "starts").read_text() == "x"

    @pytest.mark.slow
    def test_a_folder_that_takes_no_files(self, tmp_path):
        (tmp_path / "batchadvisor-runs").write_text("in the way, also of root")
        result = estimate(tmp_path, str(SCRIPTS / "plain.py"), "--json", "-q", "--gpu", "T4")
        assert json.loads(result.stdout)
        assert set(listing(tmp_path)) == {"batchadvisor-runs"}


BAGS = """
import torch
from torch import nn
from torch.utils.data import DataLoader

torch.manual_seed(0)
texts = [(torch.randint(1000, (3 + index % 10,)), index % 4) for index in range(640)]


def joined(samples):
    words, labels = zip(*samples)
    starts = torch.tensor([0, *map(len, words)][:-1]).cumsum(0)
    return torch.tensor(labels), torch.cat(words), starts


bags, head = nn.EmbeddingBag(1000, 512, mode="max"), nn.Linear(512, 4)
optimizer = torch.optim.SGD([*bags.parameters(), *head.parameters()], lr=0.1)
for labels, words, starts in DataLoader(texts, 16, shuffle=True, collate_fn=joined):
    optimizer.zero_grad()
    wide = bags.weight[words].exp().mean() + head(bags(words, starts)).mean()
    (wide + nn.functional.cross_entropy(head(bags(words, starts)), labels)).backward()
    optimizer.step()
"""


class TestFlatBatches:
    def test_words_of_all_texts_grow_with_the_texts(self, tmp_path):
        """They stand one after the other, and only labels and starts count the texts."""
        (tmp_path / "train.py").write_text(BAGS)
        result = estimate(tmp_path, "train.py", "--json", "-q", "--gpu", "T4")
        written = json.loads(result.stdout)["forecasts"][0]
        assert written["sample_bytes"] > 7 * 512 * 4  # a row for each word, 7.5 to a text


class TestModules:
    @pytest.mark.slow
    def test_an_average_of_the_weights_that_no_step_touches(self, tmp_path):
        """It is updated after the epoch, which fake steps do not reach."""
        text = (SCRIPTS / "plain.py").read_text()
        made = "optimizer = "
        assert made in text
        averaged = f"import copy; average = copy.deepcopy(model)\n{made}"
        (tmp_path / "train.py").write_text(text.replace(made, averaged, 1))
        plain, kept = (
            json.loads(estimate(tmp_path, script, "--json", "-q", "--gpu", "T4").stdout)
            for script in (str(SCRIPTS / "plain.py"), "train.py")
        )
        num_bytes = 4 * plain["num_parameters"]
        without, beside = (
            [trial["peak_bytes"] for trial in each["forecasts"][0]["trials"]]
            for each in (plain, kept)
        )
        for less, more in zip(without, beside, strict=True):
            assert num_bytes <= more - less < num_bytes + 8 * 512  # rounded


class TestEvaluation:
    def test_its_peak_stands_beside_the_training(self, tmp_path):
        """Two layers of 64 floats live at once for each of 500 samples; training has 16."""
        words = ("--gpu", "T4", "--", "--val-batch-size", "500")
        answer = answered(tmp_path, "argparse_validate_first.py", *words)
        evaluation = answer["evaluation"]
        assert 2 * 500 * 64 * 4 < evaluation["peak_bytes"] < 3 * 500 * 64 * 4
        assert "a batch of 500 of the loader made at" in evaluation["batch"]
        assert "evaluation" not in answer["unavailable"]

    @pytest.mark.slow
    def test_it_is_looked_at_after_a_change_that_ends_the_process(self, tmp_path):
        """An average of the weights does not go with a model that ranks share."""
        text = (SCRIPTS / "argparse_validate_first.py").read_text()
        averaged = "    average = [p.detach().clone() for p in model.parameters()]\n    criterion ="
        update = (
            "            optimizer.step()\n"
            "            with torch.no_grad():\n"
            "                for a, p in zip(average, model.parameters()):\n"
            "                    a.add_(p)\n"
        )
        text = text.replace("    criterion =", averaged)
        (tmp_path / "train.py").write_text(text.replace("            optimizer.step()\n", update))
        result = estimate(tmp_path, "train.py", "--json", "-q", "--gpu", "T4")
        answer = json.loads(result.stdout)
        (failed,) = (line for line in answer["what_ifs"] if line["reason"])
        assert failed["change"].startswith("FSDP2")
        assert "evaluation" not in answer["unavailable"]
        assert "a batch of 50 of the loader made at" in answer["evaluation"]["batch"]

    @pytest.mark.parametrize("mode", ["no_grad", "inference_mode"])
    @pytest.mark.slow
    def test_a_script_that_evaluates_between_two_steps(self, mode, tmp_path):
        """A loader begins its epoch inside the step, and draws a seed."""
        text = (SCRIPTS / "argparse_validate_first.py").read_text()
        after = "            optimizer.step()\n"
        assert after in text
        text = text.replace(after, f"{after}            validate(model, val_loader, criterion)\n")
        (tmp_path / "train.py").write_text(text.replace("@torch.no_grad", f"@torch.{mode}"))
        result = estimate(tmp_path, "train.py", "--json", "-q", "--gpu", "T4")
        assert result.code == 0, result
        trial = json.loads(result.stdout)["forecasts"][0]["trials"][0]
        assert trial["peak_bytes"] > 2 * 50 * 64 * 4  # layers of the evaluation's 50 samples

    @pytest.mark.slow
    def test_a_script_that_evaluates_nothing(self, tmp_path):
        answer = answered(tmp_path, "plain.py", "--gpu", "T4")
        assert answer["evaluation"] is None
        assert "evaluation" not in answer["unavailable"]


class TestRefusals:
    def test_files_are_refused_before_the_script_runs(self, tmp_path):
        for arguments, words in (
            (("-o", "x.txt"), "the suffix sets the format"),
            (("-o", "x.html", "--json"), "Use one of them"),
            (("-o", "no/x.html"), "there is no folder"),
            (("--shard", "99999999999"), "is not in the range"),
            (("--gpu", "0GiB"), "no GPU has 0GiB of memory"),
            (("--gpu", "T4", "--gpu", "L41"), "no GPU in the table is named 'L41'"),
            (("--gpu", "A100"), "--gpu: 'A100' may be A100-40GB or A100-80GB."),
            (("--gpu", "3090 Ti"), "no GPU in the table is named '3090 Ti'"),
            (("--gpu", "A100-41GB"), "Did you mean A100-40GB"),
            (("--", "--batch-size", "{batch_size}"), "makes batches of every size itself"),
        ):
            result = estimate(tmp_path, str(SCRIPTS / "plain.py"), *arguments)
            assert result.code == 2
            assert words in result.stderr
            assert "Traceback" not in result.stderr
        assert listing(tmp_path) == {}

    def test_options_of_ours_behind_the_script(self, tmp_path):
        """The command that the error names is this one."""
        result = estimate(tmp_path, str(SCRIPTS / "needs_arguments.py"), "--", "--gpu", "T4")
        assert result.code == 2
        assert "batchadvisor estimate OPTIONS" in result.stderr
        assert "batchadvisor run" not in result.stderr

    @pytest.mark.parametrize(
        ("name", "edit", "said"),
        [
            ("never_trains", None, ("never trains",)),
            ("raises_later", None, ("which have no values (a loss reads as 1.0)",)),
            # The loop is looked for with batches of two samples first.
            (
                "tiny_gpt",
                ("logits = ", "assert len(batch) >= 16\n            logits = "),
                ("cannot be predicted: on fake tensors", "it raised AssertionError"),
            ),
            (
                "tiny_gpt",
                ("loss.backward()", "logits[logits > 0].mean().backward()"),
                (
                    "a shape depends on values, which fake tensors do not have",
                    "`batchadvisor run` measures",
                ),
            ),
            (
                "tiny_gpt",
                ("loss.backward()", "torch.empty(1 << 46); loss.backward()"),
                ("this machine's memory is too small for the script's first steps",),
            ),
        ],
        ids=["no training", "values", "whole batches", "a shape of values", "memory"],
    )
    def test_a_script_that_cannot_be_predicted(self, name, edit, said, tmp_path):
        text = (SCRIPTS / f"{name}.py").read_text()
        (tmp_path / "train.py").write_text(text if edit is None else text.replace(*edit))
        result = estimate(tmp_path, "train.py", "-q")
        assert result.code == 1
        assert all(words in result.error for words in said), result
        assert "Traceback" not in result.stderr
        assert set(listing(tmp_path)) == {"train.py"}

    def test_the_output_of_a_script_that_raises_is_kept(self, tmp_path):
        result = estimate(tmp_path, str(SCRIPTS / "raises_before.py"), "-q")
        assert result.code == 1
        (log,) = (path for path in listing(tmp_path) if path.endswith(".log"))
        assert log in result.stderr
