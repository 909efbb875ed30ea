"""The options of `batchadvisor run` as somebody typed them, to be shown in another command."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Collection, Iterator, Sequence

NOT_AGAIN = {"--loader", "--output", "--resume", "--set", "--template", "-m"}
"""Not taken over into a command that starts a script in another way: it says these itself, or they
would fail there, as a folder that holds a run by then.
"""
_RUN = "batchadvisor run "
FLAGS = {
    *("--json", "--debug", "--keep-effective-batch", "--worst-case", "--dry-run", "--no-profile"),
    *("--stacks", "--quiet", "--verbose", "--template", "--workload", "-m"),
}
"""Options of `cli/run.py` that take no value; a test compares them."""
SHORT_OPTIONS = {"-o": "--output", "-q": "--quiet", "-v": "--verbose"}


def options_as_typed(
    command: Sequence[str], num_script_words: int, *, leave_out: Collection[str] = ()
) -> list[str]:
    """The words between the verb and the script, in the order in which they were typed.

    They end where the script, or what starts it, begins. Of an option that was typed twice, the
    last value counts.

    Args:
        command: `batchadvisor run`, its options, and the script with its arguments.
        num_script_words: of the script and its arguments.
        leave_out: options, by their long names.

    >>> command = "batchadvisor run --gpus all -q --device=cpu -o out --budget 9s a.py -q".split()
    >>> options_as_typed(command, 2, leave_out=("--gpus", "--device", "--output"))
    ['-q', '--budget', '9s']
    >>> options_as_typed("batchadvisor run -qo out --goal=knee -- a.py".split(), 1)
    ['-q', '-o', 'out', '--goal=knee']
    """
    typed = _options(command[2 : len(command) - num_script_words])
    return [word for name, words in typed.items() if name not in leave_out for word in words]


def with_options_typed(remedy: str, command: Sequence[str], num_script_words: int) -> str:
    """A remedy whose command has the options that were typed, and says that nobody tried it.

    Args:
        remedy: what to do about an error; it may propose a command.
        command, num_script_words: as in `options_as_typed`.

    >>> command = "batchadvisor run -q --loader 1 --budget 9s a.py".split()
    >>> with_options_typed("Type: batchadvisor run --template a.py --bs {batch_size}.", command, 1)
    'Type: batchadvisor run -q --budget 9s --template a.py --bs {batch_size}. It was not tried.'
    >>> with_options_typed("Fix it.", command, 1)
    'Fix it.'
    """
    ahead, run, proposed = remedy.partition(_RUN)
    if not run or proposed.startswith("OPTIONS"):
        return remedy
    leave_out = {*_options(list(_words(proposed))), *NOT_AGAIN}
    typed = options_as_typed(command, num_script_words, leave_out=leave_out)
    words = "".join(f"{shlex.quote(word)} " for word in typed)
    end = "" if remedy.endswith(".") else "."
    return f"{ahead}{run}{words}{proposed}{end} It was not tried."


def _words(text: str) -> Iterator[str]:
    """The words of a command, up to an apostrophe in the sentence after it."""
    lexer = shlex.shlex(text, posix=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    with contextlib.suppress(ValueError):  # no closing quotation
        yield from lexer


def _options(words: Sequence[str]) -> dict[str, list[str]]:
    """Yields each option by its long name, with its words."""
    typed: dict[str, list[str]] = {}
    left = list(words)
    while left and left[0].startswith("-") and left[0] != "--":
        word = left.pop(0)
        if len(word) > 2 and not word.startswith("--"):  # several short ones, such as -qo
            left[:0] = [word[:2], word[2:] if word.startswith("-o") else f"-{word[2:]}"]
            continue
        name = SHORT_OPTIONS.get(word, word.partition("=")[0])
        alone = name in FLAGS or "=" in word
        typed[name] = [word, *([] if alone else left[:1])]
        del left[: len(typed[name]) - 1]
    return typed
