"""The sentences of an answer only word a decision."""

import ast

import pytest

from .test_layers import imports_of, modules

WORDS_OF_A_DECISION = ("advisor/explain/reasons.py", "advisor/explain/headline.py")
DECISIONS = {"./advisor/choose/decision"}


class TestWords:
    @pytest.mark.parametrize("path", WORDS_OF_A_DECISION)
    def test_they_choose_nothing(self, path):
        """A sentence that chose again could contradict the choice."""
        text = modules()[path].read_text()
        asked = {name for _, name, *_ in imports_of(text, path)}
        assert {name for name in asked if name.startswith("./advisor/choose")} <= DECISIONS
        names = {
            alias.name
            for node in ast.walk(ast.parse(text))
            if isinstance(node, ast.ImportFrom) and node.module == "choose.decision"
            for alias in node.names
        }
        assert "Decision" in names
        assert names <= {"Because", "Decision", "Rival", "Rule"}
