"""Messages to the user when a script cannot be measured: what, why, what to do."""

from __future__ import annotations

import os
import re
import traceback
from pathlib import Path
from typing import TypeGuard

from ...advisor.explain import remedies
from ...advisor.explain.known_failures import (
    EMPTY_DATASET,
    KnownFailure,
    failure_of,
    known_failure,
    known_refusal,
    next_step,
)
from ...advisor.measured.measurements import Measurements
from ...advisor.measured.thresholds import BUDGET_SPENT
from ...advisor.tails import tails
from ...errors import BatchAdvisorError, RunError, ScriptError, UsageError
from ...probes.devices import host
from ...probes.devices.device_faults import device_fault
from ...probes.nvml.gpus import devices
from ...probes.process.endings import OWN_FAULT, WorkerGone
from ...probes.process.messages import CannotSteer, Ended, Raised
from ...probes.source.placeholder import command, proposal
from ...records import (
    LoaderInfo,
    RunRecord,
    TailCheck,
    TailFinding,
    TailReport,
    Trial,
    TrialRequest,
    traits_of,
    trial_of,
)
from ...reports.words.wording import plural
from ...units import format_bytes
from ..setup.options import RunOptions
from .size_in_script import not_by_a_loader, refused_without_a_loader

NO_STEPS = "loader.no-steps"
"""The case of an epoch without a step."""
LOG_TAIL_BYTES = 20_000
REPORT_IT = "This is a bug in batchadvisor; please report it with the traceback."
MANY_STEPS = 20
"""A loop that fetches is found in fewer optimizer steps, several on a batch among them."""
_EXCEPTION = re.compile(r"[\w.]*(Error|Exception)\b")
"""The last line of a traceback."""
_LAUNCHERS_OWN = (
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
)


def error_of(
    gone: WorkerGone,
    options: RunOptions,
    log: Path,
    batch_cap: int | None,
    *,
    again: bool = False,
) -> BatchAdvisorError:
    """The error for a worker that was over before its training loop was found.

    Args:
        batch_cap: the size that the batches were cut to.
        again: an earlier process of the run came to the loop.
    """
    script, message = options.script, gone.message
    if isinstance(message, CannotSteer):
        kind = UsageError if message.usage else RunError
        if message.door is not None and traits_of(message.door).size_is_argument:
            if options.verb == "estimate":
                remedy = proposal(options.known_script)
                remedy = f"`estimate` needs a DataLoader; on a GPU, `run` does without. {remedy}"
                return kind(f"{message.reason}.", remedy)
            return not_by_a_loader(message, options)
        return kind(f"{message.reason}.", _sentence(message.remedy))
    if gone.outcome == "out_of_memory":
        known = refusal_before_the_loop(gone, batch_cap)
        if known is not None:
            text = message.traceback if isinstance(message, Raised) else ""
            return ScriptError(f"{known.what} ({gone.detail}).", known.remedy, text)
        uncut = fed_by_no_loader(gone, options)
        elsewhere = refused_without_a_loader(gone.detail, options) if uncut else None
        return elsewhere or _out_of_memory(gone, options, batch_cap)
    fault = _fault_of(gone.detail, "cpu" if _has_no_gpu(options.device) else options.device)
    if fault is not None:
        return fault
    shape = message.largest_tensor if isinstance(message, Raised) else ()
    known = known_failure(gone.detail, batch_cap, shape)
    if known is not None:
        return RunError(f"{known.what} ({gone.detail}).", known.remedy)
    if again and isinstance(message, (Raised, Ended)) and not message.num_steps:
        own = isinstance(message, Raised) and message.kind == "batchadvisor"
        if not own:
            return _not_again(gone, message, options, log)
    if isinstance(message, Raised):
        if options.module and _is_no_module(message, script):
            return UsageError(
                f"{script} cannot be run as a module: {message.text}.",
                "Check the name and the working folder, as for python -m.",
            )
        if options.live is not None:
            return ScriptError(f"{script} raised {gone.detail}.", "Fix it.", message.traceback)
        if message.kind == "batchadvisor":
            return ScriptError(
                f"{OWN_FAULT} inside {script}: {message.text}.",
                REPORT_IT,
                message.traceback,
            )
        if _asks_for_input(message):
            return ScriptError(
                f"{script} asks for input, but standard input is closed during a run.",
                "Pass its input as an argument or in a file.",
                message.traceback,
            )
        helps = next_step(gone.detail)
        remedy = f"{helps} Its output is in {log}." if helps else _if_it_fails_alone(log)
        if message.num_steps == 0 and is_empty(message.empty):
            what, first = no_batches(message.empty)
            remedy = f"{what[0].upper()}{what[1:]}. {first} {remedy}"
        if _lacks_a_launcher(message):
            start = command(
                script, options.arguments, module=options.module, options=("--nproc-per-node", "2")
            )
            way = "Start" if options.verb == "run" else "Ranks are not estimated; on GPUs, start"
            remedy = f"It expects to be a rank of a job. {way} it as one: {start}"
        return ScriptError(f"{script} raised {gone.detail}.", remedy, message.traceback)
    if isinstance(message, Ended):
        return _ended(message, options, log)
    if gone.outcome == "hung":
        return RunError(
            f"{script}: {gone.detail}, and the training loop was not reached.",
            f"See the stacks in {log}, or raise --timeout.",
        )
    return RunError(
        f"{script}: {gone.detail}, before the training loop was reached.",
        f"See its output in {log}.",
    )


def _not_again(
    gone: WorkerGone, message: Raised | Ended, options: RunOptions, log: Path
) -> BatchAdvisorError:
    """A script that trained when it was started first, and not the next time."""
    what = f"{options.script} trained when it was started first, and not when it was started again"
    helps = next_step(gone.detail) or (
        "What its first start left may stop it, such as a folder: let the script go on where that "
        "exists."
    )
    remedy = f"{helps} What was measured stands. Its output is in {log}."
    if isinstance(message, Raised):
        return ScriptError(f"{what}: it raised {gone.detail}.", remedy, message.traceback)
    said = _last_line(log)
    last = f"; its last words: {said}" if said else ""
    return RunError(f"{what}: it ended with exit code {message.exit_code}{last}.", remedy)


def fed_by_no_loader(gone: WorkerGone, options: RunOptions) -> bool:
    """Whether no batch of the script's could have been cut."""
    message = gone.message
    uncut = isinstance(message, Raised) and message.without_loader
    return uncut and options.traits.steers_loader


def refusal_before_the_loop(gone: WorkerGone, batch_cap: int | None) -> KnownFailure | None:
    """Why memory was refused, where smaller batches would not help."""
    if gone.outcome != "out_of_memory":
        return None
    aside = gone.message.aside if isinstance(gone.message, Raised) else ""
    return known_refusal(gone.detail, aside, batch_size=batch_cap, device_bytes=host.total_bytes())


def _asks_for_input(message: Raised) -> bool:
    return message.kind == "EOFError" and "EOF when reading a line" in message.text


def _lacks_a_launcher(message: Raised) -> bool:
    """Whether a script looked in vain for what torchrun would have put into its environment."""
    if "RANK" in os.environ:
        return False
    if message.kind == "KeyError":
        return message.text.strip("'") in _LAUNCHERS_OWN
    return any(f"environment variable {name} expected" in message.text for name in _LAUNCHERS_OWN)


def nothing_fits(record: RunRecord, script_traceback: str, log: Path) -> BatchAdvisorError | None:
    """The error for a run in which no size ran, or the script raised at its own.

    Args:
        script_traceback: of the last exception that the script raised in a trial.
        log: everything that the script printed.
    """
    measurements = Measurements.of(record)
    bad = measurements.failed
    if bad and bad[-1] is record.trials[-1]:  # else it came back
        fault = _fault_of(bad[-1].detail, record.device.kind if record.device else "")
        if fault is not None:
            return fault
    own = measurements.own_size
    raised = next(
        (
            trial
            for trial in bad
            if trial.outcome == "exception"
            and trial.batch_size == own
            and failure_of(trial, record.device, smaller_ran=False) is None
        ),
        None,
    )
    if raised is not None and own not in measurements.sizes_that_ran:
        if raised.detail.startswith(OWN_FAULT):
            return _own_fault(raised.detail, script_traceback)
        what = f"the script raised {raised.detail}, at batch {own}, its own size."
        return ScriptError(what, _mend_the_script(record, log), script_traceback)
    if measurements.ran:
        return None
    for trial in [one for one in record.trials if one.outcome == "out_of_memory"][-1:]:
        known = failure_of(trial, record.device, smaller_ran=False)
        if known is not None:
            what = f"{known.what} (batch {trial.batch_size}: {trial.detail})."
            return ScriptError(what, known.remedy, script_traceback)
    if not bad:
        return None
    smallest = min(bad, key=lambda trial: trial.batch_size)
    limit = record.device.capacity_bytes if record.device is not None else 0
    if smallest.outcome == "out_of_memory":
        needs = f"batch {smallest.batch_size} needs more than {format_bytes(limit)}."
        if record.stop_reason == BUDGET_SPENT:
            what = f"the time was over before a size ran: {needs}"
            return UsageError(what, "Continue with --resume and a larger --budget.")
        limited = record.device is not None and record.device.limit_bytes is not None
        remedy = remedies.no_size_fits(record.goal, smallest.batch_size, limited=limited)
        return UsageError(f"nothing fits: {needs}", remedy)
    last = bad[-1]
    known = failure_of(last, record.device, smaller_ran=False)
    if known is not None:
        return RunError(f"{known.what} (batch {last.batch_size}: {last.detail}).", known.remedy)
    what = f"no size could be measured; batch {last.batch_size}: {last.detail}."
    if last.detail.startswith(OWN_FAULT):
        return _own_fault(last.detail, script_traceback)
    if last.outcome == "exception":
        return ScriptError(what, _mend_the_script(record, log), script_traceback)
    if last.outcome == "script_ended":
        return RunError(what, "Let it train longer: more epochs, or a larger step limit.")
    return RunError(what, f"See its output in {log}.")


def failed_trial(
    request: TrialRequest, gone: WorkerGone, *, ordinal: int, worker: int, elapsed_s: float
) -> Trial:
    """The trial of a process that was over before it could say anything of it."""
    tail = None
    if request.purpose == "tail":
        tail = TailCheck(num_samples=request.batch_size, outcome=gone.outcome, detail=gone.detail)
    return trial_of(
        request,
        ordinal=ordinal,
        worker=worker,
        outcome=gone.outcome,
        detail=gone.detail,
        largest_tensor=gone.message.largest_tensor if isinstance(gone.message, Raised) else (),
        aside=gone.message.aside if isinstance(gone.message, Raised) else "",
        elapsed_s=elapsed_s,
        tail=tail,
    )


def tool_failed(error: BaseException) -> ScriptError:
    """The error for a fault of our own outside the script's process."""
    text = f"{type(error).__name__}: {error}".rstrip(".: ")
    return ScriptError(
        f"{OWN_FAULT}: {text}.",
        REPORT_IT,
        "".join(traceback.format_exception(error)),
    )


def _has_no_gpu(device: str) -> bool:
    """Whether none could have failed, as none was there."""
    return device == "auto" and not devices()


def _fault_of(detail: str, device: str) -> RunError | None:
    """The error where the GPU failed, and not the script."""
    fault = device_fault(detail) if not device.startswith("cpu") else None
    return None if fault is None else RunError(f"{fault.what} ({detail}).", fault.remedy)


def _out_of_memory(
    gone: WorkerGone, options: RunOptions, batch_cap: int | None
) -> BatchAdvisorError:
    message = gone.message
    peak = message.peak_bytes if isinstance(message, Raised) else None
    had = f" ({format_bytes(peak)} with torch itself when refused)" if peak is not None else ""
    limit = (
        f" than {format_bytes(options.memory_limit_bytes)}"
        if options.memory_limit_bytes is not None
        else " than there is"
    )
    if isinstance(message, Raised) and message.num_steps == 0 and batch_cap is None:
        what = f"nothing fits as the script is: its memory was over before its first step{had}."
    elif fed_by_no_loader(gone, options):
        what = f"the script ran out of memory at its own size{had}."
    else:
        what = f"nothing fits: batch {batch_cap or 1} needs more memory{limit}{had}."
    limited = options.memory_limit_bytes is not None
    return UsageError(what, remedies.nothing_fits(limited=limited))


def _if_it_fails_alone(log: Path) -> str:
    return f"If the script also fails without batchadvisor, fix it first. Its output is in {log}."


def _own_fault(detail: str, script_traceback: str) -> ScriptError:
    return ScriptError(f"{detail}.", REPORT_IT, script_traceback)


def _mend_the_script(record: RunRecord, log: Path) -> str:
    """It raised in a loop that it had gone round before, with batches of its own."""
    if record.discovery is not None and not record.discovery.traits.steers_loader:
        return _if_it_fails_alone(log)
    return (
        f"{_if_it_fails_alone(log)} If it relies on an epoch ending, which does not happen while "
        "sizes are measured, start it once for each size: --template, with {batch_size} in its "
        "arguments."
    )


def _ended(message: Ended, options: RunOptions, log: Path) -> BatchAdvisorError:
    script = options.script
    if message.exit_code == 2 and message.num_steps == 0:
        said = _last_line(log)
        return UsageError(
            f"{script} ended with exit code 2 before training{': ' + said if said else ''}.",
            "Put our options before the script and its own after it: batchadvisor "
            f"{options.verb} OPTIONS {script} ARGUMENTS.",
        )
    if message.exit_code != 0:
        said = _last_line(log)
        return RunError(
            f"{script} ended with exit code {message.exit_code} before its training loop was "
            f"found{': ' + said if said else ''}.",
            f"{next_step(said)} Its output is in {log}.".lstrip(),
        )
    if message.num_steps == 0 and is_empty(message.empty):
        what, remedy = no_batches(message.empty)
        return RunError(f"{script} makes no step: {what}.", remedy)
    if message.num_steps == 0:
        said = _last_line(log)
        return RunError(
            f"{script} never trains: it ended after {plural(message.num_loaders, 'DataLoader')}, "
            f"{plural(message.num_fetches, 'batch', 'batches')} fetched with gradients enabled and "
            f"no optimizer step. {f'Its last words: {said}.' if said else ''}".strip(),
            _after_an_exception(said, log) or "Point batchadvisor at the script that trains.",
        )
    if 0 < message.num_fetches < message.num_steps >= MANY_STEPS:
        fetched = plural(message.num_fetches, "batch", "batches")
        return RunError(
            f"{script} made {message.num_steps} optimizer steps on {fetched} that it fetched, "
            "and ended. Only a loop that keeps fetching can be steered.",
            proposal(options.known_script, forced=True),
        )
    return RunError(
        f"{script} ended after {plural(message.num_steps, 'optimizer step')}, before two training "
        "cycles could be seen.",
        "Let it train longer: more epochs, or a larger step limit.",
    )


def _is_no_module(message: Raised, name: str) -> bool:
    """Whether it was the search for the module that raised, and nothing of the module ran."""
    return message.kind == "ImportError" and message.text.startswith(
        ("Error while finding module specification for ", f"No module named {name}")
    )


def _after_an_exception(said: str, log: Path) -> str:
    """What to do about one that the script caught, printed last and ended well; empty if none."""
    if _EXCEPTION.match(said) is None:
        return ""
    helps = next_step(said)
    return f"{helps} Its output is in {log}." if helps else _if_it_fails_alone(log)


def _last_line(log: Path) -> str:
    try:
        data = log.read_bytes()[-LOG_TAIL_BYTES:]
    except OSError:
        return ""
    lines = [line.strip() for line in data.decode(errors="replace").splitlines() if line.strip()]
    return lines[-1].rstrip(".") if lines else ""


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def is_empty(loader: LoaderInfo | None) -> TypeGuard[LoaderInfo]:
    """Whether its samples, or the arithmetic of its last batch, say why it gave no batch."""
    return loader is not None and (loader.num_samples == 0 or _finding(loader) is not None)


def no_batches(loader: LoaderInfo) -> tuple[str, str]:
    """Says what happened, without a full stop, and what to do.

    Args:
        loader: one of which `is_empty` holds.
    """
    where = "" if loader.place is None else f" at {loader.place}"
    if loader.num_samples == 0:
        return f"the dataset of the DataLoader{where} is empty", EMPTY_DATASET
    finding = _finding(loader)
    assert finding is not None
    sizes = [fix.snippet for fix in finding.fixes]
    take = f"Take {sizes[0]}" if sizes else "Take a smaller batch"
    return (
        f"the DataLoader{where} gives no batch, as {finding.message} ({NO_STEPS})",
        f"{take}, or leave drop_last out (batchadvisor tails --explain {NO_STEPS}).",
    )


def _finding(loader: LoaderInfo) -> TailFinding | None:
    report = _report(loader)
    if report is None:
        return None
    return next((finding for finding in report.findings if finding.id == NO_STEPS), None)


def _report(loader: LoaderInfo) -> TailReport | None:
    """The end of an epoch of its own samples: those of one rank."""
    if not loader.num_samples or not loader.batch_size:
        return None
    return tails(
        num_samples=loader.num_samples,
        batch_size=loader.batch_size,
        drop_last=loader.drop_last,
        iterable=loader.iterable,
        num_workers=loader.num_workers,
    )
