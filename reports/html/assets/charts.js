/* Draws charts (reports/chart.py, as JSON) with uPlot: hover, zoom by dragging, synchronised cursors.
   Needs nothing but the page; colours are the page's CSS variables. */
"use strict";
var BatchAdvisorCharts = (function () {
  var drawn = [];
  var BAR = 0.7;  // share of its place that a bar takes

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
      // Room above a limit, a band or a bar for its name and that of the recommended size.
      var named = chart.bands.length ||
        chart.marks.some(function (one) { return chart.stacked || one.axis === "y"; });
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

  /* Names are placed by the rules of reports/html/labels.py: across no line, on no other name, off
     the curves if they can; of the places those named first are preferred. */
  function placing(u, chart) {
    var px = uPlot.pxRatio, area = u.bbox, taken = [], curves = [];
    var room = { left: area.left, top: area.top, right: area.left + area.width + 2 * px,
      bottom: area.top + area.height };
    function meet(a, b) {
      return a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
    }
    function count(boxes, box) {
      return boxes.filter(function (one) { return meet(one, box); }).length;
    }
    chart.series.forEach(function (one, number) {
      if (one.kind === "part" || !seriesOf(u, chart, number).show) return;
      var last = null;
      one.values.forEach(function (value, at) {
        if (value === null) return;
        var next = { x: u.valToPos(chart.x[at], "x", true), y: u.valToPos(value, "y", true) };
        var from = last || next;
        var steps = Math.max(1, Math.round(Math.max(Math.abs(next.x - from.x), Math.abs(next.y - from.y)) / (6 * px)));
        for (var step = 0; step <= steps; step += 1) {
          var x = from.x + (next.x - from.x) * step / steps, y = from.y + (next.y - from.y) * step / steps;
          curves.push({ left: x - px, top: y - px, right: x + px, bottom: y + px });
        }
        last = next;
      });
    });
    return {
      taken: taken,
      line: function (left, top, right, bottom) {
        taken.push({ left: left, top: top, right: right, bottom: bottom });
      },
      /* Writes the text at the best of the places: x, y of its top, alignment. */
      put: function (text, places) {
        var c = u.ctx, width = c.measureText(text).width, best = null, least = Infinity;
        places.forEach(function (place, order) {
          var left = place[0] - (place[2] === "right" ? width : place[2] === "center" ? width / 2 : 0);
          var box = { left: left, top: place[1], right: left + width, bottom: place[1] + 12 * px };
          var outside = box.left < room.left || box.right > room.right ||
            box.top < room.top || box.bottom > room.bottom;
          var bad = (outside ? 1000 : 0) + 100 * count(taken, box) + count(curves, box) + 0.05 * order;
          if (bad < least) { least = bad; best = { box: box, place: place }; }
        });
        best.box.name = text;
        taken.push(best.box);
        c.save();
        c.setLineDash([]);
        c.lineJoin = "round";
        c.lineWidth = 3 * px;
        c.strokeStyle = color("panel");
        c.textAlign = best.place[2];
        c.strokeText(text, best.place[0], best.place[1]);
        c.fillText(text, best.place[0], best.place[1]);
        c.restore();
      }
    };
  }

  /* Left, right and top of the frame around a bar. */
  function bar(u, chart, value) {
    var px = uPlot.pxRatio, at = chart.x.indexOf(value), x = u.valToPos(value, "x", true);
    var place = Math.abs(u.valToPos(value + 1, "x", true) - x);
    var half = Math.min(60 * px, BAR * place) / 2 + 2 * px;
    var sum = chart.series.reduce(function (whole, one) { return whole + (one.values[at] || 0); }, 0);
    return { x: x, left: x - half, right: x + half, top: u.valToPos(sum, "y", true) - 2 * px };
  }

  function inkOf(kind) {
    return color(kind === "recommended" ? "good" : kind === "note" ? "dim" : "bad");
  }

  /* Lines across the chart and their names; the recommended bar is framed. */
  function marks(u, chart) {
    var c = u.ctx, px = uPlot.pxRatio, box = u.bbox;
    var bottom = box.top + box.height, right = box.left + box.width;
    var shown = chart.marks.filter(function (one) {
      if (one.kind === "phase") return false;
      if (one.axis === "y") return u.valToPos(one.value, "y", true) >= box.top;
      var x = u.valToPos(one.value, "x", true);
      return x >= box.left && x <= right;
    });
    var upright = chart.stacked ? [] : shown.filter(function (one) { return one.axis === "x"; })
      .map(function (one) { return u.valToPos(one.value, "x", true); });
    var names = placing(u, chart);
    u.taken = names.taken;
    c.lineWidth = 1.4 * px;
    shown.forEach(function (mark) {
      c.strokeStyle = inkOf(mark.kind);
      c.setLineDash(chart.stacked ? [] : [5 * px, 3 * px]);
      c.beginPath();
      if (mark.axis === "y") {
        var y = u.valToPos(mark.value, "y", true);
        c.moveTo(box.left, y); c.lineTo(right, y);
        names.line(box.left, y - px, right, y + px);
      } else if (chart.stacked) {
        var at = bar(u, chart, mark.value);
        c.lineWidth = 2 * px;
        c.moveTo(at.left, bottom); c.lineTo(at.left, at.top); c.lineTo(at.right, at.top); c.lineTo(at.right, bottom);
      } else {
        var x = u.valToPos(mark.value, "x", true);
        c.moveTo(x, box.top); c.lineTo(x, bottom);
        names.line(x - px, box.top, x + px, bottom);
      }
      c.stroke();
    });
    chart.bands.forEach(function (band) {
      names.line(box.left, u.valToPos(band.high, "y", true), right, u.valToPos(band.low, "y", true));
    });
    function along(tops) {
      var ends = [[box.left + 4 * px, "left"], [right - 4 * px, "right"]];
      upright.forEach(function (x) { ends.push([x + 4 * px, "left"], [x - 4 * px, "right"]); });
      var places = [];
      ends.forEach(function (end) { tops.forEach(function (top) { places.push([end[0], top, end[1]]); }); });
      return places;
    }
    function beside(mark) {
      var own = u.valToPos(mark.value, "x", true), tops = [], places = [], row = 13 * px;
      var start = mark.kind === "recommended" ? box.top + 2 * px
        : mark.kind === "note" ? box.top + box.height * 0.55 - 16 * px : bottom - 15 * px;
      for (var at = -60; at <= 60; at += 1) {
        var top = start + at * row;
        if (top >= box.top && top + 12 * px <= bottom) tops.push(top);
      }
      tops.sort(function (a, b) { return Math.abs(a - start) - Math.abs(b - start); });
      [own].concat(upright.filter(function (x) { return x !== own; })).forEach(function (x) {
        tops.forEach(function (top) { places.push([x + 4 * px, top, "left"], [x - 4 * px, top, "right"]); });
      });
      return places;
    }
    c.font = 11 * px + "px system-ui, sans-serif";
    c.textBaseline = "top";
    chart.bands.forEach(function (band) {
      c.fillStyle = color("good");
      names.put(band.label, along([u.valToPos(band.high, "y", true) - 14 * px, u.valToPos(band.low, "y", true) + 3 * px]));
    });
    function rank(one) { return one.axis === "y" ? 0 : one.kind === "recommended" ? 1 : 2; }
    shown.sort(function (a, b) { return rank(a) - rank(b); }).forEach(function (mark) {
      c.fillStyle = inkOf(mark.kind);
      var y = u.valToPos(mark.value, "y", true);
      if (mark.axis === "y") names.put(mark.label, along([y + 3 * px, y - 14 * px]));
      else if (!chart.stacked) names.put(mark.label, beside(mark));
      else {
        var at = bar(u, chart, mark.value);
        names.put(mark.label, [[at.x, at.top - 14 * px, "center"]]);
      }
    });
  }

  function over(chart) {
    return function (u) {
      var c = u.ctx, px = uPlot.pxRatio, box = u.bbox;
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
      marks(u, chart);
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
      series.paths = uPlot.paths.bars({ size: [BAR, 60] });
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
