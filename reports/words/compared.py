"""What was compared between sizes, and what was not."""

from __future__ import annotations

from ...records import Advice

NOT_ACCURACY = "Speed was measured, not accuracy: a trained model was not compared."
ONLY_MEMORY = "Memory was measured, neither speed nor accuracy: no step was timed."


def not_compared(advice: Advice) -> str:
    """What was measured, and that no accuracy was."""
    choices = (advice.recommended, advice.fastest, advice.native, *advice.sizes)
    timed = any(choice is not None and choice.step_s is not None for choice in choices)
    return NOT_ACCURACY if timed else ONLY_MEMORY
