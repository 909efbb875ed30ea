"""Where the number of micro-batches for a step is written."""

import pytest
from batchadvisor.probes.source.batch_size_source import find_accumulation_source


@pytest.mark.parametrize(
    ("text", "line", "before"),
    [
        ("args = TrainingArguments(\n    'out',\n    gradient_accumulation_steps=4)\n", 3,
         "gradient_accumulation_steps=4"),
        ("trainer = L.Trainer(accumulate_grad_batches=4)\n", 1, "accumulate_grad_batches=4"),
        ("accum_iter: int = 4\n", 1, "accum_iter: int = 4"),
        ("p.add_argument('--gradient-accumulation-steps', type=int, default=4)\n", 1, "default=4"),
        ("gradient_accumulation_steps = 2\n", None, ""),
        ("steps = 4\n", None, ""),
        ("def broken(\n", None, ""),
    ],
)  # fmt: skip
def test_in_the_script(tmp_path, text, line, before):
    script = tmp_path / "train.py"
    script.write_text(text)
    source = find_accumulation_source(4, files=[str(script)])
    assert (None if source is None else source.place.line) == line
    if source is not None:
        assert source.before == before
        assert source.template.format(8) == before.replace("4", "8")


def test_in_a_settings_file_and_on_the_command_line(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_text("training:\n  grad_accum_steps: 4\n")
    settings = [(path, "a.yaml")]
    source = find_accumulation_source(4, settings=settings)
    assert (f"{source.place}", source.before) == ("a.yaml:2", "grad_accum_steps: 4")
    source = find_accumulation_source(4, ("training.grad_accum_steps=4",), settings)
    assert source.template == "training.grad_accum_steps={}"
    assert find_accumulation_source(8, settings=settings) is None
