"""Random pipelines of every kind, for tests that hold for all of them."""

import random

from batchadvisor import ModelFacts
from batchadvisor.cli.tails import SETUPS
from batchadvisor.errors import UsageError

SINGLE = ("dataloader", "keras-tensorflow", "keras-jax")


def facts_of(rng):
    """The fields of a pipeline; `batchadvisor.tails` may refuse them as contradictory."""
    setup, pick = rng.choice(SETUPS), rng.choice
    ranks = 1 if setup in SINGLE else pick((1, 2, 3, 4, 8))
    facts = {
        "num_samples": rng.randint(1, pick((40, 400, 100_000))),
        "batch_size": rng.randint(1, pick((16, 64, 256))),
        "setup": setup,
        "num_ranks": ranks,
        "drop_last": rng.random() < 0.3,
        "iterable": rng.random() < 0.2,
        "num_workers": pick((0, 0, 2, 3)),
        "micro_batches": pick((1, 1, 2, 4)),
        "stage": pick(("train", "train", "train", "validate", "predict")),
        "batch_is": pick((None, None, None, "global", "per rank")),
        "model": model_of(rng),
    }
    if setup in ("ddp", "lightning", "join"):
        facts["sampler"] = pick((None, "distributed", "plain", "shards"))
    if setup in ("ddp", "distributed-sampler", "lightning"):
        facts["sampler_drop_last"] = rng.random() < 0.2
    if setup in ("accelerate", "trainer"):
        facts["even_batches"] = rng.random() < 0.6
        facts["split_batches"] = rng.random() < 0.2
        facts["dispatch_batches"] = pick((None, True, False))
    if setup == "ddp" and rng.random() < 0.15:
        facts["rank_batch_sizes"] = tuple(rng.randint(0, 9) for _ in range(ranks))
        facts["batch_size"] = sum(facts["rank_batch_sizes"])
    return facts


def model_of(rng):
    """Facts of a model, half of them unknown."""
    pick = rng.choice
    return ModelFacts(
        batch_norm=pick((None, 0, 2)),
        batch_norm_values=pick((None, 1, 9)),
        sync_batch_norm=pick((None, None, 1)),
        group_norm=pick((None, 1)),
        group_norm_values=pick((None, 1, 2)),
        instance_norm=pick((None, None, 1)),
        instance_norm_values=pick((None, 4, 4, 4, 1)),
        optimizer=pick((None, "SGD", "Adam")),
        compiled=pick((None, "default", "static", "dynamic")),
        loss=pick(("mean", "mean", "sum", "contrastive")),
        loss_in_forward=rng.random() < 0.3,
    )


def reports(number, seed, plan):
    """`number` reports that `plan` made of random pipelines."""
    rng = random.Random(seed)
    while number:
        try:
            report = plan(**facts_of(rng))
        except UsageError:
            continue
        yield report
        number -= 1
