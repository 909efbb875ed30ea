"""Executes the code of pages in real ranks: `python pages_of_ranks.py RANK FOLDER JOB...`.

PAGE_JOBS names a file with the jobs: code, and the pipeline that it finds around it.
"""

import itertools
import json
import os
import sys
import warnings
from datetime import timedelta
from pathlib import Path

import torch
from torch import distributed, nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Subset, TensorDataset
from torch.utils.data.distributed import DistributedSampler

warnings.simplefilter("ignore")


def own_loader(job, dataset, rank, world):
    """The loader of this rank as the pipeline has it, without the fix."""
    count, size = len(dataset), job["batch_size"]
    if job["rank_batch_sizes"]:
        sizes, first = job["rank_batch_sizes"], sum(job["rank_batch_sizes"][:rank])
        order = list(range(count))
        starts = range(0, count, size)
        batches = [order[start:][:size][first:][: sizes[rank]] for start in starts]
        return DataLoader(dataset, batch_sampler=batches)
    if job["sampler"] == "shards":
        dataset = Subset(dataset, range(rank, count, world))
        return DataLoader(dataset, size, drop_last=job["drop_last"])
    sampler = None
    if job["sampler"] == "distributed":
        sampler = DistributedSampler(dataset, drop_last=job["sampler_drop_last"])
    return DataLoader(dataset, size, sampler=sampler, drop_last=job["drop_last"])


def run(job, rank):
    """Lengths of the batches that this rank trains on, and the gradient of each step."""
    world = distributed.get_world_size()
    count = job["num_samples"]
    dataset = TensorDataset(torch.arange(float(count))[:, None])
    model = nn.Linear(1, 1, bias=False)
    ddp_model = DistributedDataParallel(model)
    lengths, gradients = [], []

    def train_step(batch):
        model.zero_grad()
        (ddp_model(batch[0]) / model.weight.detach()).mean().backward()
        lengths.append(len(batch[0]))  # not of a step that Join ends
        gradients.append((model.weight.grad * model.weight).item())

    names = {
        "torch": torch, "itertools": itertools, "DataLoader": DataLoader, "Join": Join,
        "DistributedSampler": DistributedSampler, "dataset": dataset, "ddp_model": ddp_model,
        "train_step": train_step, "rank": rank, "world_size": world, "epoch": 0,
        "device": torch.device("cpu"), "order": list(range(count)),
        "rank_batch_sizes": job["rank_batch_sizes"],
    }  # fmt: skip
    names["loader"] = own_loader(job, dataset, rank, world)
    if "n_local" in job["code"]:
        for batch in names["loader"]:
            lengths.append(len(batch[0]))
            model.zero_grad()
            output = ddp_model(batch[0])
            names.update(target=batch[0], output=output)
            names["loss"] = (output / model.weight.detach()).mean()
            exec(job["code"], names)
            gradients.append((model.weight.grad * model.weight).item())
    else:
        if job["code"]:
            exec(job["code"], names)
        if "train_step" not in job["code"]:
            for batch in names["loader"]:
                train_step(batch)
    return {"lengths": lengths, "gradients": gradients}


def main():
    rank, folder, wanted = int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]
    distributed.init_process_group("gloo", timeout=timedelta(seconds=20))
    jobs = json.loads(Path(os.environ["PAGE_JOBS"]).read_text())
    seen = {}
    for name in wanted:
        seen[name] = run(jobs[name], rank)
        (folder / f"{rank}.json").write_text(json.dumps(seen))
        distributed.barrier()
    os._exit(0)


if __name__ == "__main__":
    main()
