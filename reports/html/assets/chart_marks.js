/* What of a chart is painted around its lines: the ground with its axes, bands, phases, whiskers, marks
   and their names. It is the picture of reports/html/svg.py, drawn again for a part of the x axis. */
"use strict";
var BatchAdvisorMarks = (function () {
  var BAR = 0.7;  // share of its place that a bar takes
  var WIDTH = 440, HEIGHT = 260, LEFT = 54, RIGHT = 12, TOP = 22, BOTTOM = 40;  // reports/html/frame.py
  var CHARACTER = 6.7, ROW = 14;

  function color(name) {
    return getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
  }

  function seriesOf(u, chart, number) {
    return u.series[chart.stacked ? chart.series.length - number : number + 1];
  }

  function short(value) {
    if (value === 0) return "0";
    return Math.abs(value) >= 100 ? value.toFixed(0) : String(Number(value.toPrecision(3)));
  }

  /* A value of an axis in the digits that tell it from its neighbours, large ones in millions. */
  function nameOf(tick) {
    if (Math.abs(tick) >= 1e6) return nameOf(tick / 1e6) + "M";
    return Number(short(tick)) === tick ? short(tick) : String(Number(tick.toPrecision(6)));
  }

  /* Pixels of the canvas that a unit of the picture takes. */
  function unit(u) {
    return u.width / WIDTH * uPlot.pxRatio;
  }

  function write(u, bold) {
    u.ctx.font = (bold ? "600 " : "") + 12 * unit(u) + "px system-ui, -apple-system, 'Segoe UI', Roboto, Arial, sans-serif";
  }

  /* Round values between both, about `wanted` of them. */
  function niceTicks(low, high) {
    var wanted = 5, span = high - low;
    if (!(span > 0) || !isFinite(span)) return [low];
    var power = Math.pow(10, Math.floor(Math.log10(span / wanted)));
    var factor = [1, 2, 5, 10, 20].find(function (one) { return one * power * wanted >= span * 0.85; });
    var step = factor * power, ticks = [];
    for (var at = Math.ceil(low / step - 1e-9); at * step <= high + 1e-9 * step; at += 1) {
      ticks.push(Number((at * step).toPrecision(12)));
    }
    return ticks;
  }

  /* The named values of the x axis that have room beside each other, marked ones before the others. */
  function spaced(u, chart, low, high) {
    var ticks = chart.x_ticks.map(function (value, at) { return { value: value, name: chart.x_names[at] }; })
      .filter(function (tick) { return tick.value >= low && tick.value <= high; });
    if (!chart.x_ticks.length) {
      ticks = niceTicks(low, high).map(function (value) { return { value: value, name: nameOf(value) }; });
    }
    var marked = chart.marks.filter(function (mark) { return mark.kind === "recommended"; })
      .map(function (mark) { return mark.value; });
    var rank = function (tick) { return marked.indexOf(tick.value) < 0 ? 1 : 0; }, px = unit(u), kept = [];
    ticks.slice().sort(function (a, b) { return rank(a) - rank(b) || a.value - b.value; }).forEach(function (tick) {
      var half = tick.name.length * CHARACTER * px / 2;
      var at = Math.min(u.valToPos(tick.value, "x", true), (WIDTH - 4) * px - half);  // in the picture
      tick.at = at;
      tick.named = kept.every(function (one) { return Math.abs(one.at - at) > one.half + half + 8 * px; });
      if (tick.named) kept.push({ at: at, half: half });
    });
    return ticks;
  }

  function axes(u, chart) {
    var c = u.ctx, px = unit(u), box = u.bbox, right = box.left + box.width, base = box.top + box.height;
    c.lineWidth = px;
    c.setLineDash([]);
    c.strokeStyle = color("grid");
    c.fillStyle = color("dim");
    c.textBaseline = "alphabetic";
    write(u);
    c.beginPath();
    niceTicks(u.scales.y.min, u.scales.y.max).forEach(function (tick) {
      var y = u.valToPos(tick, "y", true);
      c.moveTo(box.left, y); c.lineTo(right, y);
      c.textAlign = "right";
      c.fillText(nameOf(tick), box.left - 6 * px, y + 4 * px);
    });
    c.stroke();
    c.textAlign = "left";
    c.fillText(chart.y_label, 4 * px, 11 * px);
    c.textAlign = "center";
    c.strokeStyle = color("line");
    c.beginPath();
    c.moveTo(box.left, base); c.lineTo(right, base);
    spaced(u, chart, u.scales.x.min, u.scales.x.max).forEach(function (tick) {
      var x = u.valToPos(tick.value, "x", true);
      c.moveTo(x, base); c.lineTo(x, base + 4 * px);
      if (tick.named) c.fillText(tick.name, tick.at, base + 16 * px);
    });
    c.stroke();
    c.fillText(chart.x_label, (box.left + right) / 2, (HEIGHT - 6) * px);
  }

  /* The ground: bands and axes, below the lines. */
  function under(chart) {
    return function (u) {
      var c = u.ctx;
      c.save();
      c.fillStyle = color("band");
      chart.bands.forEach(function (band) {
        var top = u.valToPos(band.high, "y", true), bottom = u.valToPos(band.low, "y", true);
        c.fillRect(u.bbox.left, top, u.bbox.width, Math.max(1, bottom - top));
      });
      axes(u, chart);
      if (!chart.areas) phases(u, chart);
      c.restore();
    };
  }

  /* Where something else begins; a label that would cover another is left out. */
  function phases(u, chart) {
    var c = u.ctx, px = unit(u), box = u.bbox, free = 0;
    write(u);
    c.textAlign = "left";
    c.textBaseline = "alphabetic";
    c.lineWidth = px;
    c.strokeStyle = color(chart.areas ? "dim" : "grid");
    c.setLineDash(chart.areas ? [5 * px, 3 * px] : []);
    chart.marks.forEach(function (mark) {
      if (mark.kind !== "phase") return;
      var x = u.valToPos(mark.value, "x", true);
      if (x < box.left || x > box.left + box.width) return;
      c.beginPath();
      c.moveTo(x, box.top); c.lineTo(x, box.top + box.height);
      c.stroke();
      if (x < free) return;
      c.fillStyle = color("dim");
      c.fillText(mark.label, x + 3 * px, box.top + 10 * px);
      free = x + 8 * px + mark.label.length * CHARACTER * px;
    });
  }

  /* Names are placed by the rules of reports/html/labels.py: across no line, on no other name, off
     the curves if they can; of the places those named first are preferred. */
  function placing(u, chart) {
    var px = unit(u), area = u.bbox, taken = [], curves = [];
    var room = { left: area.left, top: 0, right: area.left + area.width + 2 * px,
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
      /* Writes the text at the best of the places: x, y of its base line, alignment. */
      put: function (text, places) {
        var c = u.ctx, width = text.length * CHARACTER * px, best = null, least = Infinity;
        places.forEach(function (place, order) {
          var left = place[0] - (place[2] === "right" ? width : place[2] === "center" ? width / 2 : 0);
          var box = { left: left, top: place[1] - 10 * px, right: left + width, bottom: place[1] + 3 * px };
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
    var px = unit(u), at = chart.x.indexOf(value), x = u.valToPos(value, "x", true);
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
    var c = u.ctx, px = unit(u), box = u.bbox;
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
    function along(bases) {
      var ends = [[box.left + 5 * px, "left"], [right - 5 * px, "right"]];
      upright.forEach(function (x) { ends.push([x + 5 * px, "left"], [x - 5 * px, "right"]); });
      var places = [];
      ends.forEach(function (end) { bases.forEach(function (base) { places.push([end[0], base, end[1]]); }); });
      return places;
    }
    function beside(mark) {
      var own = u.valToPos(mark.value, "x", true), bases = [], places = [], row = ROW * px;
      var start = mark.kind === "recommended" ? box.top + 10 * px
        : mark.kind === "note" ? bottom - 0.45 * box.height - 7 * px : bottom - 7 * px;
      for (var at = -60; at <= 60; at += 1) {
        var base = start + at * row;
        if (base >= box.top + 9 * px && base <= bottom - 5 * px) bases.push(base);
      }
      bases.sort(function (a, b) { return Math.abs(a - start) - Math.abs(b - start); });
      [own].concat(upright.filter(function (x) { return x !== own; })).forEach(function (x) {
        bases.forEach(function (base) { places.push([x + 5 * px, base, "left"], [x - 5 * px, base, "right"]); });
      });
      return places;
    }
    c.textBaseline = "alphabetic";
    write(u, true);
    chart.bands.forEach(function (band) {
      c.fillStyle = color("good");
      names.put(band.label, along([u.valToPos(band.high, "y", true) - 4 * px, u.valToPos(band.low, "y", true) + ROW * px]));
    });
    function rank(mark) { return mark.axis === "y" ? 0 : mark.kind === "recommended" ? 1 : 2; }
    shown.sort(function (a, b) { return rank(a) - rank(b); }).forEach(function (mark) {
      c.fillStyle = inkOf(mark.kind);
      write(u, mark.kind === "recommended");
      var y = u.valToPos(mark.value, "y", true);
      if (mark.axis === "y") names.put(mark.label, along([y + ROW * px, y - 4 * px]));
      else if (!chart.stacked) names.put(mark.label, beside(mark));
      else {
        var at = bar(u, chart, mark.value);
        names.put(mark.label, [[at.x, at.top - 4 * px, "center"]]);
      }
    });
  }

  function over(chart) {
    return function (u) {
      var c = u.ctx, px = unit(u), box = u.bbox;
      c.save();
      c.beginPath();
      c.rect(box.left, 0, box.width, box.top + box.height);
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

  return { BAR: BAR, BOTTOM: BOTTOM, HEIGHT: HEIGHT, LEFT: LEFT, RIGHT: RIGHT, TOP: TOP, WIDTH: WIDTH,
    color: color, over: over, seriesOf: seriesOf, short: short, under: under };
})();
