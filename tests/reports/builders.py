"""Parts of synthetic records: trials, choices, discoveries; by formula, none was measured."""

from __future__ import annotations

from batchadvisor.advisor.measured.training import LINEAR_RULE, SQUARE_ROOT_RULE
from batchadvisor.records import Choice, LearningRate, Memory, Versions

from .. import on_paper
from ..needs import bench
from ..on_paper import exactly, failure_of, trial_of


def spread(median, relative=0.004):
    return exactly(median, relative, num_samples=30)


def timed(ordinal, batch_size, step_s, peak_bytes, *, relative=0.004, profile=None, **rest):
    values = {
        "half_width": relative,
        "num_samples": 30,
        "num_warmup_steps": 5,
        "samples_per_s": spread(batch_size / step_s, relative),
        "input_wait_s": spread(step_s * 0.02, 0.1),
        "memory": Memory(peak_bytes=int(peak_bytes), peak_source="synthetic"),
        "profile": profile,
        "elapsed_s": 4.0,
    }
    return trial_of(batch_size, step_s, ordinal=ordinal, **{**values, **rest})


def failed(ordinal, batch_size, outcome, detail, **rest):
    values = {"kind": "timed", "detail": detail, **rest}
    return failure_of(batch_size, outcome, ordinal=ordinal, **values)


def choice(trial, num_samples=None):
    rate = trial.samples_per_s
    epoch = None
    if rate is not None and num_samples is not None:
        epoch = spread(num_samples / rate.median, rate.relative_half_width)
    return Choice(
        batch_size=trial.batch_size,
        trial=trial.ordinal,
        samples_per_s=rate,
        step_s=trial.step_s,
        peak_bytes=trial.memory.peak_bytes if trial.memory else None,
        epoch_s=epoch,
    )


def discovery(native, num_samples, optimizer="SGD", rate=0.1, device="cpu"):
    return bench("synthetic_records").discovery(
        native,
        num_samples,
        optimizer=optimizer,
        learning_rate=rate,
        num_parameters=10**6,
        num_workers=2,
        device=device,
    )


def record_of(**rest):
    values = {
        "schema_version": "1.0",
        "started_at": "2000-01-01T00:00:00+00:00",
        "versions": Versions(batchadvisor="0.1.0", python="3.11.7", torch="2.9.0"),
        "stop_reason": "all is measured",
        "num_workers_started": 2,
        "elapsed_s": 95.0,
        "search_s": 80.0,
    }
    return on_paper.record_of(**{**values, **rest})


def learning_rates(optimizer, before, suggested):
    """Of one optimizer, with the rule that the advisor has for it."""
    rule, source = {"SGD": LINEAR_RULE, "AdamW": SQUARE_ROOT_RULE}[optimizer]
    rate = LearningRate(
        optimizer=optimizer, before=before, suggested=suggested, rule=rule, rule_source=source
    )
    return (rate,)
