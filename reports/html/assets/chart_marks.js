/* What lies below and above the lines of a chart: bands, phases, whiskers, marks and their names. */
"use strict";
var BatchAdvisorMarks = (function () {
  var BAR = 0.7;  // share of its place that a bar takes

  function color(name) {
    return getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
  }

  function seriesOf(u, chart, number) {
    return u.series[chart.stacked ? chart.series.length - number : number + 1];
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
      if (!chart.areas) phases(u, chart);
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
    c.strokeStyle = color(chart.areas ? "dim" : "grid");
    c.setLineDash(chart.areas ? [5 * px, 3 * px] : []);
    c.fillStyle = color("dim");
    chart.marks.forEach(function (mark) {
      if (mark.kind !== "phase") return;
      var x = u.valToPos(mark.value, "x", true);
      if (x < box.left || x > box.left + box.width) return;
      c.beginPath();
      c.moveTo(x, box.top); c.lineTo(x, box.top + box.height);
      c.stroke();
      if (x < free) return;
      c.fillText(mark.label, x + 3 * px, chart.areas ? box.top + 2 * px : box.top + box.height - 14 * px);
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
      return boxes.filter(function (other) { return meet(other, box); }).length;
    }
    chart.series.forEach(function (series, number) {
      if (series.kind === "part" || series.kind === "area" || !seriesOf(u, chart, number).show) return;
      var last = null;
      series.values.forEach(function (value, at) {
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
    var sum = chart.series.reduce(function (whole, series) { return whole + (series.values[at] || 0); }, 0);
    return { x: x, left: x - half, right: x + half, top: u.valToPos(sum, "y", true) - 2 * px };
  }

  function inkOf(kind) {
    return color(kind === "recommended" ? "good" : kind === "note" ? "dim" : "bad");
  }

  /* Lines across the chart and their names; the recommended bar is framed. */
  function marks(u, chart) {
    var c = u.ctx, px = uPlot.pxRatio, box = u.bbox;
    var bottom = box.top + box.height, right = box.left + box.width;
    var shown = chart.marks.filter(function (mark) {
      if (mark.kind === "phase") return false;
      if (mark.axis === "y") return u.valToPos(mark.value, "y", true) >= box.top;
      var x = u.valToPos(mark.value, "x", true);
      return x >= box.left && x <= right;
    });
    var upright = chart.stacked ? [] : shown.filter(function (mark) { return mark.axis === "x"; })
      .map(function (mark) { return u.valToPos(mark.value, "x", true); });
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
    function rank(mark) { return mark.axis === "y" ? 0 : mark.kind === "recommended" ? 1 : 2; }
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
      if (chart.areas) phases(u, chart);
      c.setLineDash([]);
      chart.series.forEach(function (series, number) {
        if (!series.low || !series.low.length || !seriesOf(u, chart, number).show) return;
        c.strokeStyle = color("c" + series.color);
        c.lineWidth = 1.4 * px;
        c.beginPath();
        series.low.forEach(function (low, at) {
          if (low === null || series.high[at] === null) return;
          var x = u.valToPos(chart.x[at], "x", true), half = 4 * px;
          var a = u.valToPos(low, "y", true), b = u.valToPos(series.high[at], "y", true);
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

  return { BAR: BAR, color: color, over: over, seriesOf: seriesOf, under: under };
})();
