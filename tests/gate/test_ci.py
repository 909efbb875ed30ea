"""The examples for continuous integration: they are valid YAML, and their commands run."""

import re
import subprocess

import pytest
import yaml

from .. import pages
from ..served import with_our_commands

SCRIPT = """\
import torch
from torch.utils.data import DataLoader, TensorDataset
data = TensorDataset(torch.randn(4096, 16), torch.randn(4096, 1))
model = torch.nn.Linear(16, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(1000):
    for x, y in DataLoader(data, batch_size=32):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
"""
SERVICE = ("python -m pip install", "git worktree add")
"""How commands begin that need the service, or a network."""


def github():
    return yaml.safe_load(pages.block("github").text)


def gitlab():
    return yaml.safe_load(pages.block("gitlab").text)


def of_github():
    """The commands of all steps of the job, in order."""
    (job,) = github()["jobs"].values()
    return [step["run"] for step in job["steps"] if "run" in step]


def of_gitlab():
    (job,) = gitlab().values()
    return [*job["before_script"], *job["script"]]


def test_what_the_services_need_is_there():
    (job,) = github()["jobs"].values()
    assert github()[True] == "pull_request"  # YAML 1.1 reads `on` so, as the service knows
    assert all(("uses" in step) != ("run" in step) for step in job["steps"])
    assert {step["with"]["path"] for step in job["steps"] if "path" in step.get("with", {})} == {
        "base",
        "head",
    }
    (job,) = gitlab().values()
    assert job["artifacts"]["reports"] == {"junit": "gate.xml"}
    assert job["artifacts"]["when"] == "always"


def test_all_measure_alike():
    """The loop is the same wherever it stands, but for folders and broken lines."""
    loop = pages.block("rounds").text
    (measured,) = re.findall(r"batchadvisor run (.+?) -o", loop)
    for commands in (of_github(), of_gitlab()):
        text = " ".join("\n".join(commands).replace("\\\n", " ").split())
        assert set(re.findall(r"batchadvisor run (.+?) -o", text)) == {measured}
        assert "seq 12" in text
    assert "seq 12" in loop


@pytest.mark.slow
@pytest.mark.parametrize("commands", [of_github, of_gitlab])
def test_the_commands_run(tmp_path, commands):
    """One round instead of twelve: the gate cannot tell times, and says so; peaks are the same."""
    for folder in (tmp_path, tmp_path / "base", tmp_path / "head"):
        folder.mkdir(exist_ok=True)
        (folder / "train.py").write_text(SCRIPT)
    summary = tmp_path / "summary.md"
    environment = {
        **with_our_commands(),
        "GITHUB_STEP_SUMMARY": str(summary),
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
    }
    left_out = [one for one in commands() if one.startswith(SERVICE)]
    assert left_out
    for command in commands():
        if command in left_out:
            continue
        text = command.replace("seq 12", "seq 1").replace("--budget 8s", "--budget 5s")
        done = subprocess.run(
            ["bash", "-e", "-o", "pipefail", "-c", text],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
    assert "Cannot tell at batch size 32" in (tmp_path / "gate.md").read_text()
    assert "<skipped" in (tmp_path / "gate.xml").read_text()
    if commands is of_github:
        assert summary.read_text() == (tmp_path / "gate.md").read_text()
    assert not (tmp_path / "base/runs").exists()
