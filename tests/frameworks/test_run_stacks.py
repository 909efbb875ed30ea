"""Fine-tuning as people run it: TRL, PEFT, the Trainer, Accelerate's launcher, OmegaConf, Hydra."""

import shutil

import pytest

from ..end_to_end.driver import run, run_preloaded
from ..needs import BENCH, framework
from .preloads import HUGGING_FACE

for _name in ("transformers", "accelerate", "trl", "peft", "datasets", "omegaconf", "hydra"):
    framework(_name)
pytestmark = pytest.mark.frameworks

OPTIONS = ("--json", "-q", "-o", "out", "--no-profile", "--budget", "5s", "--goal", "memory")
DPO = ("--output_dir", "dpo", "--per_device_train_batch_size", "2", "--max_length", "64",
       "--gradient_accumulation_steps", "2", "--use_cpu", "True", "--report_to", "none",
       "--num_pairs", "300")  # fmt: skip


@pytest.fixture
def public(tmp_path):
    """A folder with the scripts of bench/public and their settings files."""
    shutil.copytree(BENCH / "public", tmp_path, dirs_exist_ok=True)
    return tmp_path


def forked(*words, folder):
    """A command that is a fork of a process with the frameworks."""
    return run_preloaded(*words, folder=folder, preload=HUGGING_FACE)


def looked_at(folder, *words, start=forked):
    """What `--dry-run` finds."""
    done = start("run", "--dry-run", "--json", *words, folder=folder)
    assert done.code == 0, done
    assert done.left == []
    return done.discovery


def shown(source):
    return f"{source.place}  {source.before}"


def test_sft_with_lora_from_a_yaml_file(public):
    """LoRA, bf16, gradient checkpointing, accumulation and evaluation."""
    words = ("trl_sft.py", "--config", "trl_sft.yaml", "--num_texts", "300")
    done = forked("run", *OPTIONS, "--sizes", "4", *words, folder=public)
    assert done.code == 0, done
    assert done.left == []
    discovery = done.record.discovery
    assert (discovery.native_batch_size, discovery.micro_batches) == (2, 8)
    assert discovery.num_parameters < 10_000  # the adapters alone are trained
    trials = [trial for trial in done.record.trials if trial.purpose == "search"]
    assert [(trial.outcome, trial.arrived_batch_size) for trial in trials] == [("ok", 4)]
    size = "per_device_train_batch_size"
    assert done.advice.change == f"trl_sft.yaml:8  {size}: 2 → {size}: 4"


def test_dpo_from_flags(public):
    discovery = looked_at(public, "trl_dpo.py", *DPO)
    assert (discovery.native_batch_size, discovery.micro_batches) == (2, 2)
    source = discovery.primary.source
    assert source.template == "--per_device_train_batch_size {}"
    assert discovery.accumulation.before == "--gradient_accumulation_steps 2"


def test_trainer_from_a_json_file(public):
    discovery = looked_at(public, "hf_run_clm.py", "hf_run_clm.json")
    assert (discovery.native_batch_size, discovery.micro_batches) == (4, 4)
    size, steps = "per_device_train_batch_size", "gradient_accumulation_steps"
    assert shown(discovery.primary.source) == f'hf_run_clm.json:4  "{size}": 4'
    assert shown(discovery.accumulation) == f'hf_run_clm.json:6  "{steps}": 4'


def test_a_launcher_around_a_script_that_dispatches(public):
    words = ("accelerate", "launch", "--cpu", "accelerate_nlp.py", "--dispatch_batches")
    discovery = looked_at(public, *words, "--mixed_precision", "no", start=run)
    assert discovery.native_batch_size == 16
    assert discovery.primary.dispatch_batches


def test_a_recipe_of_omegaconf_with_words_over_its_file(public):
    words = ("torchtune_recipe.py", "--config", "torchtune_recipe.yaml")
    source = looked_at(public, *words).primary.source
    assert shown(source) == "torchtune_recipe.yaml:13  batch_size: 2"
    source = looked_at(public, *words, "batch_size=4").primary.source
    assert source.template == "batch_size={}"


HYDRA = """
import hydra, torch
from torch.utils.data import DataLoader, TensorDataset

@hydra.main(version_base=None, config_path="conf", config_name="config")
def main(cfg):
    data = TensorDataset(torch.randn(800, 4))
    loader = DataLoader(data, batch_size=cfg.train.batch_size, shuffle=True)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=cfg.train.lr)
    for _ in range(100):
        for (x,) in loader:
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()

main()
"""


@pytest.mark.parametrize(
    ("words", "before"),
    [
        ((), "conf/train/base.yaml:2  batch_size: 8"),
        (("train.batch_size=4",), "train.py:8  train.batch_size=4"),
    ],
)
def test_groups_and_overrides_of_hydra(tmp_path, words, before):
    (tmp_path / "conf" / "train").mkdir(parents=True)
    (tmp_path / "conf" / "config.yaml").write_text("defaults:\n  - train: base\n  - _self_\n")
    (tmp_path / "conf" / "train" / "base.yaml").write_text("lr: 0.1\nbatch_size: 8\n")
    (tmp_path / "train.py").write_text(HYDRA)
    assert shown(looked_at(tmp_path, "train.py", *words).primary.source) == before
