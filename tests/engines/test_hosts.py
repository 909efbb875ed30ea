"""torchrun over two hosts, as the page on clusters names it: two nodes on this host."""

import re
import shlex
import shutil
import sys

import pytest

from tests import pages
from tests.end_to_end.driver import SCRIPTS, start

from ..ports import free_ports

pytestmark = pytest.mark.slow
SHORT = ("--device", "cpu", "--budget", "5s", "--goal", "memory", "--sizes", "16", "--no-profile")
"""The script's own size alone: nothing is confirmed in a second process."""


def test_torchrun_over_two_nodes(tmp_path):
    text = " ".join(pages.texts()["docs/cluster.md"].split())
    program, *words = shlex.split(re.search(r"`(torchrun --nnodes 2 .+?)`", text)[1])
    assert program == "torchrun"
    shutil.copy(SCRIPTS / "train_ddp.py", tmp_path)
    port = str(free_ports())
    here = {"first-host": "127.0.0.1", "29500": port}
    words = [here.get(word, word) for word in words]
    place = words.index("-m")
    assert words[place : place + 3] == ["-m", "batchadvisor", "run"]
    ours = words[place + 3 :]
    nodes = []
    for number in ("0", "1"):
        launcher = words[:place]
        launcher[launcher.index("--node-rank") + 1] = number
        program = (sys.executable, "-m", "torch.distributed.run", *launcher)
        nodes.append(start("run", "-q", *SHORT, *ours, folder=tmp_path, launcher=program))
    first, second = [node.finish() for node in nodes]
    assert (first.code, second.code) == (0, 0), (first, second)
    assert first.record.distribution.world_size == 2
    assert [trial.outcome for trial in first.searched] == ["ok"]
    assert second.stdout == ""
