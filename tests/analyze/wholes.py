"""What `analyze` prints, and that no number in it exceeds its whole."""

from __future__ import annotations

import re

import msgspec
import pytest
from batchadvisor.cli import cli
from batchadvisor.records import Breakdown
from click.testing import CliRunner


def shown(path, *options):
    done = CliRunner().invoke(cli, ["analyze", *options, str(path)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def no_number_above_its_whole(analysis, text):
    """No share of anything exceeds all of it, in the data and in what is shown of it."""

    def walk(value, where=""):
        if isinstance(value, dict):
            for key, part in value.items():
                if key.endswith("_pct") and part is not None:
                    assert -1e-6 <= part <= 100 + 1e-6, f"{where}.{key}: {part}"
                if key.endswith("_share") and part is not None:
                    assert -1e-6 <= part <= 1 + 1e-6, f"{where}.{key}: {part}"
                walk(part, f"{where}.{key}")
        elif isinstance(value, list):
            for number, part in enumerate(value):
                walk(part, f"{where}[{number}]")

    walk(msgspec.to_builtins(analysis))
    for report in analysis.traces:
        wholes = [(report.breakdown, report.window_s)]
        wholes += [(step.breakdown, step.window_s) for step in report.steps]
        for breakdown, window_s in wholes:
            if breakdown is None:
                continue
            parts = [getattr(breakdown, name) for name in Breakdown.__struct_fields__[:-1]]
            assert min(parts) >= 0
            assert sum(parts) == pytest.approx(breakdown.total_s)
            assert breakdown.total_s <= window_s * (1 + 1e-9)
        idle = report.profile.idle
        if idle is not None and report.profile.busy_pct is not None:
            assert idle.total_pct + report.profile.busy_pct == pytest.approx(100)
        for loss in report.verdict.contributions:
            assert loss.value <= 1
        assert sum(step.window_s for step in report.steps) <= report.window_s * (1 + 1e-9)
        assert report.step_s is None or report.step_s <= report.window_s * (1 + 1e-9)
    shares = [float(share) for share in re.findall(r"(\d+(?:\.\d+)?)%", text)]
    assert max(shares, default=0) <= 100, text
