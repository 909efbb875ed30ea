"""What `--fail-if` takes, and what it says of the rest."""

import pytest
from batchadvisor.errors import UsageError
from batchadvisor.features.gate.conditions import condition_of


@pytest.mark.parametrize(
    ("text", "measure", "above", "limit"),
    [
        ("step_time>+5%", "step_time", True, 0.05),
        ("peak_memory > +3%", "peak_memory", True, 0.03),
        ("throughput<-5%", "throughput", False, -0.05),
        ("step_time>-2.5%", "step_time", True, -0.025),  # it has to become faster
    ],
)
def test_a_condition(text, measure, above, limit):
    condition = condition_of(text)
    assert (condition.measure, condition.above) == (measure, above)
    assert condition.limit == pytest.approx(limit)
    assert condition.text == text.replace(" ", "")


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("speed>+5%", "'speed' is no measure. Use one of step_time, throughput, peak_memory."),
        (">+5%", "names no measure"),
        ("step_time>5%", "lacks its sign: + is more, - is less. Write step_time>+5%."),
        ("step_time>+5", "lacks its unit, %. Write step_time>+5%."),
        ("step_time>5", "lacks its unit, %. Write step_time>+5%."),
        ("step_time+5%", "stands < or >. Write step_time>+5%."),
        ("step_time>=+5%", "stands < or >. Write step_time>+5%."),
        ("step_time>", "lacks its limit"),
        ("step_time>+5ms", "'+5ms' is no change in percent"),
        ("step_time>+nan%", "'+nan%' is no change in percent"),
        ("throughput<-100%", "nothing shrinks by all of it"),
        ("", "names no measure"),
    ],
)
def test_what_is_none_is_said_in_a_line(text, part):
    with pytest.raises(UsageError) as error:
        condition_of(text)
    said = str(error.value)
    assert part in said
    assert said.startswith(f"--fail-if {text!r}: ")
    assert "\n" not in said
