"""The numbers that verdicts go by. They were fixed before `bench/verdicts.py` first scored them."""

from __future__ import annotations

INPUT_SHARE = 0.30
"""Waiting for the loader takes at least this share of the step: input-bound."""
LOSS_SHARE = 0.15
"""Share of the step below which a loss does not limit it."""
HOST_SHARE = 0.30
"""A cost per step that the batch does not change takes at least this share: host-bound."""
SATURATED_GAIN = 0.10
"""Marginal gain d ln(samples/s) / d ln(batch) below which a larger batch buys nothing."""
SATURATED_SHARE = 0.15
"""Fixed share of the step, its upper end, below which a larger batch buys nothing."""
PAYING_GAIN = 0.30
"""Marginal gain from which on a larger batch clearly pays."""
IDLE_BUSY_PCT = 70.0
"""A GPU that is busy less than this waits for somebody."""
COMPUTE_SHARE = 0.70
"""Kernels that compute for at least this share of the step, without a loss that stands out."""
FILLED_PCT = 80.0
"""SM efficiency while computing below which the kernels are too small for the GPU."""
HELPFUL_GAIN = 1.10
"""A larger batch that can gain less than this factor does not help."""
OUTSIDE_SHARE = 0.50
"""On a CPU: share of the window in neither an operator nor the loader that is the host's."""
OPERATORS_PCT = 70.0
"""On a CPU: share of the window inside operators from which on it computes."""
LONG_OPERATOR_S = 100e-6
"""Mean self time of a call from which on its dispatch does not matter."""
BUDGET_SPENT = "the budget is spent"
"""Why a search that its budget cut short is over."""
