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


@pytest.fixture(autouse=True)
def as_before():
    before = {number: signal.getsignal(number) for number in ENDING}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("signals", [[signal.SIGINT], [signal.SIGTERM, signal.SIGINT]])
def test_it_comes_once_after_the_block(signals):
    handlers = [signal.getsignal(number) for number in ENDING]
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    reached = []

    def work():
        with held_back():
            for number in signals:
                signal.raise_signal(number)
            reached.append("end of the block")
        reached.append("beyond")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert reached == ["end of the block"]
    handlers[ENDING.index(signal.SIGTERM)] = signal.default_int_handler
    assert [signal.getsignal(number) for number in ENDING] == handlers


def test_one_that_comes_too_late_to_be_held_is_heard():
    with held_back():
        hold = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        hold(signal.SIGINT, None)


def test_an_error_of_the_block_passes():
    with pytest.raises(FileNotFoundError), held_back():
        raise FileNotFoundError


@pytest.mark.parametrize(
    ("number", "name"),
    [(signal.SIGINT, "Ctrl-C"), (signal.SIGTERM, "SIGTERM"), (signal.SIGHUP, "SIGHUP")],
)
def test_who_interrupted_is_known(number, name):
    signal.signal(number, signal.default_int_handler)  # nohup ignores SIGHUP
    like_ctrl_c()
    with pytest.raises(KeyboardInterrupt) as pressed:
        signal.raise_signal(number)
    assert cause_of(pressed.value) == name
    assert signal_of(pressed.value) == number


def test_what_was_ignored_stays_ignored():
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with held_back():
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        signal.raise_signal(signal.SIGHUP)


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
    thread.start()
    thread.join()
    assert reached == [signal.getsignal(signal.SIGINT)]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_closed_terminal_interrupts_unless_nohup_was_asked_for(number):
    signal.signal(number, signal.SIG_IGN)
    assert number not in like_ctrl_c()
    signal.raise_signal(number)
    signal.signal(number, signal.SIG_DFL)
    assert like_ctrl_c()[number] is signal.SIG_DFL
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(number)


@pytest.mark.parametrize("name", ["", "SIGTERM"])
def test_it_comes_again_where_python_drops_it(name, monkeypatch, capsys):
    class Interrupted:
        def __del__(self):
            raise KeyboardInterrupt(name)

    def work():
        Interrupted()
        threading.Event().wait(60)

    monkeypatch.setattr(sys, "unraisablehook", sys.__unraisablehook__)
    like_ctrl_c()
    never_lost()
    with pytest.raises(KeyboardInterrupt) as pressed:
        work()
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
