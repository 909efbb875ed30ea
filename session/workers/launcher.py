"""A launcher starts the script: torch's own for `--nproc-per-node N`, or one that was typed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec

from ...errors import RunError, UsageError
from ...probes.devices import host
from ...probes.process.interrupts import held_back, signal_of
from ...probes.worker.run_script import die_with_parent
from ..setup.options import RunOptions, check_script
from ..setup.options_as_typed import options_as_typed
from ..setup.options_handed_over import hand_over
from .ranks import own_rank

OPTION = "--nproc-per-node"
EXIT_CODE = "BATCHADVISOR_EXIT_CODE_FILE"
"""Where rank 0 writes its exit code (see cli): the launcher's own says only that a rank failed."""
LAUNCHER_END_S = 40.0
"""The launcher gives its ranks 30 s after a signal."""


def launch(options: RunOptions) -> int:
    """Starts the same run on ranks of this host, or as the typed launcher does, and waits for it.

    Returns:
        The exit code of rank 0.

    Raises:
        UsageError: this process is a rank itself, or there is no such script.
        RunError: the launcher failed before rank 0 could say anything.
        KeyboardInterrupt: it was interrupted by then.
    """
    if own_rank() is not None:
        msg = f"{OPTION} inside a rank: a launcher has started this process already."
        raise UsageError(msg, f"Leave {OPTION} out; the ranks find each other.")
    if not options.module:
        check_script(options.script_path)
    with tempfile.TemporaryDirectory(prefix="ba-launch-") as folder:
        exit_code = Path(folder) / "exit_code"
        try:
            code = _run(options, Path(folder), exit_code)
        except KeyboardInterrupt:
            with contextlib.suppress(OSError, ValueError):
                return int(exit_code.read_text())
            raise  # no rank had begun
        with contextlib.suppress(OSError, ValueError):
            return int(exit_code.read_text())
    raise RunError(
        f"the launcher ended with exit code {code} before rank 0 had an answer.",
        "See its output above.",
    )


def of_a_rank(options: RunOptions) -> RunOptions:
    """The options of each rank: it starts no others, and its record names the launcher first.

    >>> of_a_rank(
    ...     RunOptions(
    ...         script="a.py",
    ...         num_ranks=2,
    ...         command=("batchadvisor", "run", "-q", "--nproc-per-node", "2", "a.py"),
    ...     )
    ... ).command
    ('batchadvisor', 'run', '--nproc-per-node', '2', '-q', 'a.py')
    """
    if options.launcher:  # the command names it already
        return msgspec.structs.replace(options, launcher=())
    words = options.typed_words
    typed = options_as_typed(options.command, len(words), leave_out=(OPTION,))
    command = ("batchadvisor", "run", OPTION, str(options.num_ranks), *typed, *words)
    return msgspec.structs.replace(options, num_ranks=None, command=command)


def leave_pid() -> None:
    """Rank 0 has met the others: from here on an interrupt is its own to deal with."""
    path = os.environ.get(EXIT_CODE)
    if path is not None:
        with contextlib.suppress(OSError):
            Path(f"{path}.pid").write_text(str(os.getpid()))


def _interrupt(launcher: subprocess.Popen[bytes], exit_code: Path, number: signal.Signals) -> None:
    """Rank 0 ends the others and itself in good order; a signal to the launcher would not."""
    try:
        os.kill(int(Path(f"{exit_code}.pid").read_text()), number)
    except (OSError, ValueError):  # nothing was measured, and nobody listens while torch waits
        _kill(launcher)
    with contextlib.suppress(subprocess.TimeoutExpired):
        launcher.wait(LAUNCHER_END_S)


def _kill(launcher: subprocess.Popen[bytes]) -> None:
    """Ends the launcher and its ranks, each of which is in a session of its own."""
    with held_back():
        launcher.send_signal(signal.SIGSTOP)  # it starts no more of them
        for pid in [*host.descendants(launcher.pid), launcher.pid]:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)


def _run(options: RunOptions, folder: Path, exit_code: Path) -> int:
    num_ranks = options.num_ranks or 1
    launcher = options.launcher or (
        *(sys.executable, "-m", "torch.distributed.run", "--standalone"),
        *(f"--nproc-per-node={num_ranks}", f"--log-dir={folder}"),  # else it leaves one in TMPDIR
    )
    whole = [*launcher, "-m", "batchadvisor", "run", "--", *options.script_words]
    # Whatever ranks leave that have to be killed goes with our own folder.
    environment = {**os.environ, EXIT_CODE: str(exit_code), "TMPDIR": str(folder)}
    environment |= hand_over(of_a_rank(options), folder / "options.json")
    if not options.launcher:
        num_threads = max(1, (os.cpu_count() or 1) // num_ranks)
        environment.setdefault("OMP_NUM_THREADS", str(num_threads))
    process = None
    try:
        with held_back():
            # A session of its own: a Ctrl-C of the terminal reaches the ranks once, through us.
            process = subprocess.Popen(
                whole,
                env=environment,
                start_new_session=True,
                # Its ranks end when it does. Nothing else of ours runs between fork and exec.
                preexec_fn=die_with_parent,  # noqa: PLW1509
            )
        return process.wait()
    except KeyboardInterrupt as pressed:
        if process is not None:
            _interrupt(process, exit_code, signal_of(pressed))
        raise
    finally:
        with held_back():
            if process is not None:
                if process.poll() is None:  # a second Ctrl-C, or ranks that do not end
                    _kill(process)
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
