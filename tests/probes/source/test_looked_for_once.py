"""A script may make a loader in every step: its line is not looked for while steps are timed."""

from batchadvisor.probes.doors import script_watch
from batchadvisor.records import SourceLine


def test_the_same_loader_again_costs_nothing(tmp_path, monkeypatch):
    script = tmp_path / "train.py"
    script.write_text("import torch\nloader = DataLoader(data, batch_size=8)\n")
    place, asked = SourceLine(file=str(script), line=2), []

    def find(place, size, *args, **named):
        asked.append(size)
        return real(place, size, *args, **named)

    real = script_watch.find_batch_size_source
    monkeypatch.setattr(script_watch, "find_batch_size_source", find)
    watch = script_watch.ScriptWatch(())
    sources = [watch.source_of(place, size) for size in (8, 8, 16, 8)]
    assert asked == [8, 16]
    assert sources[0].template == "batch_size={}"
    assert sources[1] == sources[3] == sources[0]
