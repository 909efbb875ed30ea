/* Sorts and filters the long tables of a page, zooms and searches its flame graphs. What cells sort by stands in their data-key; cells
   without one sort as text, and cells that say nothing come last. */
"use strict";
var BatchAdvisorTables = (function () {
  function key(row, column) {
    var cell = row.cells[column];
    if (cell.dataset.key !== undefined) return Number(cell.dataset.key);
    var text = cell.textContent.trim();
    return text === "-" ? null : text.toLowerCase();
  }

  function compare(a, b) {
    if (typeof a === typeof b) return typeof a === "number" ? a - b : a.localeCompare(b);
    return typeof a === "number" ? -1 : 1;
  }

  function sort(table, column, way) {
    var body = table.tBodies[0], rows = Array.prototype.slice.call(body.rows);
    var keyed = rows.map(function (row, at) { return { row: row, key: key(row, column), at: at }; });
    keyed.sort(function (a, b) {
      if (a.key === null || b.key === null) return (a.key === null) - (b.key === null) || a.at - b.at;
      return way * compare(a.key, b.key) || a.at - b.at;
    });
    keyed.forEach(function (item) { body.appendChild(item.row); });
  }

  function headers(table) {
    var heads = Array.prototype.slice.call(table.tHead.rows[0].cells);
    heads.forEach(function (head, column) {
      var button = document.createElement("button");
      button.type = "button";
      while (head.firstChild) button.appendChild(head.firstChild);
      head.appendChild(button);
      button.addEventListener("click", function () {
        var numbers = Array.prototype.some.call(table.tBodies[0].rows, function (row) {
          return row.cells[column].dataset.key !== undefined;
        });
        var before = head.getAttribute("aria-sort");
        var down = before ? before === "ascending" : numbers;
        heads.forEach(function (other) { other.removeAttribute("aria-sort"); });
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        sort(table, column, down ? -1 : 1);
      });
    });
  }

  function filter(holder, table) {
    var rows = Array.prototype.slice.call(table.tBodies[0].rows);
    if (rows.length < 8) return;
    var box = document.createElement("div"), input = document.createElement("input");
    var count = document.createElement("span");
    box.className = "find";
    count.className = "dim";
    count.setAttribute("role", "status");
    input.type = "search";
    input.placeholder = "Filter rows";
    input.setAttribute("aria-label", "filter rows of " + table.caption.textContent);
    var show = function () {
      var words = input.value.toLowerCase().split(/\s+/).filter(Boolean), left = 0;
      rows.forEach(function (row) {
        var text = row.textContent.toLowerCase();
        row.hidden = !words.every(function (word) { return text.indexOf(word) >= 0; });
        if (!row.hidden) left += 1;
      });
      count.textContent = words.length ? left + " of " + rows.length + " rows" : rows.length + " rows";
    };
    input.addEventListener("input", show);
    box.appendChild(input);
    box.appendChild(count);
    holder.insertBefore(box, holder.firstChild);
    show();
  }

  /* A click on a block makes it as wide as the picture; what is around it stays above it. */
  function flame(figure) {
    var svg = figure.querySelector("svg"), whole = svg.viewBox.baseVal.width, space = 6.4;
    var row = Number(figure.dataset.row);
    var boxes = Array.prototype.slice.call(svg.querySelectorAll("rect")).map(function (rect) {
      var title = rect.querySelector("title").textContent;
      return { rect: rect, x: Number(rect.getAttribute("x")), y: Number(rect.getAttribute("y")),
        width: Number(rect.getAttribute("width")), title: title, name: title.replace(/: [^:]*$/, "") };
    });
    svg.querySelectorAll("text").forEach(function (text) { text.remove(); });
    boxes.forEach(function (box) {
      box.text = document.createElementNS("http://www.w3.org/2000/svg", "text");
      box.text.setAttribute("y", box.y + row - 5);
      svg.appendChild(box.text);
    });

    function short(name, room) {
      if (name.length <= room) return name;
      var file = name.lastIndexOf("/");
      if (file >= 0 && name.indexOf(".py(") > file) return short(name.slice(file + 1), room);
      return name.slice(0, room - 1) + "…";
    }

    function draw(chosen) {
      var left = chosen ? chosen.x : 0, scale = whole / (chosen ? chosen.width : whole);
      boxes.forEach(function (box) {
        var around = chosen && box.y < chosen.y && box.x <= chosen.x + 0.6 &&
          box.x + box.width >= chosen.x + chosen.width - 0.6;
        var x = around ? 0 : (box.x - left) * scale, width = around ? whole : box.width * scale;
        var seen = x + width > 0.5 && x < whole - 0.5 && (around || !chosen || box.y >= chosen.y);
        var at = Math.max(x, 0), end = Math.min(x + width, whole), room = Math.floor((end - at - 4) / space);
        box.rect.setAttribute("visibility", seen ? "visible" : "hidden");
        box.text.setAttribute("visibility", seen && room >= 3 ? "visible" : "hidden");
        box.rect.setAttribute("x", at);
        box.rect.setAttribute("width", Math.max(end - at, 0.5));
        box.text.setAttribute("x", at + 2);
        box.text.textContent = room >= 3 ? short(box.name, room) : "";
      });
      reset.disabled = !chosen;
    }

    /* The share of what matches; a match inside another counts once. */
    function search() {
      var word = input.value.trim().toLowerCase(), found = [], sum = 0;
      boxes.forEach(function (box) {
        var hit = word && box.name.toLowerCase().indexOf(word) >= 0;
        box.rect.classList.toggle("faded", Boolean(word) && !hit);
        if (!hit) return;
        var inside = found.some(function (other) {
          return box.x >= other.x - 0.6 && box.x + box.width <= other.x + other.width + 0.6;
        });
        if (!inside) { sum += box.width + 0.5; found.push(box); }
      });
      count.textContent = word ? "in " + Math.min(100, 100 * sum / whole).toFixed(1) + "% of the time" : "";
    }

    var find = document.createElement("div"), input = document.createElement("input");
    var reset = document.createElement("button"), count = document.createElement("span");
    find.className = "find";
    input.type = "search";
    input.placeholder = "Find a frame";
    input.setAttribute("aria-label", "find a frame");
    reset.type = "button";
    reset.textContent = "Show all";
    count.className = "dim";
    count.setAttribute("role", "status");
    [input, reset, count].forEach(function (node) { find.appendChild(node); });
    figure.insertBefore(find, figure.querySelector(".scroll"));
    input.addEventListener("input", search);
    reset.addEventListener("click", function () { draw(null); });
    boxes.forEach(function (box) {
      box.rect.addEventListener("click", function () { draw(box); });
    });
    draw(null);
  }

  function enhance(root) {
    root.querySelectorAll("figure.flame").forEach(flame);
    root.querySelectorAll(".long table.sortable").forEach(function (table) {
      headers(table);
      filter(table.closest(".long"), table);
    });
  }

  return { enhance: enhance };
})();
