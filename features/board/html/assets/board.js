/* The tab: a list of runs and traces, the chosen one beside it. Pages come from the server as
   escaped HTML; names that this script shows itself are set as text, never as HTML. */
"use strict";
(function () {
  var EVERY_MS = 4000, BATCH = 20;
  var list = document.getElementById("list"), view = document.getElementById("view");
  var filter = document.getElementById("filter"), compare = document.getElementById("compare");
  var status = document.getElementById("status");
  var entries = [], lines = {}, chosen = null, shown = "", viewer = false, checked = [], asking = 0;
  var KEPT = "batch_advisor", before = remembered();

  /* What was chosen outlasts a reload of the page, in this browser tab only. What nobody chose is
     not kept, so that the newest run is shown as long as nothing else is asked for. */
  function remembered() {
    var kept = null;
    try { kept = JSON.parse(window.sessionStorage.getItem(KEPT)); } catch (error) { /* no storage */ }
    kept = kept && typeof kept === "object" ? kept : {};
    var keys = function (list) {
      return Array.isArray(list) ? list.filter(function (key) { return typeof key === "string"; }) : [];
    };
    return { chosen: keys(kept.chosen), checked: keys(kept.checked),
      filter: typeof kept.filter === "string" ? kept.filter : "", top: Number(kept.top) || 0 };
  }

  function remember() {
    before.checked = checked;
    before.filter = filter.value;
    before.top = view.scrollTop;
    try { window.sessionStorage.setItem(KEPT, JSON.stringify(before)); } catch (error) { /* as above */ }
  }

  /* Dark or light as TensorBoard is, else as the system is. */
  function theme() {
    var outer = null;
    try { outer = window.top !== window && window.top.document.body; } catch (error) { /* foreign */ }
    if (!outer) return;
    var set = function () {
      var name = outer.classList.contains("dark-mode") ? "dark" : "light";
      if (document.documentElement.dataset.theme === name) return;
      document.documentElement.dataset.theme = name;
      BatchAdvisorCharts.redraw();
    };
    set();
    new MutationObserver(set).observe(outer, { attributes: true, attributeFilter: ["class"] });
  }

  function ask(address) {
    return fetch(address, { cache: "no-store" }).then(function (answer) {
      return answer.text().then(function (text) {
        if (!answer.ok) throw new Error(text);
        return text;
      });
    });
  }

  function query(keys) {
    return keys.map(function (key) { return "key=" + encodeURIComponent(key); }).join("&");
  }

  function say(text, kind) {
    status.textContent = text;
    status.className = kind || "";
  }

  function element(name, className, text) {
    var node = document.createElement(name);
    if (className) node.className = className;
    if (text !== undefined) node.textContent = text;
    return node;
  }

  function when(seconds) {
    var date = new Date(seconds * 1000), two = function (n) { return String(n).padStart(2, "0"); };
    return date.getFullYear() + "-" + two(date.getMonth() + 1) + "-" + two(date.getDate()) + " " +
      two(date.getHours()) + ":" + two(date.getMinutes());
  }

  function item(entry) {
    var row = element("li"), box = element("input"), open = element("button", "entry");
    row.dataset.key = entry.key;
    box.type = "checkbox";
    box.setAttribute("aria-label", "compare " + entry.name);
    box.checked = checked.indexOf(entry.key) >= 0;
    box.hidden = entry.kind !== "run";
    box.addEventListener("change", function () {
      checked = checked.filter(function (key) { return key !== entry.key; });
      if (box.checked) checked.push(entry.key);
      buttons();
    });
    open.type = "button";
    open.appendChild(element("span", "name", entry.name));
    var more = entry.kind === "run" ? "run" : entry.kind === "devices" ? "several devices" : entry.num_traces + (entry.num_traces === 1 ? " trace" : " traces");
    open.appendChild(element("span", "about", more + " · " + when(entry.modified_s)));
    open.appendChild(element("span", "line", lines[entry.key] ? lines[entry.key].text : ""));
    open.addEventListener("click", function () { pick([entry.key]); });
    row.appendChild(box);
    row.appendChild(open);
    return row;
  }

  function draw() {
    var word = filter.value.trim().toLowerCase();
    list.replaceChildren.apply(list, entries.filter(function (entry) {
      return !word || entry.name.toLowerCase().indexOf(word) >= 0;
    }).map(item));
    mark();
    watch();
  }

  function mark() {
    Array.prototype.forEach.call(list.children, function (row) {
      var on = chosen !== null && chosen.indexOf(row.dataset.key) >= 0;
      row.classList.toggle("chosen", on);
      row.querySelector("button").setAttribute("aria-current", on ? "true" : "false");
    });
  }

  function buttons() {
    compare.disabled = checked.length < 2;
    compare.textContent = checked.length < 2 ? "Compare runs" : "Compare " + checked.length + " runs";
  }

  /* One line about each run that is in view, asked for in batches. Traces are read only when opened. */
  var wanted = [], timer = null;
  var seen = new IntersectionObserver(function (changes) {
    changes.forEach(function (change) {
      if (!change.isIntersecting) return;
      seen.unobserve(change.target);
      wanted.push(change.target.dataset.key);
    });
    if (wanted.length && timer === null) timer = window.setTimeout(fetchLines, 50);
  });

  function watch() {
    seen.disconnect();
    Array.prototype.forEach.call(list.children, function (row) {
      var entry = byKey(row.dataset.key), line = lines[entry.key];
      if (entry.kind !== "traces" && (!line || line.version !== entry.version)) seen.observe(row);
    });
  }

  function fetchLines() {
    var some = wanted.splice(0, BATCH);
    timer = wanted.length ? window.setTimeout(fetchLines, 50) : null;
    ask("lines?" + query(some)).then(function (text) {
      var texts = JSON.parse(text);
      Object.keys(texts).forEach(function (key) {
        var entry = byKey(key);
        lines[key] = { text: texts[key], version: entry ? entry.version : "" };
        Array.prototype.forEach.call(list.children, function (row) {
          if (row.dataset.key === key) row.querySelector(".line").textContent = texts[key];
        });
      });
    }).catch(function () { /* asked again with the next listing */ });
  }

  function byKey(key) {
    return entries.find(function (entry) { return entry.key === key; });
  }

  /* The user chose, the page did not. */
  function pick(keys) {
    before.chosen = keys;
    before.top = 0;
    choose(keys);
    remember();
  }

  function choose(keys) {
    chosen = keys;
    shown = "";
    mark();
    view.scrollTop = 0;
    view.replaceChildren(element("p", "wait", "Reading …"));
    load();
  }

  /* What is chosen, as it was when it was last written. */
  function versions() {
    return chosen.map(function (key) { var entry = byKey(key); return entry ? entry.version : "gone"; }).join();
  }

  function load() {
    var version = versions(), ticket = ++asking;
    var address = chosen.length > 1 ? "compare?" : "show?";
    ask(address + query(chosen)).then(function (text) {
      if (ticket !== asking) return;
      shown = version;
      put(text);
    }).catch(function (error) {
      if (ticket !== asking) return;
      shown = version;
      view.replaceChildren(element("p", "notice", error.message || "TensorBoard does not answer."));
    });
  }

  function put(html) {
    var top = view.scrollTop, open = [];
    view.querySelectorAll("details").forEach(function (node, at) { if (node.open) open.push(at); });
    view.innerHTML = html;
    view.querySelectorAll("details").forEach(function (node, at) {
      if (open.indexOf(at) >= 0) node.open = true;
    });
    var data = view.querySelector("script.data");
    if (data) charts(JSON.parse(data.textContent));
    BatchAdvisorTables.enhance(view);
    BatchAdvisorAnatomy.enhance(view);
    view.querySelectorAll("a.trace").forEach(link);
    view.scrollTop = top;
    if (before.top) { view.scrollTop = before.top; before.top = 0; }
  }

  function charts(byName) {
    var observer = new IntersectionObserver(function (figures) {
      figures.forEach(function (figure) {
        if (!figure.isIntersecting) return;
        observer.unobserve(figure.target);
        var chart = byName[figure.target.dataset.chart];
        if (!chart) return;
        figure.target.classList.add("on");
        try {
          BatchAdvisorCharts.draw(figure.target.querySelector(".live"), chart, figure.target.dataset.group);
        } catch (error) {
          figure.target.classList.remove("on");  // the drawing stays
          throw error;
        }
      });
    }, { rootMargin: "200px" });
    view.querySelectorAll("figure.chart").forEach(function (figure) { observer.observe(figure); });
  }

  /* The viewer opens a trace by its address; testing=1 only keeps it from asking for live reloads. */
  function link(anchor) {
    if (!viewer) return;
    var trace = new URL(anchor.getAttribute("href"), window.location.href);
    anchor.href = "viewer/index.html?testing=1#!/?url=" + encodeURIComponent(trace.href);
    anchor.target = "_blank";
    anchor.rel = "noopener";
    anchor.removeAttribute("download");
    anchor.textContent = "Open trace";
  }

  function refresh() {
    if (document.hidden || !document.documentElement.clientWidth) return Promise.resolve();
    return ask("entries").then(function (text) {
      var listing = JSON.parse(text), same = JSON.stringify(listing.entries) === JSON.stringify(entries);
      viewer = listing.viewer;
      say(listing.entries.length === 1 ? "1 entry" : listing.entries.length + " entries");
      if (!same) {
        entries = listing.entries;
        checked = checked.filter(byKey);
        draw();
        buttons();
      }
      if (!entries.length) {
        chosen = null;  // what comes again is shown again
        asking += 1;  // a page on its way is of an entry that has gone
        view.replaceChildren(element("p", "wait", "No run and no trace is in the log directory."));
      } else if (chosen === null || !chosen.every(byKey)) {
        var kept = chosen === null && before.chosen.length > 0 && before.chosen.every(byKey);
        if (!kept) before.top = 0;
        var run = entries.find(function (entry) { return entry.kind !== "traces"; }) || entries[0];
        choose(kept ? before.chosen : [run.key]);
      } else if (shown && shown !== versions()) {
        load();
      }
    }).catch(function () {
      say("TensorBoard does not answer.", "bad");
    });
  }

  function turn() {
    refresh().then(function () { window.setTimeout(turn, EVERY_MS); });
  }

  filter.addEventListener("input", draw);
  compare.addEventListener("click", function () { pick(checked.slice()); });
  window.addEventListener("pagehide", remember);
  document.addEventListener("visibilitychange", refresh);
  window.addEventListener("resize", function () { BatchAdvisorCharts.resize(); });
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", function () {
    BatchAdvisorCharts.redraw();
  });
  checked = before.checked.slice();
  filter.value = before.filter;
  theme();
  buttons();
  turn();
})();
