"""Ctrl-C while a process is started: it comes once the process is known."""

import signal
import subprocess
import sys
import threading

import pytest
from batchadvisor.probes.process.interrupts import (
    ENDING,
    cause_of,
    held_back,
    like_ctrl_c,
    never_lost,
    signal_of,
)


def test_it_comes_after_the_block():
    reached = []

    def work():
        with held_back():
            signal.raise_signal(signal.SIGINT)
            reached.append("end of the block")
        reached.append("beyond")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert reached == ["end of the block"]


def test_two_of_them_are_one_interrupt():
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)

    def work():
        with held_back():
            signal.raise_signal(signal.SIGTERM)
            signal.raise_signal(signal.SIGINT)

    try:
        with pytest.raises(KeyboardInterrupt):
            work()
        assert signal.getsignal(signal.SIGTERM) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGTERM, before)


def test_one_that_comes_too_late_to_be_held_is_heard():
    held = []

    def work():
        with held_back():
            held.append(signal.getsignal(signal.SIGINT))

    work()
    with pytest.raises(KeyboardInterrupt):
        held[0](signal.SIGINT, None)


def test_an_error_of_the_block_passes():
    with pytest.raises(FileNotFoundError), held_back():
        raise FileNotFoundError


@pytest.mark.parametrize(
    ("number", "name"),
    [(signal.SIGINT, "Ctrl-C"), (signal.SIGTERM, "SIGTERM"), (signal.SIGHUP, "SIGHUP")],
)
def test_who_interrupted_is_known(number, name):
    started_with = signal.signal(number, signal.default_int_handler)  # nohup ignores SIGHUP
    before = like_ctrl_c()
    try:
        with pytest.raises(KeyboardInterrupt) as pressed:
            signal.raise_signal(number)
    finally:
        for changed, handler in before.items():
            signal.signal(changed, handler)
        signal.signal(number, started_with)
    assert cause_of(pressed.value) == name
    assert signal_of(pressed.value) == number


def test_handlers_are_as_before():
    before = [signal.getsignal(signum) for signum in ENDING]
    with held_back():
        pass
    assert [signal.getsignal(signum) for signum in ENDING] == before


def test_what_was_ignored_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with held_back():
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
            signal.raise_signal(signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_process_started_inside_hears_ctrl_c():
    code = "import signal; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
    with held_back():
        printed = subprocess.check_output([sys.executable, "-c", code], text=True)
    assert printed.strip() == "True"


def test_in_another_thread_it_is_just_a_block():
    reached = []

    def work():
        with held_back():
            reached.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    before = signal.getsignal(signal.SIGINT)
    thread.start()
    thread.join()
    assert reached == [before]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_closed_terminal_interrupts_unless_nohup_was_asked_for(number):
    usual = {signum: signal.getsignal(signum) for signum in (signal.SIGTERM, signal.SIGHUP)}
    try:
        signal.signal(number, signal.SIG_IGN)
        assert number not in like_ctrl_c()
        signal.raise_signal(number)
        signal.signal(number, signal.SIG_DFL)
        assert like_ctrl_c()[number] is signal.SIG_DFL
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)
    finally:
        for signum, handler in usual.items():
            signal.signal(signum, handler)


@pytest.mark.parametrize("name", ["", "SIGTERM"])
def test_it_comes_again_where_python_drops_it(name, monkeypatch, capsys):
    class Interrupted:
        def __del__(self):
            raise KeyboardInterrupt(name)

    def work():
        Interrupted()
        threading.Event().wait(60)

    monkeypatch.setattr(sys, "unraisablehook", sys.__unraisablehook__)
    before = like_ctrl_c()
    never_lost()
    try:
        with pytest.raises(KeyboardInterrupt) as pressed:
            work()
    finally:
        for changed, handler in before.items():
            signal.signal(changed, handler)
    assert cause_of(pressed.value) == (name or "Ctrl-C")
    assert capsys.readouterr().err == ""


def test_other_dropped_errors_are_shown(monkeypatch, capsys):
    class Broken:
        def __del__(self):
            raise ValueError("a number")

    monkeypatch.setattr(sys, "unraisablehook", sys.__unraisablehook__)
    never_lost()
    Broken()
    assert "ValueError: a number" in capsys.readouterr().err
