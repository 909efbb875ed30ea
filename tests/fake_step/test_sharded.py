"""A model sharded over ranks that are not there, compared with FSDP2 on real ranks."""

import json
import os
import sys
from pathlib import Path

import pytest
import torch
from batchadvisor.probes.fake_step.checkpointed_blocks import CheckpointedBlocks
from batchadvisor.probes.fake_step.storage_count import StorageCount
from batchadvisor.records import Variant
from torch import distributed
from torch.nn import functional

from ..end_to_end.preloaded import Forked
from ..ports import free_ports
from .small_models import made
from .test_what_ifs import Looked

SIZE = 64


RANK = Path(__file__).with_name("sharded_rank.py")


def rank_of(rank, num_ranks, port, names):
    """A rank; the first prints the peaks of its second step of each model."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", rank=rank, world_size=num_ranks)
    mesh = init_device_mesh("cpu", (num_ranks,))
    peaks = {}
    for name in names:
        model, _, _, batch = made(name, "sgd", False)
        for block in CheckpointedBlocks(model.parameters()).members:
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
        optimizer = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=0.01)
        count, given = StorageCount(), batch(SIZE)
        count.hold([*model.parameters(), *model.buffers(), *given])
        with count:
            for _ in range(2):
                count.reset_peak()
                optimizer.zero_grad()
                functional.cross_entropy(model(given[0]), given[1]).backward()
                optimizer.step()
        peaks[name] = count.peak_bytes
    if rank == 0:
        sys.stdout.write(json.dumps(peaks))
    distributed.barrier()
    distributed.destroy_process_group()


def on_real_ranks(num_ranks, names):
    port = free_ports()
    given = {"script": RANK, "cwd": RANK.parent, "env": dict(os.environ)}
    ranks = [Forked((rank, num_ranks, port, *names), **given) for rank in range(num_ranks)]
    try:
        (output, errors), *_ = [rank.communicate(timeout=240) for rank in ranks]
    finally:
        for rank in ranks:
            if rank.poll() is None:
                rank.kill()
    assert [rank.returncode for rank in ranks] == [0] * num_ranks, errors
    return json.loads(output.splitlines()[-1])


@pytest.mark.slow
@pytest.mark.parametrize("num_ranks", [2, 4])
def test_a_rank_that_is_not_there_takes_what_a_real_one_takes(num_ranks):
    names = ("gpt", "lora", "resnet", "checkpointed")
    real = on_real_ranks(num_ranks, names)
    for name in names:
        script = Looked(name)
        script.at()
        fake = script.at(ranks=num_ranks).peak_bytes
        script.close()
        assert fake == pytest.approx(real[name], rel=0.03), name


def test_more_ranks_hold_less_each_and_the_model_comes_back():
    script = Looked("gpt")
    before = script.at()
    kinds = [type(module) for module in script.model.modules()]
    few, many = script.at(ranks=4), script.at(ranks=64)
    assert few.parameter_bytes == before.parameter_bytes / 4
    assert few.parameter_bytes > 8 * many.parameter_bytes
    assert script.at(ranks=4) == few  # nothing of how it was sharded in between is left
    # What is gathered is padded to whole rows of each rank: more ranks may take more.
    assert before.peak_bytes > few.peak_bytes
    assert script.at(ranks=4, bf16=True).peak_bytes < 0.7 * few.peak_bytes
    script.steps.begin(Variant())
    assert [type(module) for module in script.model.modules()] == kinds
    assert script.at() == before
    script.close()
    assert not distributed.is_initialized()
    with torch.no_grad():
        script.model(script.batch[0])  # computes again as it did


def test_a_script_with_a_process_group_is_not_sharded():
    script = Looked("gpt")
    script.at()
    store = distributed.HashStore()
    distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        with pytest.raises(ValueError, match="the script has a process group of its own"):
            script.steps.begin(Variant(ranks=4))
    finally:
        distributed.destroy_process_group()
        script.close()
