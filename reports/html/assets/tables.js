/* Sorts and filters the long tables of a page. What cells sort by stands in their data-key; cells
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

  function enhance(root) {
    root.querySelectorAll(".long table.sortable").forEach(function (table) {
      headers(table);
      filter(table.closest(".long"), table);
    });
  }

  return { enhance: enhance };
})();
