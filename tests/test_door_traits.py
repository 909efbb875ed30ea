"""What follows from a door is asked of its traits: nobody else compares its name."""

import ast

import pytest

from .test_layers import modules

MAY_COMPARE_DOORS = ("probes/doors/", "cli/")
"""Elsewhere what follows from a door is asked of its traits; see records/doors.py."""


BY_NAME = (ast.Eq, ast.NotEq, ast.In, ast.NotIn)


def compared_doors(text):
    """The lines that compare a door with a name, or choose by one."""
    lines = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            by_name = any(isinstance(operator, BY_NAME) for operator in node.ops)
        elif isinstance(node, ast.Match):
            sides, by_name = [node.subject], True
        else:
            continue
        if by_name and any(_is_door(side) for side in sides):
            lines.add(node.lineno)
    return sorted(lines)


def _is_door(node):
    return getattr(node, "id", getattr(node, "attr", "")) == "door"


class TestDoors:
    def test_nobody_compares_a_door_where_its_traits_say_what_follows(self):
        bad = [
            f"{path}:{line}"
            for path, file in modules().items()
            if not path.startswith(MAY_COMPARE_DOORS)
            for line in compared_doors(file.read_text())
        ]
        assert bad == []

    @pytest.mark.parametrize(
        "text",
        [
            'discovery.door == "loader"',
            '"loader" != record.discovery.door',
            'door in ("loader", "keras")',
            'match options.door:\n    case "live":\n        pass',
        ],
    )
    def test_a_comparison_is_seen(self, text):
        assert compared_doors(text) == [1]

    @pytest.mark.parametrize("text", ["discovery.traits.takes_turns", "found.door is None", "door"])
    def test_traits_are_free_to_ask(self, text):
        assert compared_doors(text) == []
