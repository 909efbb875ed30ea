/* Draws charts (reports/chart.py, as JSON) with uPlot: hover, zoom by dragging, synchronised cursors.
   What lies below and above the lines draws chart_marks.js; colours are the page's CSS variables. */
"use strict";
var BatchAdvisorCharts = (function () {
  var drawn = [];
  var color = BatchAdvisorMarks.color, seriesOf = BatchAdvisorMarks.seriesOf;

  function short(value) {
    if (value === null || value === undefined) return "–";
    if (value === 0) return "0";
    return Math.abs(value) >= 100 ? value.toFixed(0) : String(Number(value.toPrecision(3)));
  }

  /* The values whose names keep 34 pixels from each other, marked ones before the others. */
  function spaced(u, chart, values) {
    var marked = chart.marks.filter(function (mark) { return mark.kind === "recommended"; })
      .map(function (mark) { return mark.value; });
    var kept = [];
    marked.concat(values).forEach(function (value) {
      if (values.indexOf(value) < 0) return;
      var at = u.valToPos(value, "x");
      var free = kept.every(function (other) { return Math.abs(u.valToPos(other, "x") - at) >= 34; });
      if (free) kept.push(value);
    });
    return kept.sort(function (a, b) { return a - b; });
  }

  /* The y axis from 0 to what is seen; limits count only while all sizes are. */
  function bounds(chart, full, seen) {
    return function (u, low, high) {
      var top = high || 0;
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
        if (chart.unit === "%") top = Math.max(top, 100);
      }
      // Room above a limit, a band or a bar for its name and that of the recommended size.
      var named = chart.bands.length ||
        chart.marks.some(function (mark) { return chart.stacked || mark.axis === "y"; });
      return [0, top > 0 ? top * (named ? 1.16 : 1.08) : 1];
    };
  }

  function range(chart) {
    var xs = chart.x.slice();
    chart.marks.forEach(function (mark) { if (mark.axis === "x") xs.push(mark.value); });
    var low = Math.min.apply(null, xs), high = Math.max.apply(null, xs);
    if (chart.x_scale === "log") return [low / 1.25, high * 1.25];
    if (chart.x_scale === "category") return [low - 0.6, high + 0.6];
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

  function line(chart, entry) {
    var stroke = function () { return color("c" + entry.color); };
    var series = {
      label: entry.label, stroke: stroke, width: 1.8, spanGaps: true,
      points: { show: entry.kind === "measured", size: 7, fill: stroke, stroke: stroke },
      value: function (u, value, number, at) {
        if (at === null || at === undefined) return "–";
        return (entry.texts && entry.texts[at]) || short(entry.values[at]);
      }
    };
    if (entry.kind === "estimate") { series.dash = [6, 4]; series.width = 1.5; }
    if (entry.kind === "area") {
      series.fill = stroke; series.width = 0; series.points = { show: false };
    }
    if (entry.kind === "part") {
      series.fill = stroke; series.width = 0; series.points = { show: false };
      series.paths = uPlot.paths.bars({ size: [BatchAdvisorMarks.BAR, 60] });
    }
    return series;
  }

  function options(chart, width, group) {
    var full = range(chart), seen = { low: full[0], high: full[1], first: true }, ink = function () { return color("dim"); };
    var names = {};
    chart.x_ticks.forEach(function (value, at) { names[value] = chart.x_names[at]; });
    var axis = { stroke: ink, grid: { stroke: function () { return color("grid"); }, width: 1 },
      ticks: { stroke: function () { return color("line"); }, width: 1 },
      font: "11px system-ui, sans-serif", labelFont: "11px system-ui, sans-serif", labelSize: 16 };
    var x = Object.assign({}, axis, { label: chart.x_label, size: 28 });
    if (chart.x_ticks.length) {
      x.splits = function (u) {
        return spaced(u, chart, chart.x_ticks.filter(function (value) {
          return value >= u.scales.x.min && value <= u.scales.x.max;
        }));
      };
      x.values = function (u, splits) { return splits.map(function (split) { return names[split]; }); };
      x.filter = function (u, splits) { return splits; };
    }
    var series = chart.series.map(function (entry) { return line(chart, entry); });
    if (chart.stacked) series.reverse();
    var first = { label: chart.x_label, value: function (u, value, number, at) {
      if (at === null || at === undefined) return "–";
      return chart.x_scale === "category" ? chart.x_names[at] : short(chart.x[at]);
    } };
    var cursor = { y: false, drag: { x: true, y: false }, points: { size: 8 }, dataIdx: nearest(chart) };
    if (group && chart.x_scale !== "category") cursor.sync = { key: group, scales: ["x", null] };
    return {
      width: width, height: Math.round(Math.min(300, Math.max(210, width * 0.55))),
      series: [first].concat(series), cursor: cursor,
      legend: { live: true, markers: { width: 0, fill: function (u, number) {
        return u.series[number].stroke(u, number);
      } } },
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
      axes: [x, Object.assign({}, axis, { label: chart.y_label,
        size: function (u, values) {
          var longest = Math.max.apply(null, (values || [""]).map(function (text) { return text.length; }));
          return 20 + 7 * Math.max(longest, 3);
        },
        values: function (u, splits) { return splits.map(short); } })],
      hooks: { drawAxes: [BatchAdvisorMarks.under(chart)], draw: [BatchAdvisorMarks.over(chart)] }
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

  /* Draws `chart` into `element`; `group` names the charts whose cursors move together. */
  function draw(element, chart, group) {
    filled(chart);
    var data = chart.series.map(function (series) { return series.values; });
    if (chart.stacked) data = cumulated(chart).reverse();
    var width = Math.max(260, element.clientWidth || 460);
    var full = range(chart);
    var plot = new uPlot(options(chart, width, group), [chart.x].concat(data), element);
    var reset = function () { plot.setScale("x", { min: full[0], max: full[1] }); };
    reset();
    plot.over.addEventListener("dblclick", reset);
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
      if (width && Math.abs(width - item.plot.width) > 2) {
        item.plot.setSize({ width: width,
          height: Math.round(Math.min(300, Math.max(210, width * 0.55))) });
      }
    });
  }

  function redraw() {
    present().forEach(function (item) { item.plot.redraw(false, true); });
  }

  /* Replaces the drawings of a page by live charts, as they come into view. */
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
