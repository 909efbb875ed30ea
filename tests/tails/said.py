"""What several tests of tails ask of a report."""


def case_of(report, name):
    """The finding of a case, `None` where it did not fire."""
    return next((finding for finding in report.findings if finding.id == name), None)
