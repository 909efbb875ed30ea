"""What several tests of tails ask of a report."""

import batchadvisor


def planned(num_samples, batch_size, setup="dataloader", num_ranks=1, **facts):
    """What the engine says of a pipeline."""
    facts = {"setup": setup, "num_ranks": num_ranks, **facts}
    return batchadvisor.tails(num_samples=num_samples, batch_size=batch_size, **facts)


def case_of(report, name):
    """The finding of a case, `None` where it did not fire."""
    return next((finding for finding in report.findings if finding.id == name), None)
