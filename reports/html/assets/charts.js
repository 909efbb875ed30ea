/* Draws charts (reports/chart.py, as JSON) with uPlot: hover, zoom by dragging, synchronised cursors.
   Needs nothing but the page; colours are the page's CSS variables. */
"use strict";
var BatchAdvisorCharts = (function () {
  var drawn = [];

  function color(name) {
    return getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
  }

  function short(value) {
    if (value === null || value === undefined) return "–";
    if (value === 0) return "0";
    return Math.abs(value) >= 100 ? value.toFixed(0) : String(Number(value.toPrecision(3)));
  }

  /* The values whose names keep 34 pixels from each other, marked ones before the others. */
  function spaced(u, chart, values) {
    var marked = chart.marks.filter(function (one) { return one.kind === "recommended"; })
      .map(function (one) { return one.value; });
    var kept = [];
    marked.concat(values).forEach(function (value) {
      if (values.indexOf(value) < 0) return;
      var at = u.valToPos(value, "x");
      var free = kept.every(function (one) { return Math.abs(u.valToPos(one, "x") - at) >= 34; });
      if (free) kept.push(value);
    });
    return kept.sort(function (a, b) { return a - b; });
  }

  /* The y axis from 0 to what is seen; limits count only while all sizes are. */
  function bounds(chart, full, seen) {
    return function (u, low, high) {
      var top = high || 0;
      chart.series.forEach(function (one, number) {
        if (!one.high || !one.high.length || !seriesOf(u, chart, number).show) return;
        one.high.forEach(function (value, at) {
          if (value !== null && chart.x[at] >= seen.low && chart.x[at] <= seen.high) {
            top = Math.max(top, value);
          }
        });
      });
      if (seen.low <= full[0] && seen.high >= full[1]) {
        chart.marks.forEach(function (one) { if (one.axis === "y") top = Math.max(top, one.value); });
        chart.bands.forEach(function (one) { top = Math.max(top, one.high); });
        if (chart.unit === "%") top = Math.max(top, 100);
      }
      // Room above a limit or a band for its name and that of the recommended size.
      var named = chart.bands.length || chart.marks.some(function (one) { return one.axis === "y"; });
      return [0, top > 0 ? top * (named ? 1.16 : 1.08) : 1];
    };
  }

  function seriesOf(u, chart, number) {
    return u.series[chart.stacked ? chart.series.length - number : number + 1];
  }

  function range(chart) {
    var xs = chart.x.slice();
    chart.marks.forEach(function (one) { if (one.axis === "x") xs.push(one.value); });
    var low = Math.min.apply(null, xs), high = Math.max.apply(null, xs);
    if (chart.x_scale === "log") return [low / 1.25, high * 1.25];
    if (chart.x_scale === "category") return [low - 0.6, high + 0.6];
    return [Math.min(low, 0), Math.max(high, low + 1)];
  }

  /* Bands below the lines, whiskers and marks above them. */
  function under(chart) {
    return function (u) {
      var c = u.ctx;
      c.save();
      c.fillStyle = color("band");
      chart.bands.forEach(function (band) {
        var top = u.valToPos(band.high, "y", true), bottom = u.valToPos(band.low, "y", true);
        c.fillRect(u.bbox.left, top, u.bbox.width, Math.max(1, bottom - top));
      });
      phases(u, chart);
      c.restore();
    };
  }

  /* Where something else begins; a label that would cover another is left out. */
  function phases(u, chart) {
    var c = u.ctx, px = uPlot.pxRatio, box = u.bbox, free = 0;
    c.font = 11 * px + "px system-ui, sans-serif";
    c.textAlign = "left";
    c.textBaseline = "top";
    c.lineWidth = px;
    c.strokeStyle = color("grid");
    c.fillStyle = color("dim");
    chart.marks.forEach(function (mark) {
      if (mark.kind !== "phase") return;
      var x = u.valToPos(mark.value, "x", true);
      if (x < box.left || x > box.left + box.width) return;
      c.beginPath();
      c.moveTo(x, box.top); c.lineTo(x, box.top + box.height);
      c.stroke();
      if (x < free) return;
      c.fillText(mark.label, x + 3 * px, box.top + box.height - 14 * px);
      free = x + c.measureText(mark.label).width + 8 * px;
    });
  }

  /* The name of what lies across: at the left, or at the right where a mark would cross it. */
  function across(u, chart, label, y) {
    var c = u.ctx, px = uPlot.pxRatio, box = u.bbox, end = box.left + 8 * px + c.measureText(label).width;
    var crossed = chart.marks.some(function (one) {
      var x = one.axis === "y" || one.kind === "phase" ? -1 : u.valToPos(one.value, "x", true);
      return x >= box.left && x <= end;
    });
    c.textAlign = crossed ? "right" : "left";
    c.fillText(label, crossed ? box.left + box.width - 4 * px : box.left + 4 * px, y);
  }

  function over(chart) {
    return function (u) {
      var c = u.ctx, px = uPlot.pxRatio, box = u.bbox, row = 0;
      c.save();
      c.beginPath();
      c.rect(box.left, box.top, box.width, box.height);
      c.clip();
      chart.series.forEach(function (one, number) {
        if (!one.low || !one.low.length || !seriesOf(u, chart, number).show) return;
        c.strokeStyle = color("c" + one.color);
        c.lineWidth = 1.4 * px;
        c.beginPath();
        one.low.forEach(function (low, at) {
          if (low === null || one.high[at] === null) return;
          var x = u.valToPos(chart.x[at], "x", true), half = 4 * px;
          var a = u.valToPos(low, "y", true), b = u.valToPos(one.high[at], "y", true);
          c.moveTo(x, a); c.lineTo(x, b);
          c.moveTo(x - half, a); c.lineTo(x + half, a);
          c.moveTo(x - half, b); c.lineTo(x + half, b);
        });
        c.stroke();
      });
      c.font = 11 * px + "px system-ui, sans-serif";
      c.textBaseline = "top";
      c.setLineDash([5 * px, 3 * px]);
      c.lineWidth = 1.4 * px;
      chart.bands.forEach(function (band) {
        c.fillStyle = color("good");
        across(u, chart, band.label, u.valToPos(band.high, "y", true) - 14 * px);
      });
      chart.marks.forEach(function (mark) {
        if (mark.kind === "phase") return;
        var name = mark.kind === "recommended" ? "good" : mark.kind === "note" ? "dim" : "bad";
        c.strokeStyle = c.fillStyle = color(name);
        c.beginPath();
        var width = c.measureText(mark.label).width;
        if (mark.axis === "y") {
          var y = u.valToPos(mark.value, "y", true);
          c.moveTo(box.left, y); c.lineTo(box.left + box.width, y);
          if (y >= box.top) across(u, chart, mark.label, y + 3 * px);
        } else {
          var x = u.valToPos(mark.value, "x", true);
          if (x < box.left || x > box.left + box.width) return;
          c.moveTo(x, box.top); c.lineTo(x, box.top + box.height);
          var right = x + 4 * px + width <= box.left + box.width;
          c.textAlign = right ? "left" : "right";
          var y0 = box.top + 2 * px;
          if (mark.kind !== "recommended") {
            var share = mark.kind === "note" ? 0.55 : 1;  // the law rises where its label stands
            y0 = box.top + box.height * share - (16 + 13 * row) * px;
            row += 1;
          }
          c.fillText(mark.label, right ? x + 4 * px : x - 4 * px, y0);
        }
        c.stroke();
      });
      c.restore();
    };
  }

  function nearest(chart) {
    var known = chart.x.map(function (_, at) {
      return chart.series.some(function (one) {
        return one.kind !== "estimate" && one.values[at] !== null;
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
    return chart.series.map(function (one) {
      return one.values.map(function (value, at) { sum[at] += value || 0; return sum[at]; });
    });
  }

  function line(chart, one) {
    var stroke = function () { return color("c" + one.color); };
    var series = {
      label: one.label, stroke: stroke, width: 1.8, spanGaps: true,
      points: { show: one.kind === "measured", size: 7, fill: stroke, stroke: stroke },
      value: function (u, value, number, at) {
        if (at === null || at === undefined) return "–";
        return (one.texts && one.texts[at]) || short(one.values[at]);
      }
    };
    if (one.kind === "estimate") { series.dash = [6, 4]; series.width = 1.5; }
    if (one.kind === "part") {
      series.fill = stroke; series.width = 0; series.points = { show: false };
      series.paths = uPlot.paths.bars({ size: [0.72, 60] });
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
      x.values = function (u, splits) { return splits.map(function (one) { return names[one]; }); };
      x.filter = function (u, splits) { return splits; };
    }
    var series = chart.series.map(function (one) { return line(chart, one); });
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
          var longest = Math.max.apply(null, (values || [""]).map(function (one) { return one.length; }));
          return 20 + 7 * Math.max(longest, 3);
        },
        values: function (u, splits) { return splits.map(short); } })],
      hooks: { drawAxes: [under(chart)], draw: [over(chart)] }
    };
  }

  /* What the page leaves out of a chart because it is empty or said elsewhere in it. */
  function filled(chart) {
    chart.marks = chart.marks || [];
    chart.bands = chart.bands || [];
    chart.x_ticks = chart.x_ticks || (chart.x_names ? chart.x : []);
    chart.x_names = chart.x_names || chart.x_ticks.map(String);
    chart.stacked = chart.series.some(function (one) { return one.kind === "part"; });
    return chart;
  }

  /* Draws `chart` into `element`; `group` names the charts whose cursors move together. */
  function draw(element, chart, group) {
    filled(chart);
    var data = chart.series.map(function (one) { return one.values; });
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
    drawn = drawn.filter(function (one) {
      if (!one.element.isConnected) one.plot.destroy();
      return one.element.isConnected;
    });
    return drawn;
  }

  function resize() {
    present().forEach(function (one) {
      var width = one.element.clientWidth;
      if (width && Math.abs(width - one.plot.width) > 2) {
        one.plot.setSize({ width: width,
          height: Math.round(Math.min(300, Math.max(210, width * 0.55))) });
      }
    });
  }

  function redraw() {
    present().forEach(function (one) { one.plot.redraw(false, true); });
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
        entries.forEach(function (one) {
          if (one.isIntersecting) { watch.unobserve(one.target); show(one.target); }
        });
      }, { rootMargin: "200px" });
      figures.forEach(function (one) { watch.observe(one); });
    } else {
      figures.forEach(show);
    }
    window.addEventListener("resize", resize);
    window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  }

  return { draw: draw, enhance: enhance, redraw: redraw, resize: resize, short: short };
})();
