"""Where the memory goes, in a real browser with the network cut off."""

import pytest
from batchadvisor.features.estimate.page import build_estimate
from batchadvisor.reports.builder.run import build_report
from batchadvisor.reports.builder.sections.memory import memory_page
from batchadvisor.reports.html.document import render as memory_html
from batchadvisor.reports.html.page import render as html

from .. import needs
from ..reports import samples
from ..reports.explained_samples import HOSTILE, estimate, explained
from .visits import Visit

needs.framework("playwright")


pytestmark = pytest.mark.frameworks

FIGURES = {"run": "mem-step_memory_128", "refused": "c-step_memory_256", "fits": "c-step_memory"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    record, advice = samples.cpu()[:2]
    known = explained(
        record, (128, "recommended"), (256, "out of memory"), name=HOSTILE, line=HOSTILE
    )
    pages = {
        "run": html(build_report(known, advice)),
        "refused": memory_html(memory_page(known, None)),
        "fits": memory_html(build_estimate(estimate(), "batchadvisor run train.py")),
    }
    folder = tmp_path_factory.mktemp("memory")
    for name, page in pages.items():
        (folder / f"{name}.html").write_text(page, encoding="utf-8")
    return folder


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", FIGURES)
def test_a_page(window, folder, name, scheme):
    path = folder / f"{name}.html"
    with Visit(window, path, width=380 if scheme == "dark" else 1200, scheme=scheme) as visit:
        figure = visit.page.locator(f"figure.chart[data-chart='{FIGURES[name]}']")
        figure.scroll_into_view_if_needed()
        figure.locator(".uplot canvas").wait_for()
        visit.hover(figure, 2)

        def hovered():
            return "activations" in visit.legend(figure)

        visit.wait_until(hovered)
        legend = visit.legend(figure)
        assert legend["parameters"] in ("100 MiB", "0.0977 GiB")
        assert legend["gradients"] == legend["parameters"]
        wide = visit.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert wide
        assert visit.complaints == []
        assert visit.asked == [path.as_uri()]


@pytest.mark.parametrize("name", FIGURES)
def test_without_scripts_the_areas_are_drawn(window, folder, name):
    with Visit(window, folder / f"{name}.html", scripts=False) as visit:
        figure = visit.page.locator(f"figure.chart[data-chart='{FIGURES[name]}']")
        areas = figure.locator("svg path.f2, svg path.f1, svg path.f3")
        assert areas.count() == 3
        assert "backward" in figure.inner_text()
