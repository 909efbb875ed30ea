"""Whether the text of a training loop leaves out a short batch."""

import pytest
from batchadvisor.probes.source.left_out import find_left_out

LOOP = """
for epoch in range(3):
    for {target} in loader:
        {ahead}
        if {test}:
            {end}
        loss(model(x), y).backward()
        optimizer.step()
    scheduler.step()
"""


def looked_at(folder, test, *, target="x, y", ahead="x = x.to(device)", end="continue", more=""):
    script = folder / "train.py"
    script.write_text(LOOP.format(target=target, ahead=ahead, test=test, end=end) + more)
    return find_left_out([str(script)]).replace(f"{script}:", "")


@pytest.mark.parametrize(
    ("test", "given"),
    [
        ("len(x) < batch_size", {"end": "break"}),
        ("x.size(0) != args.batch_size", {}),
        ("x.shape[0] < BATCH_SIZE", {}),
        ("batch_size != len(x)", {}),
        ("loader.batch_size > x.size()[0]", {"target": "i, (x, y)"}),
        ("n < config['batch_size']", {"target": "batch", "ahead": "x, y = batch; n = len(x)"}),
        ("len(batch['x']) < batch_size", {"target": "batch"}),
    ],
)
def test_it_does(tmp_path, test, given):
    assert looked_at(tmp_path, test, **given) == f"5 ({test})"


@pytest.mark.parametrize(
    ("test", "given"),
    [
        ("len(x) > batch_size", {}),
        ("len(x) < 2", {}),
        ("len(x) < eval_batch_size", {}),
        ("len(x) < batch_size // 2", {}),
        ("len(data) < batch_size", {}),
        ("step < batch_size", {}),
        ("len(x) < batch_size", {"end": "print(x)"}),
        ("len(x) < batch_size and epoch", {}),
        ("len(x) < batch_size", {"ahead": "loss(model(x), y).backward()"}),
        ("len(x) < batch_size", {"more": LOOP.format(target="x", ahead="", test="x", end="pass")}),
    ],
    ids=[
        "longer ones", "a number", "of another loader", "half of it", "not of the batch",
        "not a length", "goes on", "not always", "after the step", "another loop does not",
    ],
)  # fmt: skip
def test_it_does_not(tmp_path, test, given):
    assert looked_at(tmp_path, test, **given) == ""


def test_no_text(tmp_path):
    assert find_left_out([]) == ""
    assert find_left_out([str(tmp_path / "none.py")]) == ""
