"""Looks for the number that sets a loader's size in the script's text, by its syntax tree.

It may stand in the call itself, in a constant, in a default of an option, a parameter or a
dataclass field, in a dictionary, or at a caller of the function that makes the loader. What cannot
be followed is named by the call alone.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from ...records import BatchSizeSource, SourceLine
from .callers import Around, around, function_of
from .outside import TRAINER_NAMES, Chain
from .script_options import declared_options, typed_option
from .script_text import (
    ScriptText,
    batch_size_argument,
    batch_size_entry,
    chains_in,
    name_of,
    target_name,
)

MOST_CALLERS = 5
"""Functions that are followed outwards where only their text tells who calls them."""


def finder_at(
    place: SourceLine,
    batch_size: int | None,
    arguments: tuple[str, ...],
    callers: tuple[SourceLine, ...],
    files: tuple[str, ...] = (),
) -> Finder | None:
    """Makes a finder that looks from a line on; `None` where its file cannot be read."""
    script = ScriptText.of(place)
    if script is None:
        return None
    return Finder(script, place, batch_size, arguments, callers, files=files)


class Finder:
    """Looks for a number in one file of the script, from the line on which a loader is made.

    Args:
        script: the text of that file.
        place: the line.
        batch_size: the number.
        arguments, callers, files: as `find_batch_size_source` takes them.
        setting: what the number is called.
    """

    def __init__(
        self,
        script: ScriptText,
        place: SourceLine,
        batch_size: int | None,
        arguments: tuple[str, ...],
        callers: tuple[SourceLine, ...] = (),
        *,
        setting: str = "batch_size",
        files: tuple[str, ...] = (),
    ) -> None:
        self._setting = setting
        self._files = files
        self._script = script
        self._tree = script.tree
        self._place = place
        self._size = batch_size
        self._arguments = arguments
        self._callers = callers
        self._depth = 0
        self.chains: list[Chain] = []
        """How the size is read from what the script was given, on the way of what was found."""
        self._followed: set[str] = set()
        self._uncalled: set[str] = set()
        """Parameters of functions that no text calls: a framework may do it, with a setting."""

    def find(self) -> BatchSizeSource | None:
        call = self._call()
        argument = batch_size_argument(call) if call is not None else None
        if call is None or argument is None:
            return (
                self._unpacked() or self._passed_on() or self._of_a_framework() or self._settings()
            )
        holder = next((keyword for keyword in call.keywords if keyword.value is argument), None)
        name = "batch_size" if holder is None else holder.arg
        return self.behind(argument, holder or call) or self._named(name, argument)

    def _named(self, name: str | None, argument: ast.expr) -> BatchSizeSource:
        """An argument that cannot be followed."""
        return BatchSizeSource(
            place=self._at(argument), before=f"{name}={self._script.segment(argument)}"
        )

    def behind(self, argument: ast.expr, holder: ast.AST) -> BatchSizeSource | None:
        """The place of the number that an argument stands for."""
        if self._is_size(argument):
            return self._numbered(argument, holder)
        if isinstance(argument, ast.IfExp):
            either = [self.behind(part, holder) for part in (argument.body, argument.orelse)]
            found = [source for source in either if source is not None]
            return next(filter(self._holds, found), found[0] if found else None)
        source = self._in_call(argument) if isinstance(argument, ast.Call) else None
        chains = [] if source is not None else chains_in(argument)
        for chain in chains:
            caller = self._from_callers(chain[-1]) if isinstance(argument, ast.Name) else None
            if caller is not None and caller.template:
                return caller
            name = chain[-1]
            source = self._by_name(name) or self._in_other_files(name) or self._typed(name)
            source = source or caller
            is_constant = isinstance(argument, ast.Name) and name not in self._uncalled
            if not (is_constant and source and source.template and source.option is None):
                self.chains.append(chain)
            if source is not None:
                break
        return source

    def _passed_on(self) -> BatchSizeSource | None:
        """The size among the `**kwargs` of the function that makes the loader: its callers'."""
        inside = around(self._tree, self._place.line)
        if inside is None or not any(inside.unpacks(call) for call in self._calls()):
            return None
        return self._from_callers("batch_size")

    def _from_callers(self, name: str) -> BatchSizeSource | None:
        """Looks at what callers give to the parameter `name` of the surrounding function."""
        inside = around(self._tree, self._place.line)
        if inside is None or not inside.takes(name):
            return None
        return self._given_by(self._calls_of(inside, name), inside, name)

    def _given_by(
        self, calls: Iterable[tuple[Finder, ast.Call]], inside: Around, name: str
    ) -> BatchSizeSource | None:
        """What calls of a function give to its parameter `name`."""
        unclear = None
        for finder, call in calls:
            given = inside.given(call, name)
            if given is None:
                source = finder._unpacked() or finder._passed_on()
            else:
                source = finder.behind(*given) or finder._named(name, given[0])
            if source is not None and source.template:
                return source
            unclear = unclear or source
        return unclear

    def _default(self, number: ast.expr, parameter: ast.arg) -> BatchSizeSource:
        """The default of a parameter, or what calls of its function give in its place."""
        name, default = parameter.arg, self._numbered(number, parameter)
        inside = function_of(self._tree, parameter)
        if inside is None or self._depth >= MOST_CALLERS:
            return default
        calls = [
            (finder, call, inside.given(call, name))
            for finder, call in self._all_calls_of(inside, name)
        ]
        if not calls:
            self._uncalled.add(name)
        if any(given is None for _, _, given in calls):
            return default  # a call leaves it to that
        fitting = [
            (finder, call)
            for finder, call, given in calls
            if given is not None
            and (self._is_size(given[0]) or not isinstance(given[0], ast.Constant))
        ]
        return self._given_by(fitting, inside, name) or default

    def _all_calls_of(self, inside: Around, name: str) -> Iterator[tuple[Finder, ast.Call]]:
        """The calls of a function by its name, in all of the user's files.

        Other objects have methods of that name, as `model.train(True)`: such a call counts where it
        makes a class or names the parameter `name`.
        """
        names = inside.names - {"__init__"}
        known = (self._place.file, *(caller.file for caller in self._callers), *self._files)
        for file in dict.fromkeys(known):
            script = ScriptText.of(SourceLine(file=file, line=1), mentions=names)
            for call in () if script is None else ast.walk(script.tree):
                if not isinstance(call, ast.Call) or target_name(call.func) not in names:
                    continue
                named = any(keyword.arg == name for keyword in call.keywords)
                makes = inside.function.name == "__init__"
                if makes or named or isinstance(call.func, ast.Name):
                    assert script is not None
                    place = SourceLine(file=file, line=call.lineno)
                    finder = Finder(script, place, self._size, self._arguments, files=self._files)
                    finder._depth, finder.chains = self._depth + 1, self.chains
                    yield finder, call

    def _calls_of(self, inside: Around, name: str) -> Iterator[tuple[Finder, ast.Call]]:
        """Calls of a function, each with what looks on from there."""
        for number, place in enumerate(self._callers):
            finder = self._other(place, self._callers[number + 1 :])
            for call in finder._calls() if finder is not None else ():
                named = any(keyword.arg == name for keyword in call.keywords)
                if finder is not None and (named or target_name(call.func) in inside.names):
                    yield finder, call
        if self._callers or self._depth >= MOST_CALLERS:
            return
        for node in ast.walk(self._tree):
            if isinstance(node, ast.Call) and target_name(node.func) in inside.names:
                finder = Finder(self._script, self._at(node), self._size, self._arguments)
                finder._depth, finder.chains = self._depth + 1, self.chains
                yield finder, node

    def _other(self, place: SourceLine, callers: tuple[SourceLine, ...] = ()) -> Finder | None:
        """Makes a finder that looks on from another place."""
        finder = finder_at(place, self._size, self._arguments, callers, self._files)
        if finder is not None:
            finder.chains = self.chains
        return finder

    def _in_other_files(self, name: str) -> BatchSizeSource | None:
        """A name that is bound in the file of a caller: the script's, with its options."""
        outer = {caller.file: caller for caller in self._callers if caller.file != self._place.file}
        for place in outer.values():
            finder = self._other(place)
            source = finder._by_name(name) if finder is not None else None
            if source is not None:
                return source
        return None

    def _typed(self, name: str) -> BatchSizeSource | None:
        """An option of that name on the command line, with this very size, wherever it is read."""
        for flag in dict.fromkeys((f"--{name.replace('_', '-')}", f"--{name}")):
            typed = typed_option(self._arguments, [flag])
            if typed is not None and typed[1].format(self._size) == typed[0]:
                return BatchSizeSource(
                    place=self._place, before=typed[0], template=typed[1], option=flag
                )
        return None

    def _unpacked(self) -> BatchSizeSource | None:
        """The size in a dictionary that the loader is made with: `DataLoader(ds, **settings)`."""
        for call in self._calls():
            for keyword in call.keywords:
                name = name_of(keyword.value) if keyword.arg is None else None
                for value, _ in self._script.bindings(name) if name is not None else ():
                    entry = batch_size_entry(value)
                    source = self.behind(*entry) if entry is not None else None
                    if source is not None:
                        return source
        return None

    def _settings(self) -> BatchSizeSource | None:
        """The mapping that the loader's call unpacks (`**settings`), where nothing shows the size
        in it.

        A function's own `**kwargs` are no place where anything could be written.
        """
        inside = around(self._tree, self._place.line)
        for call in self._calls():
            if inside is not None and inside.unpacks(call):
                continue
            for keyword in call.keywords:
                if keyword.arg is None and (target_name(call.func) or "").endswith("Loader"):
                    for chain in chains_in(keyword.value) or [()]:
                        self.chains.append((*chain, "batch_size"))
                    return BatchSizeSource(
                        place=self._at(keyword.value),
                        before=f"**{self._script.segment(keyword.value)}",
                    )
        return None

    def _of_a_framework(self) -> BatchSizeSource | None:
        """The setting of a trainer that makes the loader elsewhere, where one alone fits."""
        inside = around(self._tree, self._place.line)
        if any(
            (target_name(call.func) or "").endswith("Loader")
            and not (inside is not None and inside.unpacks(call))
            for call in self._calls()
        ):
            return None  # the script's own
        for (name,) in TRAINER_NAMES:
            given = self._typed(name)
            if given is not None:
                return given
            calls = [
                (value, holder)
                for value, holder in self._script.bindings(name)
                if isinstance(holder, (ast.keyword, ast.AnnAssign))
            ]
            literal = [call for call in calls if self._is_size(call[0])]
            if len(literal) == 1:
                return self._numbered(*literal[0])
            source = self.behind(*calls[0]) if len(calls) == 1 and not literal else None
            if source is not None:
                return source
        self.chains += TRAINER_NAMES
        return None

    def _call(self) -> ast.Call | None:
        """The innermost call on the line that takes a batch size, not one of another number."""
        return min(
            (call for call in self._calls() if batch_size_argument(call) is not None),
            key=lambda call: (self._has_another(call), (call.end_lineno or 0) - call.lineno),
            default=None,
        )

    def _calls(self) -> Iterator[ast.Call]:
        """The calls on the line."""
        return self._script.calls(self._place.line)

    def _has_another(self, call: ast.Call) -> bool:
        """Whether the call makes batches of another size: two loaders may be made on one line."""
        argument = batch_size_argument(call)
        return isinstance(argument, ast.Constant) and not self._is_size(argument)

    def _by_name(self, name: str) -> BatchSizeSource | None:
        """The one place that gives `name` this value; several are ambiguous, the first counts."""
        option = self.option(name)
        if option is not None:
            return option
        # A parameter's default last: whoever calls the function may give it another value.
        bindings = sorted(
            self._script.bindings(name), key=lambda binding: isinstance(binding[1], ast.arg)
        )
        for node, holder in bindings:
            if self._is_size(node):
                if isinstance(holder, ast.arg):
                    return self._default(node, holder)
                return self._numbered(node, holder)
            if isinstance(node, ast.Call):  # a batch sampler that is made before the loader
                source = self._in_call(node)
                if source is not None:
                    return source
        return self._renamed(name, bindings)

    def _renamed(
        self, name: str, bindings: list[tuple[ast.expr, ast.AST]]
    ) -> BatchSizeSource | None:
        """A name that takes its value from another one: `self.batch_size = cfg.batch`."""
        if name in self._followed:
            return None
        self._followed.add(name)
        for node, holder in bindings:
            others = [chain for chain in chains_in(node) if chain[-1] not in self._followed]
            either = isinstance(node, ast.IfExp)
            source = self.behind(node, holder) if others or either else None
            if source is not None:
                return source
        return None

    def _in_call(self, call: ast.Call) -> BatchSizeSource | None:
        """The size as an argument of another call than the loader's."""
        inner = batch_size_argument(call)
        if inner is not None and self._is_size(inner):
            return self._numbered(inner, call)
        name = name_of(inner) if inner is not None else None
        if inner is None or name is None or name in self._followed:
            return None
        if not (target_name(call.func) or "").endswith("BatchSampler"):
            return None
        self._followed.add(name)
        source = self.behind(inner, call)
        return source if source is not None and source.template else None

    def option(self, name: str) -> BatchSizeSource | None:
        """The `add_argument` or click option behind `args.NAME`.

        Of several, as subcommands have them, the one with the size as its default.
        """
        unclear = None
        for declared in declared_options(self._tree):
            if not declared.fills(name):
                continue
            place, flag = self._at(declared.call), max(declared.flags, key=len)
            given = typed_option(self._arguments, declared.flags)
            if given is not None:
                return BatchSizeSource(place=place, before=given[0], template=given[1], option=flag)
            default = declared.default
            if default is not None and self._is_size(default.value):
                return self._numbered(default.value, default, option=flag)
            unclear = unclear or BatchSizeSource(
                place=place, before=flag, template=f"{flag} {{}}", option=flag
            )
        return unclear

    def _numbered(
        self, number: ast.expr, holder: ast.AST, option: str | None = None
    ) -> BatchSizeSource:
        before, template = self._script.marked(number, holder, self._setting)
        return BatchSizeSource(
            place=self._at(number), before=before, template=template, option=option
        )

    def _holds(self, source: BatchSizeSource) -> bool:
        """Whether the text of a place has this very number."""
        written = " ".join(source.template.format(self._size).split())
        return bool(source.template) and written == source.before

    def _is_size(self, node: ast.expr) -> bool:
        return (
            isinstance(node, ast.Constant)
            and isinstance(node.value, int)
            and not isinstance(node.value, bool)
            and (self._size is None or node.value == self._size)
        )

    def _at(self, node: ast.AST) -> SourceLine:
        return SourceLine(file=self._place.file, line=getattr(node, "lineno", self._place.line))
