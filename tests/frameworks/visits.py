"""Pages as a browser shows them, which the tests of several pages look at."""

import time

SCHEMES = ("light", "dark")


class Visit:
    """A page in a tab of its own, with all that it asked for and complained of."""

    def __init__(self, window, path, *, width=1200, scheme="light", scripts=True):
        if scripts:
            self._opened = self.page = window.new_page()
        else:
            self._opened = window.browser.new_context(java_script_enabled=False, offline=True)
            self.page = self._opened.new_page()
        self.page.set_viewport_size({"width": width, "height": 900})
        self.page.emulate_media(color_scheme=scheme)
        self.asked, self.complaints = [], []
        self.page.on("request", lambda one: self.asked.append(one.url))
        self.page.on("console", lambda one: self.complaints.append(one.text))
        self.page.on("pageerror", lambda one: self.complaints.append(str(one)))
        self.page.goto(path.as_uri())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self._opened.close()

    def wait_until(self, condition, limit_s=30.0):
        """Polls, while the page goes on."""
        deadline = time.monotonic() + limit_s
        while not condition():
            assert time.monotonic() < deadline, f"it did not happen; {self.complaints}"
            self.page.wait_for_timeout(50)

    def chart(self, key):
        """The live chart: scrolled to, so that it draws itself."""
        figure = self.page.locator(f"figure.chart[data-chart='0-{key}']")
        figure.scroll_into_view_if_needed()
        figure.locator(".uplot canvas").wait_for()
        return figure

    def all_charts(self):
        for figure in self.page.locator("figure.chart").all():
            figure.scroll_into_view_if_needed()
            figure.locator(".uplot canvas").wait_for()

    def hover(self, figure, value):
        """Points at a value of the x axis."""
        live = figure.locator(".live").element_handle()
        left = live.evaluate("(one, value) => one.plot.valToPos(value, 'x')", value)
        box = figure.locator(".u-over").bounding_box()
        self.page.mouse.move(box["x"] + left, box["y"] + box["height"] / 2)

    def legend(self, figure):
        """What is read where the pointer is; nothing while it is elsewhere."""
        box = figure.locator(".reading")
        if not box.is_visible():
            return {}
        rows = {
            row.locator(".what").inner_text(): row.locator(".value").inner_text()
            for row in box.locator(".one").all()
        }
        name, _, value = box.locator(".at").inner_text().rpartition(" ")
        return {name: value, **rows}
