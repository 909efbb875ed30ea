"""Starts one rank a GPU, and there is none."""

import torch.multiprocessing as mp
from spawn_ddp import train


def main():
    num_gpus = 0  # what torch.cuda.device_count() is without one
    mp.spawn(train, args=(num_gpus, "", None), nprocs=num_gpus)


if __name__ == "__main__":
    main()
