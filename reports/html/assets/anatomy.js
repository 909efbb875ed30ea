/* Zoom, keyboard and names for the pictures of steps. The drawing is in the page already: this writes
   its paths again for the part that is looked at, from the data beside it. Texts are set as text. */
"use strict";
(function () {
  var UNITS = 2000, ROW = 11, MARK = 4, NAMED = 0.07, MAX_NAMED = 24, FILLED = 0.6, SVG = "http://www.w3.org/2000/svg";
  var STEP = 1.6, SCALES = [["s", 1e9], ["ms", 1e6], ["µs", 1e3], ["ns", 1]];

  function make(name, attributes, text) {
    var node = document.createElementNS(SVG, name);
    Object.keys(attributes).forEach(function (key) { node.setAttribute(key, attributes[key]); });
    if (text !== undefined) node.textContent = text;
    return node;
  }

  function html(name, className, text) {
    var node = document.createElement(name);
    if (className) node.className = className;
    if (text !== undefined) node.textContent = text;
    return node;
  }

  function time(ns, digits) {
    var scale = SCALES.find(function (one) { return ns >= one[1]; }) || SCALES[3];
    return Number((ns / scale[1]).toPrecision(digits || 4)) + " " + scale[0];
  }

  var DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

  /* Numbers from text; see `packed` in reports/html/anatomy.py. Shifts of 32 bits would overflow. */
  function unpacked(text) {
    var list = [], value = 0, factor = 1;
    for (var at = 0; at < text.length; at++) {
      var digit = DIGITS.indexOf(text[at]);
      value += (digit & 31) * factor;
      factor *= 32;
      if (digit & 32) continue;
      list.push(value % 2 ? -(value - 1) / 2 : value / 2);
      value = 0;
      factor = 1;
    }
    return list;
  }

  /* Blocks of a row as objects; see `_flat` there. */
  function blocks(text) {
    var flat = unpacked(text), list = [], at = 0, end = 0;
    while (at < flat.length) {
      var start = end + flat[at], label = flat[at + 2], count = 1;
      end = start + flat[at + 1];
      var total = end - start;
      at += 3;
      if (label < 0) { label = ~label; count = flat[at]; total = flat[at + 1]; at += 2; }
      list.push({ start: start, end: end, label: label, count: count, total: total });
    }
    return list;
  }

  function pairs(text) {
    var flat = unpacked(text), list = [], end = 0;
    for (var at = 0; at < flat.length; at += 2) {
      var start = end + flat[at];
      end = start + flat[at + 1];
      list.push({ start: start, end: end });
    }
    return list;
  }

  function path(list, from, to, y) {
    var data = "", left = -1, right = -1, scale = UNITS / (to - from);
    var stroke = function () { if (right > left) data += "M" + left + " " + y + "H" + right; };
    list.forEach(function (block) {
      if (block.end <= from || block.start >= to) return;
      var begin = Math.max(0, Math.min(UNITS - 1, Math.floor((block.start - from) * scale)));
      var stop = Math.min(UNITS, Math.max(begin + 1, Math.ceil((block.end - from) * scale)));
      if (begin <= right) { right = Math.max(right, stop); return; }
      stroke();
      left = begin;
      right = stop;
    });
    stroke();
    return data;
  }

  function nice(span) {
    var power = Math.pow(10, Math.floor(Math.log10(span / 6)));
    return [1, 2, 5, 10].map(function (factor) { return factor * power; }).find(function (step) {
      return span / step <= 7;
    }) || 10 * power;
  }

  function Picture(figure, data, shape) {
    var self = this;
    this.figure = figure;
    this.data = data;
    this.whole = shape.w;
    this.from = 0;
    this.to = shape.w;
    this.view = figure.querySelector(".a-view");
    this.axis = figure.querySelector(".a-axis");
    this.chosen = null;
    this.lanes = Array.prototype.map.call(figure.querySelectorAll(".a-lane"), function (node, at) {
      var lane = shape.lanes[at];
      return { node: node, name: lane.n, rows: lane.r.map(blocks), way: pairs(lane.y),
        track: node.querySelector(".a-track"), drawing: node.querySelector(".a-blocks") };
    });
    this.tip = html("div", "a-tip");
    this.tip.hidden = true;
    this.tip.setAttribute("role", "status");
    figure.appendChild(this.tip);
    this.band = html("div", "a-band");
    this.band.hidden = true;
    this.view.appendChild(this.band);
    this.tools();
    this.view.tabIndex = 0;
    this.view.setAttribute("aria-label", this.view.getAttribute("aria-label") +
      ". Plus and minus zoom, arrows move and change the lane, comma and full stop go from block to block.");
    this.view.addEventListener("keydown", function (event) { self.key(event); });
    this.view.addEventListener("pointermove", function (event) { self.moved(event); });
    this.view.addEventListener("pointerleave", function () { if (!self.drag) self.hide(); });
    this.view.addEventListener("pointerdown", function (event) { self.down(event); });
    this.view.addEventListener("pointerup", function (event) { self.up(event); });
    this.view.addEventListener("pointercancel", function () { self.drag = null; self.band.hidden = true; });
    this.view.addEventListener("dblclick", function () { self.show(0, self.whole); });
    this.view.addEventListener("blur", function () { self.hide(); });
    this.view.addEventListener("wheel", function (event) {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      self.zoom(event.deltaY < 0 ? STEP : 1 / STEP, self.at(event));
    }, { passive: false });
  }

  Picture.prototype.tools = function () {
    var self = this, bar = html("div", "a-tools");
    [["+", "zoom in", function () { self.zoom(STEP); }], ["−", "zoom out", function () { self.zoom(1 / STEP); }],
      ["◀", "earlier", function () { self.pan(-0.3); }], ["▶", "later", function () { self.pan(0.3); }],
      ["All", "see all again", function () { self.show(0, self.whole); }]].forEach(function (one) {
      var button = html("button", "", one[0]);
      button.type = "button";
      button.title = one[1];
      button.setAttribute("aria-label", one[1]);
      button.addEventListener("click", one[2]);
      bar.appendChild(button);
    });
    var group = this.figure.closest(".a-two");
    if (group) {
      var wide = html("button", "a-widen", "Wide");
      wide.type = "button";
      wide.title = "use the whole width, or stand beside each other";
      wide.addEventListener("click", function () { group.classList.toggle("a-wide"); });
      bar.appendChild(wide);
    }
    this.range = html("span", "a-range", "");
    bar.appendChild(this.range);
    this.view.before(bar);
  };

  Picture.prototype.show = function (from, to) {
    var least = Math.min(this.whole, 50), span = Math.min(this.whole, Math.max(least, to - from));
    this.from = Math.max(0, Math.min(this.whole - span, from));
    this.to = this.from + span;
    var self = this;
    this.lanes.forEach(function (lane) { self.draw(lane); });
    this.ticks();
    this.range.textContent = span < this.whole ? time(this.from) + " to " + time(this.to) : "";
    if (this.chosen) this.point();
  };

  Picture.prototype.zoom = function (factor, around) {
    var middle = around === undefined ? (this.from + this.to) / 2 : around;
    if (around === undefined && this.chosen) middle = (this.chosen.block.start + this.chosen.block.end) / 2;
    var span = (this.to - this.from) / factor, share = (middle - this.from) / (this.to - this.from);
    share = Math.max(0, Math.min(1, share));
    this.show(middle - share * span, middle + (1 - share) * span);
  };

  Picture.prototype.pan = function (share) {
    var by = share * (this.to - this.from);
    this.show(this.from + by, this.to + by);
  };

  Picture.prototype.draw = function (lane) {
    var self = this, drawing = lane.drawing, names = [], parts = [];
    lane.rows.forEach(function (row, at) {
      var kinds = {}, named = 0;
      row.forEach(function (block) {
        if (block.end <= self.from || block.start >= self.to) return;
        var label = self.data.labels[block.label], kind = self.data.kinds[label[0]];
        var name = kind.replace(" ", "-") + (block.total < FILLED * (block.end - block.start) ? " a-pale" : "");
        (kinds[name] = kinds[name] || []).push(block);
        var from = Math.max(block.start, self.from), to = Math.min(block.end, self.to);
        if (block.count === 1 && to - from >= NAMED * (self.to - self.from) && named < MAX_NAMED) {
          named += 1;
          names.push([from, to, at, self.data.names[label[1] || 0] || self.data.words[label[0]]]);
        }
      });
      Object.keys(kinds).forEach(function (name) {
        parts.push(make("path", { "class": "a-" + name,
          d: path(kinds[name], self.from, self.to, at * ROW + 5) }));
      });
    });
    var way = path(lane.way, this.from, this.to, lane.rows.length * ROW + MARK / 2);
    if (way) parts.push(make("path", { "class": "a-way", d: way }));
    drawing.replaceChildren.apply(drawing, parts);
    var texts = names.map(function (name) {
      var inner = make("svg", { x: self.percent(name[0]), y: name[2] * ROW, height: ROW,
        width: 100 * (name[1] - name[0]) / (self.to - self.from) + "%" });
      inner.appendChild(make("text", { x: 3, y: 9 }, name[3]));
      return inner;
    });
    lane.track.replaceChildren.apply(lane.track, [drawing].concat(texts));
  };

  Picture.prototype.percent = function (when) {
    return 100 * (when - this.from) / (this.to - this.from) + "%";
  };

  Picture.prototype.ticks = function () {
    var span = this.to - this.from, step = nice(span), self = this;
    var scale = SCALES.find(function (one) { return step >= one[1] / 10; }) || SCALES[3], marks = [];
    for (var at = Math.ceil(this.from / step) * step; at <= this.from + 0.97 * span; at += step) {
      marks.push(make("text", { x: self.percent(at), y: 11 }, Number((at / scale[1]).toPrecision(9)) + " " + scale[0]));
    }
    this.axis.replaceChildren.apply(this.axis, marks);
  };

  /* When the pointer is, in nanoseconds of the picture. */
  Picture.prototype.at = function (event) {
    var box = this.axis.getBoundingClientRect();
    return this.from + (event.clientX - box.left) / box.width * (this.to - this.from);
  };

  /* The block at a time, or the nearest that is not further than a pixel or two. */
  Picture.prototype.find = function (row, when, slack) {
    var low = 0, high = row.length, best = null, distance = slack;
    while (low < high) {
      var middle = (low + high) >> 1;
      if (row[middle].start <= when + slack) low = middle + 1; else high = middle;
    }
    for (var at = low - 1; at >= 0 && at >= low - 12; at--) {
      var off = Math.max(row[at].start - when, when - row[at].end, 0);
      if (off < distance || (off === 0 && best === null)) { best = at; distance = off; }
      if (off === 0) break;
    }
    return best;
  };

  Picture.prototype.moved = function (event) {
    if (this.drag) { this.select(event); return; }
    var self = this, box = this.axis.getBoundingClientRect();
    var when = this.at(event), slack = 2.5 * (this.to - this.from) / box.width, hit = null;
    this.lanes.forEach(function (lane, number) {
      var place = lane.track.getBoundingClientRect();
      if (event.clientY < place.top || event.clientY > place.bottom) return;
      var row = Math.min(lane.rows.length - 1, Math.max(0, Math.floor((event.clientY - place.top) / ROW)));
      var block = self.find(lane.rows[row], when, slack);
      if (block !== null) hit = { lane: number, row: row, at: block, block: lane.rows[row][block] };
    });
    if (hit) this.say(hit, event.clientX, event.clientY); else this.hide();
  };

  Picture.prototype.say = function (hit, x, y) {
    var block = hit.block, label = this.data.labels[block.label], names = this.data.names;
    var word = this.data.words[label[0]], name = names[label[1] || 0], lines = [];
    var head = html("b", "", name || word);
    if (name) lines.push(word);
    if (block.count > 1) lines.push("the longest of " + block.count.toLocaleString("en") +
      " drawn together, which take " + time(block.total));
    lines.push(time(block.end - block.start, 6) + ", from " + time(block.start, 7) + " on, " +
      Number((100 * (block.end - block.start) / this.whole).toPrecision(3)) + "% of the picture");
    if (label[4]) lines.push("the GPU waits for: " + names[label[4]]);
    if (label[2]) lines.push("operator: " + names[label[2]]);
    if (label[3]) lines.push("code: " + names[label[3]]);
    lines.push("lane: " + this.lanes[hit.lane].name);
    this.tip.replaceChildren.apply(this.tip, [head].concat(lines.map(function (line) {
      return html("span", "", line);
    })));
    this.tip.hidden = false;
    var outer = this.figure.getBoundingClientRect(), width = this.tip.offsetWidth, height = this.tip.offsetHeight;
    var left = Math.max(4, Math.min(outer.width - width - 4, x - outer.left + 12));
    var top = y - outer.top + 16;
    if (y + 16 + height > window.innerHeight) top = y - outer.top - height - 10;
    this.tip.style.left = left + "px";
    this.tip.style.top = top + "px";
  };

  Picture.prototype.hide = function () { this.tip.hidden = true; };

  Picture.prototype.down = function (event) {
    if (event.button !== 0 || event.pointerType === "touch") return;
    this.drag = { x: event.clientX, when: this.at(event) };
    this.view.setPointerCapture(event.pointerId);
  };

  Picture.prototype.select = function (event) {
    var box = this.view.getBoundingClientRect();
    var left = Math.max(box.left, Math.min(this.drag.x, event.clientX)) - box.left;
    var right = Math.min(box.right, Math.max(this.drag.x, event.clientX)) - box.left;
    this.band.hidden = right - left < 4;
    this.band.style.left = left + "px";
    this.band.style.width = right - left + "px";
  };

  Picture.prototype.up = function (event) {
    var drag = this.drag;
    this.drag = null;
    this.band.hidden = true;
    if (!drag || Math.abs(event.clientX - drag.x) < 4) return;
    var when = this.at(event);
    this.show(Math.min(drag.when, when), Math.max(drag.when, when));
  };

  /* The chosen block, from the keyboard. */
  Picture.prototype.point = function () {
    var chosen = this.chosen, block = chosen.block, box = this.axis.getBoundingClientRect();
    var middle = Math.max(this.from, Math.min(this.to, (block.start + block.end) / 2));
    var place = this.lanes[chosen.lane].track.getBoundingClientRect();
    this.lanes.forEach(function (lane, at) { lane.node.classList.toggle("a-at", at === chosen.lane); });
    this.say(chosen, box.left + (middle - this.from) / (this.to - this.from) * box.width,
      place.top + (chosen.row + 1) * ROW);
  };

  Picture.prototype.choose = function (lane, row, at) {
    var block = this.lanes[lane].rows[row][at];
    if (!block) return;
    this.chosen = { lane: lane, row: row, at: at, block: block };
    if (block.end < this.from || block.start > this.to) {
      var span = this.to - this.from, middle = (block.start + block.end) / 2;
      this.show(middle - span / 2, middle + span / 2);
    } else this.point();
  };

  Picture.prototype.beside = function (by) {
    var chosen = this.chosen;
    if (chosen) this.choose(chosen.lane, chosen.row, chosen.at + by); else this.turn(0);
  };

  /* Another row, in the next lane after the last row of one. */
  Picture.prototype.turn = function (by) {
    var rows = [], self = this;
    this.lanes.forEach(function (lane, number) {
      lane.rows.forEach(function (row, at) { if (row.length) rows.push([number, at]); });
    });
    if (!rows.length) return;
    var chosen = this.chosen, now = chosen ? rows.findIndex(function (row) {
      return row[0] === chosen.lane && row[1] === chosen.row;
    }) : 0;
    var next = rows[Math.max(0, Math.min(rows.length - 1, now + by))];
    var row = this.lanes[next[0]].rows[next[1]];
    var when = chosen ? Math.max(self.from, Math.min(self.to, (chosen.block.start + chosen.block.end) / 2)) : this.from;
    var near = 0;
    row.forEach(function (block, at) {
      var off = Math.max(block.start - when, when - block.end, 0), best = row[near];
      if (off < Math.max(best.start - when, when - best.end, 0)) near = at;
    });
    this.choose(next[0], next[1], near);
  };

  Picture.prototype.key = function (event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    var self = this, known = {
      "+": function () { self.zoom(STEP); }, "=": function () { self.zoom(STEP); },
      "-": function () { self.zoom(1 / STEP); }, "0": function () { self.show(0, self.whole); },
      Home: function () { self.show(0, self.whole); },
      ArrowLeft: function () { self.pan(-0.2); }, ArrowRight: function () { self.pan(0.2); },
      ArrowUp: function () { self.turn(-1); }, ArrowDown: function () { self.turn(self.chosen ? 1 : 0); },
      ",": function () { self.beside(-1); }, ".": function () { self.beside(1); },
      Enter: function () {
        if (!self.chosen) return;
        var block = self.chosen.block, room = 0.25 * (block.end - block.start) + 25;
        self.show(block.start - room, block.end + room);
      },
      Escape: function () {
        self.chosen = null;
        self.hide();
        self.lanes.forEach(function (lane) { lane.node.classList.remove("a-at"); });
      }
    };
    if (!known[event.key]) return;
    event.preventDefault();
    known[event.key]();
  };

  /* Pictures are read when they come near the window: the page is there before. */
  function enhance(root) {
    if (!root.querySelector("figure.anatomy")) return;
    document.documentElement.classList.add("scripted");
    var parsed = new Map();
    var seen = new IntersectionObserver(function (changes) {
      changes.forEach(function (change) {
        if (!change.isIntersecting) return;
        seen.unobserve(change.target);
        var figure = change.target, script = figure.closest(".a-group").querySelector("script.a-data");
        if (!parsed.has(script)) parsed.set(script, JSON.parse(script.textContent));
        var data = parsed.get(script);
        new Picture(figure, data, data.pictures[Number(figure.dataset.picture)]);
      });
    }, { rootMargin: "300px" });
    root.querySelectorAll("figure.anatomy").forEach(function (figure) { seen.observe(figure); });
  }

  window.BatchAdvisorAnatomy = { enhance: enhance };
  enhance(document);
})();
