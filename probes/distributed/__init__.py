"""Several ranks: found, met, steered in lock-step, and what their communication costs."""
