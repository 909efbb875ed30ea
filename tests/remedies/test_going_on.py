"""What goes on after a process of the script ended, on processes of paper."""

from types import SimpleNamespace

from batchadvisor.features.remedies.processes import Refused
from batchadvisor.features.remedies.settings import Settings
from batchadvisor.features.remedies.trying import Trying
from batchadvisor.reports.terminal.progress import NullDisplay


class Paper:
    """A process that only notes its end."""

    lives = True

    def __init__(self):
        self.ended = False

    def end(self):
        self.ended = True


def test_both_sides_start_anew_where_a_reason_holds_for_both(monkeypatch):
    """The script as it is was started before the reason was known, and would end so too."""
    trying = object.__new__(Trying)
    usual, made, compared = Paper(), [], []
    trying.__dict__ |= {
        "_usual": usual, "_pools": [usual], "_display": NullDisplay(), "_size": 8,
    }  # fmt: skip

    def process(_settings):
        made.append(Paper())
        return made[-1]

    def compare(_process, _until_s, **_):
        compared.append(trying._usual)
        if len(compared) == 1:
            raise Refused("beyond the last batch", again="its epochs end from here on")
        return SimpleNamespace(turns=[])

    monkeypatch.setattr(trying, "_process", process)
    monkeypatch.setattr(trying, "_compared", compare)
    trying._measured(Settings(), until_s=0.0)
    assert compared == [usual, None]
    assert usual.ended
    assert [each.ended for each in made] == [True, True]
