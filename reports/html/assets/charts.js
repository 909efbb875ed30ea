/* Makes the charts of a page (reports/chart.py, as JSON) answer the pointer, with uPlot: values where it
   points, zoom by dragging, synchronised cursors, lines that go and come by their name.

   The drawing that stands in the page stays what is seen; uPlot lies over it, on the same ground, and is
   seen only while a part of the chart is shown. What it draws beside the lines draws chart_marks.js;
   colours are the page's CSS variables. */
"use strict";
var BatchAdvisorCharts = (function () {
  var drawn = [], Marks = BatchAdvisorMarks;
  var color = Marks.color, seriesOf = Marks.seriesOf, short = Marks.short;

  /* The y axis from 0 to what is seen; limits count only while all sizes are. */
  function bounds(chart, full, seen) {
    return function (u, low, high) {
      var top = high || 0, least = chart.y_low || 0;
      chart.series.forEach(function (series, number) {
        if (!series.high || !series.high.length || !seriesOf(u, chart, number).show) return;
        series.high.forEach(function (value, at) {
          if (value !== null && chart.x[at] >= seen.low && chart.x[at] <= seen.high) {
            top = Math.max(top, value);
          }
        });
      });
      if (seen.low <= full[0] && seen.high >= full[1]) {
        chart.marks.forEach(function (mark) { if (mark.axis === "y") top = Math.max(top, mark.value); });
        chart.bands.forEach(function (band) { top = Math.max(top, band.high); });
        top = Math.max(top, chart.y_high || 0, chart.unit === "%" ? 100 : 0);
      }
      // Room above a limit, a band, a bar or a curve for the names that stand there.
      var named = chart.bands.length || chart.y_high || chart.marks.some(function (mark) {
        return chart.stacked || mark.axis === "y" || mark.kind === "phase";
      });
      return [least, top > least ? least + (top - least) * (named ? 1.16 : 1.08) : least + 1];
    };
  }

  function range(chart) {
    var xs = chart.x.slice();
    chart.marks.forEach(function (mark) { if (mark.axis === "x") xs.push(mark.value); });
    var low = Math.min.apply(null, xs), high = Math.max.apply(null, xs);
    if (chart.x_scale === "log") return [low / 1.25, high * 1.25];
    if (chart.x_scale === "category") return low === high ? [low - 0.3, high + 1] : [low - 0.6, high + 0.6];
    return [Math.min(low, 0), Math.max(high, low + 1)];
  }

  function nearest(chart) {
    var known = chart.x.map(function (_, at) {
      return chart.series.some(function (series) {
        return series.kind !== "estimate" && series.values[at] !== null;
      });
    });
    return function (u, number, at) {
      var best = at, distance = Infinity, here = u.valToPos(chart.x[at], "x");
      if (u.cursor.left >= 0) here = u.cursor.left;
      known.forEach(function (yes, index) {
        var far = Math.abs(u.valToPos(chart.x[index], "x") - here);
        if (yes && far < distance) { distance = far; best = index; }
      });
      return best;
    };
  }

  function cumulated(chart) {
    var sum = chart.x.map(function () { return 0; });
    return chart.series.map(function (series) {
      return series.values.map(function (value, at) { sum[at] += value || 0; return sum[at]; });
    });
  }

  function line(chart, entry, scale) {
    var stroke = function () { return color("c" + entry.color); };
    var series = {
      label: entry.label, stroke: stroke, width: 1.8 * scale, spanGaps: true,
      points: { show: entry.kind === "measured", size: 7 * scale, fill: stroke, stroke: stroke }
    };
    if (entry.kind === "estimate" || entry.dashed) {
      series.dash = [6 * scale, 4 * scale];
      series.width = 1.5 * scale;
    }
    if (entry.kind === "area") {
      series.fill = stroke; series.width = 0; series.points = { show: false };
    }
    if (entry.kind === "part") {
      series.fill = stroke; series.width = 0; series.points = { show: false };
      series.paths = uPlot.paths.bars({ size: [Marks.BAR, 60 * scale] });
    }
    return series;
  }

  function node(name, className, text) {
    var made = document.createElement(name);
    if (className) made.className = className;
    if (text !== undefined) made.textContent = text;
    return made;
  }

  /* What is read where the pointer is, on the side that leaves it free. */
  function read(chart, box) {
    return function (u) {
      var at = u.cursor.idxs[1];  // what `nearest` chose
      box.hidden = at === null || at === undefined || u.cursor.left < 0;
      if (box.hidden) return;
      var where = chart.x_scale === "category" ? chart.x_names[at] : short(chart.x[at]);
      var rows = [node("p", "at", chart.x_label + " " + where)];
      chart.series.forEach(function (entry, number) {
        var value = entry.values[at];
        if (value === null || value === undefined || !seriesOf(u, chart, number).show) return;
        var row = node("p", "one");
        row.appendChild(node("span", "swatch f" + entry.color + (entry.dashed ? " dashed" : "")));
        row.appendChild(node("span", "what", entry.label));
        row.appendChild(node("span", "value", (entry.texts && entry.texts[at]) || short(value) + unitOf(chart)));
        rows.push(row);
      });
      box.replaceChildren.apply(box, rows);
      var left = u.over.offsetLeft + u.valToPos(chart.x[at], "x");
      var beyond = left > u.width / 2;
      box.style.top = u.over.offsetTop + 4 + "px";
      box.style.left = beyond ? "auto" : left + 12 + "px";
      box.style.right = beyond ? u.width - left + 12 + "px" : "auto";
    };
  }

  function unitOf(chart) {
    return chart.unit === "%" ? "%" : chart.unit ? " " + chart.unit : "";
  }

  /* Of an element that is so wide: the sizes of the drawing. */
  function sizes(element) {
    var width = Math.max(200, element.clientWidth || Marks.WIDTH), scale = width / Marks.WIDTH;
    return { width: width, height: Math.round(Marks.HEIGHT * scale),
      padding: [Marks.TOP * scale, Marks.RIGHT * scale, Marks.BOTTOM * scale, Marks.LEFT * scale] };
  }

  function options(chart, element, group, box) {
    var full = range(chart), seen = { low: full[0], high: full[1], first: true };
    var scale = sizes(element).width / Marks.WIDTH;
    var series = chart.series.map(function (entry) { return line(chart, entry, scale); });
    if (chart.stacked) series.reverse();
    var cursor = { y: false, drag: { x: true, y: false }, points: { size: 8 }, dataIdx: nearest(chart) };
    if (group && chart.x_scale !== "category") cursor.sync = { key: group, scales: ["x", null] };
    var side = function (number) {
      return function () { return sizes(element).padding[number]; };
    };
    return Object.assign(sizes(element), {
      padding: [0, 1, 2, 3].map(side),
      series: [{}].concat(series), cursor: cursor, legend: { show: false },
      scales: {
        x: { time: false, distr: chart.x_scale === "log" ? 3 : 1, log: 2,
          range: function (u, low, high) {
            var shown = low === null || low === high || seen.first ? full : [low, high];
            seen.first = false;
            seen.low = shown[0];
            seen.high = shown[1];
            return shown;
          } },
        y: { range: bounds(chart, full, seen) }
      },
      axes: [{ show: false }, { show: false }],
      hooks: { drawAxes: [Marks.under(chart)], draw: [Marks.over(chart), partly(chart, element, full)],
        setCursor: [read(chart, box)] }
    });
  }

  /* The drawing is the whole chart; what is less of it shows uPlot. */
  function partly(chart, element, full) {
    return function (u) {
      var near = function (a, b) { return Math.abs(a - b) <= 1e-9 * Math.max(Math.abs(a), Math.abs(b), 1); };
      var whole = near(u.scales.x.min, full[0]) && near(u.scales.x.max, full[1]) &&
        u.series.every(function (series) { return series.show !== false; });
      var figure = element.closest("figure");
      if (figure) figure.classList.toggle("partly", !whole);
    };
  }

  /* What the page leaves out of a chart because it is empty or said elsewhere in it. */
  function filled(chart) {
    chart.marks = chart.marks || [];
    chart.bands = chart.bands || [];
    chart.x_ticks = chart.x_ticks || (chart.x_names ? chart.x : []);
    chart.x_names = chart.x_names || chart.x_ticks.map(String);
    chart.stacked = chart.series.some(function (series) { return series.kind === "part" || series.kind === "area"; });
    chart.areas = chart.series.some(function (series) { return series.kind === "area"; });
    return chart;
  }

  /* Names of lines become buttons that hide their line and bring it back. */
  function switches(chart, plot, element) {
    var figure = element.closest("figure");
    var names = figure ? figure.querySelectorAll(".keys li") : [];
    if (chart.stacked || names.length !== chart.series.length || names.length < 2) return;
    Array.prototype.forEach.call(names, function (item, number) {
      var name = node("span");
      name.append.apply(name, item.childNodes);
      item.append(name);
      name.setAttribute("role", "button");
      name.setAttribute("aria-pressed", "true");
      name.tabIndex = 0;
      var turn = function () {
        var show = name.getAttribute("aria-pressed") !== "true";
        name.setAttribute("aria-pressed", String(show));
        plot.setSeries(number + 1, { show: show });
      };
      name.addEventListener("click", turn);
      name.addEventListener("keydown", function (event) {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        turn();
      });
    });
  }

  /* Draws `chart` into `element`; `group` names the charts whose cursors move together. */
  function draw(element, chart, group) {
    filled(chart);
    var data = chart.series.map(function (series) { return series.values; });
    if (chart.stacked) data = cumulated(chart).reverse();
    var box = node("div", "reading"), full = range(chart);
    box.hidden = true;
    var plot = new uPlot(options(chart, element, group, box), [chart.x].concat(data), element);
    element.appendChild(box);
    var reset = function () { plot.setScale("x", { min: full[0], max: full[1] }); };
    reset();
    plot.over.addEventListener("dblclick", reset);
    switches(chart, plot, element);
    present().push({ plot: plot, element: element });
    element.plot = plot;
    return plot;
  }

  /* Charts that left the page are forgotten. */
  function present() {
    drawn = drawn.filter(function (item) {
      if (!item.element.isConnected) item.plot.destroy();
      return item.element.isConnected;
    });
    return drawn;
  }

  function resize() {
    present().forEach(function (item) {
      var width = item.element.clientWidth;
      if (width && Math.abs(width - item.plot.width) > 2) item.plot.setSize(sizes(item.element));
    });
  }

  function redraw() {
    present().forEach(function (item) { item.plot.redraw(false, true); });
  }

  /* Lays live charts over the drawings of a page, as they come into view. */
  function enhance(charts) {
    document.documentElement.classList.add("scripted");
    var show = function (figure) {
      var chart = charts[figure.dataset.chart];
      if (!chart || figure.classList.contains("on")) return;
      figure.classList.add("on");
      try {
        draw(figure.querySelector(".live"), chart, figure.dataset.group);
      } catch (error) {
        figure.classList.remove("on");  // the drawing stays
        throw error;
      }
    };
    var figures = Array.prototype.slice.call(document.querySelectorAll("figure.chart"));
    if ("IntersectionObserver" in window) {
      var watch = new IntersectionObserver(function (entries) {
        entries.forEach(function (entry) {
          if (entry.isIntersecting) { watch.unobserve(entry.target); show(entry.target); }
        });
      }, { rootMargin: "200px" });
      figures.forEach(function (figure) { watch.observe(figure); });
    } else {
      figures.forEach(show);
    }
    window.addEventListener("resize", resize);
    window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  }

  return { draw: draw, enhance: enhance, redraw: redraw, resize: resize, short: short };
})();
