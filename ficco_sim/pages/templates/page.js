"use strict";

// tables: a click on a header sorts, a second one turns the order round
for (const table of document.querySelectorAll("table.sortable")) {
  const headers = [...table.tHead.rows[0].cells];
  headers.forEach((header, column) => {
    header.querySelector("button").addEventListener("click", () => {
      const down = header.getAttribute("aria-sort") === "ascending";
      headers.forEach((other) => other.removeAttribute("aria-sort"));
      header.setAttribute("aria-sort", down ? "descending" : "ascending");
      const rows = [...table.tBodies[0].rows];
      const numeric = rows.some((row) => row.cells[column].classList.contains("number"));
      const keys = new Map(rows.map((row) => {
        const key = row.cells[column].dataset.key;
        return [row, numeric ? (key === "inf" ? Infinity : Number(key)) : key];
      }));
      const order = (a, b) => (keys.get(a) < keys.get(b) ? -1 : keys.get(a) > keys.get(b) ? 1 : 0);
      rows.sort((a, b) => (down ? order(b, a) : order(a, b)));
      table.tBodies[0].append(...rows);
    });
  });
}

// figures whose marks have more to say: the nearest one to the pointer says it
for (const figure of document.querySelectorAll("figure")) {
  const marks = [...figure.querySelectorAll("[data-tip]")];
  const tip = figure.querySelector(".tip");
  if (!tip) { continue; }
  let pointed = null;
  const point = (event) => {
    let nearest = null, least = 18 ** 2;
    for (const mark of marks) {
      const box = mark.getBoundingClientRect();
      const far = ((box.left + box.right) / 2 - event.clientX) ** 2 + ((box.top + box.bottom) / 2 - event.clientY) ** 2;
      if (far < least) { least = far; nearest = mark; }
    }
    if (!nearest || nearest === pointed) { return; }
    if (pointed) { pointed.classList.remove("pointed"); }
    pointed = nearest;
    pointed.classList.add("pointed");
    tip.textContent = pointed.dataset.tip;
  };
  figure.addEventListener("pointermove", point);
  figure.addEventListener("pointerdown", point);
}

// the timeline: drawn anew on every change of what is seen
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const canvas = document.getElementById("timeline");
  if (!canvas || !data.timelines.length) { return; }
  const [LANE, KIND, START, END, BYTES, FLOP, LOST, ID, DEPS, WHAT] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9];
  const [CAUSE, DELAYED, LATEST] = [1, 4, 5];
  const pen = canvas.getContext("2d");
  const detail = document.getElementById("detail");
  const sameScale = document.getElementById("same-scale");
  const AXIS = 26, GAP = 8, LEFT = 46;
  let timeline, from, to, laneTops, height, width, chosen = null, dragged = null;

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const time = (us) => (us >= 1000 ? (us / 1000).toFixed(3) + " ms" : us.toFixed(2) + " us");
  const size = (n) => {
    for (const [unit, by] of [["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]]) {
      if (n >= by) { return (n / by).toFixed(1) + " " + unit; }
    }
    return n + " B";
  };
  const flop = (n) => (n >= 1e12 ? (n / 1e12).toFixed(2) + " TFLOP" : (n / 1e9).toFixed(2) + " GFLOP");
  const longest = () => (sameScale.checked
    ? Math.max(...data.timelines.map((other) => other.makespan)) : timeline.makespan) * 1.01 || 1;
  const x = (us) => LEFT + (us - from) / (to - from) * (width - LEFT);
  const at = (px) => from + (px - LEFT) / (width - LEFT) * (to - from);

  function choose(index) {
    timeline = data.timelines[index];
    const copies = timeline.lanes.filter((lane) => lane[1] !== "compute").length;
    const computes = timeline.lanes.length - copies;
    // all lanes within a screen where that leaves them visible
    const copyHeight = Math.max(3, Math.min(9, (620 - 22 * computes) / Math.max(copies, 1)));
    let top = AXIS, gpu = null;
    laneTops = timeline.lanes.map((lane) => {
      if (gpu !== null && lane[0] !== gpu) { top += GAP; }
      gpu = lane[0];
      const high = lane[1] === "compute" ? 22 : copyHeight;
      top += high;
      return [top - high, high];
    });
    height = top + 6;
    chosen = null;
    from = 0;
    to = longest();
    resize();
  }

  function resize() {
    const dense = window.devicePixelRatio || 1;
    width = canvas.parentElement.clientWidth;
    canvas.style.height = height + "px";
    canvas.width = Math.round(width * dense);
    canvas.height = Math.round(height * dense);
    pen.setTransform(dense, 0, 0, dense, 0, 0);
    draw();
  }

  function box(item) {
    const [top, high] = laneTops[item[LANE]];
    const inset = high > 6 ? 1 : 0.3;
    return [x(item[START]), top + inset, Math.max(x(item[END]) - x(item[START]), 0.6), high - 2 * inset];
  }

  function hatch(shade, host) {
    const tile = document.createElement("canvas");
    tile.width = tile.height = 6;
    const pen2 = tile.getContext("2d");
    pen2.fillStyle = shade;
    pen2.fillRect(0, 0, 6, 6);
    pen2.strokeStyle = pen2.fillStyle = "#555555";
    if (host) { pen2.fillRect(2, 2, 1.5, 1.5); }
    else { pen2.beginPath(); pen2.moveTo(-1, 7); pen2.lineTo(7, -1); pen2.stroke(); }
    return pen.createPattern(tile, "repeat");
  }

  function draw() {
    const ink = colour("--ink"), line = colour("--line");
    pen.clearRect(0, 0, width, height);
    pen.font = "11px system-ui, sans-serif";
    pen.textBaseline = "middle";
    const wanted = (to - from) / Math.max((width - LEFT) / 90, 2);
    const power = 10 ** Math.floor(Math.log10(wanted));
    const step = [1, 2, 5, 10].find((factor) => factor * power >= wanted) * power;
    const inMs = to > 2000, digits = Math.max(0, -Math.floor(Math.log10(step / (inMs ? 1000 : 1)) + 1e-9));
    pen.textAlign = "center";
    for (let tick = Math.ceil(from / step) * step; tick <= to; tick += step) {
      pen.fillStyle = line;
      pen.fillRect(x(tick), AXIS - 6, 1, height - AXIS);
      pen.fillStyle = ink;
      if (x(tick) < width - 20) { pen.fillText((tick / (inMs ? 1000 : 1)).toFixed(digits), x(tick), AXIS / 2); }
    }
    pen.textAlign = "left";
    pen.fillText(inMs ? "[ms]" : "[us]", 4, AXIS / 2);
    pen.save();
    pen.beginPath();
    pen.rect(LEFT, 0, width - LEFT, height);
    pen.clip();
    const seen = (item) => item[END] >= from && item[START] <= to;
    timeline.causes.forEach(([, shade], cause) => {
      pen.fillStyle = hatch(shade, cause > 0);
      for (const wait of timeline.waits) {
        if (wait[CAUSE] === cause && seen(wait)) { pen.fillRect(...box(wait)); }
      }
    });
    timeline.kinds.forEach(([, shade], kind) => {
      pen.fillStyle = shade;
      for (const task of timeline.tasks) {
        if (task[KIND] === kind && seen(task)) {
          const [left, top, wide, high] = box(task);
          pen.fillRect(left, top, wide > 3 ? wide - 0.7 : wide, high);
        }
      }
    });
    pen.fillStyle = ink;
    pen.fillRect(x(timeline.makespan), AXIS - 6, 1.5, height - AXIS);
    if (chosen) { drawChosen(ink); }
    pen.restore();
    pen.textAlign = "left";
    pen.fillStyle = ink;
    let gpu = null;
    timeline.lanes.forEach((lane, i) => {
      if (lane[0] !== gpu) { pen.fillText("gpu " + lane[0], 4, laneTops[i][0] + 11); }
      gpu = lane[0];
    });
  }

  // what the chosen one waited for is outlined and joined to it
  function drawChosen(ink) {
    const [left, top, wide, high] = box(chosen.item);
    pen.lineWidth = 2;
    pen.strokeStyle = ink;
    pen.strokeRect(left, top, wide, high);
    pen.lineWidth = 1;
    pen.strokeStyle = colour("--accent") || ink;
    for (const place of sources(chosen)) {
      const [l, t, w, h] = box(timeline.tasks[place]);
      pen.strokeStyle = "#D55E00";
      pen.strokeRect(l, t, w, h);
      pen.beginPath();
      pen.moveTo(l + w, t + h / 2);
      pen.lineTo(left, top + high / 2);
      pen.stroke();
    }
  }

  function sources({ wait, item }) {
    if (!wait) { return item[DEPS]; }
    return item[LATEST] >= 0 ? [item[LATEST]] : [];
  }

  function lane(item) {
    const [gpu, engine, index] = timeline.lanes[item[LANE]];
    return "gpu " + gpu + ", " + engine + " queue " + index;
  }

  function describe() {
    if (!chosen) { return; }
    const item = chosen.item;
    const span = time(item[START]) + " to " + time(item[END]) + " (" + time(item[END] - item[START]) + ")";
    if (chosen.wait) {
      const delayed = timeline.tasks[item[DELAYED]][ID];
      const last = item[LATEST] >= 0 ? timeline.tasks[item[LATEST]] : null;
      const cause = last ? "the transfer " + last[ID] + " (" + last[WHAT] + "), which ends at " + time(last[END])
        : "the host, which has not submitted it yet";
      detail.textContent = "Wait on " + lane(item) + ": " + span + "\n" + delayed + " waits for " + cause;
      return;
    }
    const amount = item[FLOP] ? flop(item[FLOP]) : size(item[BYTES]);
    const us = item[END] - item[START];
    const rate = us <= 0 ? "" : item[FLOP] ? ", " + (item[FLOP] / us / 1e6).toFixed(0) + " TFLOP/s"
      : ", " + (item[BYTES] / us / 1e3).toFixed(1) + " GB/s";
    const lost = item[LOST] > 0.005 ? "; " + time(item[LOST]) + " of it lost to contention" : "";
    const deps = item[DEPS].map((place) => timeline.tasks[place]).sort((a, b) => b[END] - a[END]);
    const waits = deps.length === 0 ? "waits for nothing but its queue" : "waits for " + deps.slice(0, 4)
      .map((dep) => dep[ID] + " (ends " + time(dep[END]) + ")").join(", ")
      + (deps.length > 4 ? " and " + (deps.length - 4) + " more that end earlier" : "");
    detail.textContent = timeline.kinds[item[KIND]][0] + " " + item[ID] + " on " + lane(item) + "\n" + span + lost
      + "\n" + amount + rate + "; " + item[WHAT] + "\n" + waits;
  }

  function find(px, py) {
    const us = at(px), slack = 1.5 / (width - LEFT) * (to - from);
    const row = laneTops.findIndex(([top, high]) => py >= top && py < top + high);
    const hit = (item) => item[LANE] === row && us >= item[START] - slack && us <= item[END] + slack;
    const task = timeline.tasks.find(hit);
    if (task) { return { wait: false, item: task }; }
    const wait = timeline.waits.find(hit);
    return wait ? { wait: true, item: wait } : null;
  }

  function show(found) {
    if (!found || (chosen && found.item === chosen.item)) { return; }
    chosen = found;
    describe();
    draw();
  }

  function zoom(factor, centre) {
    const span = Math.min(Math.max((to - from) * factor, 0.5), longest());
    const share = (centre - from) / (to - from);
    move(centre - share * span, span);
  }

  function move(start, span) {
    from = Math.max(0, Math.min(start, longest() - span));
    to = from + span;
    draw();
  }

  // arrow keys: along a queue, or to the task of another queue that runs at the same time
  function step(key) {
    const tasks = timeline.tasks;
    if (!chosen) { show({ wait: false, item: tasks[0] }); return; }
    const here = chosen.item, middle = (here[START] + here[END]) / 2;
    let row = here[LANE];
    if (key === "ArrowUp" || key === "ArrowDown") { row += key === "ArrowUp" ? -1 : 1; }
    const items = [...tasks.map((item) => ({ wait: false, item })),
      ...timeline.waits.map((item) => ({ wait: true, item }))]
      .filter(({ item }) => item[LANE] === row).sort((a, b) => a.item[START] - b.item[START]);
    if (!items.length) { return; }
    let next;
    if (row === here[LANE]) {
      next = items[items.findIndex(({ item }) => item === here) + (key === "ArrowLeft" ? -1 : 1)];
    } else {
      const far = ({ item }) => Math.max(item[START] - middle, middle - item[END], 0);
      next = items.reduce((best, other) => (far(other) < far(best) ? other : best));
    }
    show(next);
    if (next && (next.item[START] < from || next.item[END] > to)) {
      move((next.item[START] + next.item[END] - (to - from)) / 2, to - from);
    }
  }

  canvas.addEventListener("pointermove", (event) => {
    if (dragged && event.buttons) {
      move(dragged.from - (event.offsetX - dragged.x) / (width - LEFT) * (to - from), to - from);
    } else { show(find(event.offsetX, event.offsetY)); }
  });
  canvas.addEventListener("pointerdown", (event) => {
    dragged = { x: event.offsetX, from };
    show(find(event.offsetX, event.offsetY));
  });
  canvas.addEventListener("pointerup", () => { dragged = null; });
  canvas.addEventListener("pointerleave", () => { dragged = null; });
  canvas.addEventListener("wheel", (event) => {
    // without a key the wheel scrolls the page past a picture that is not in use
    if (document.activeElement !== canvas && !event.ctrlKey) { return; }
    event.preventDefault();
    zoom(event.deltaY > 0 ? 1.25 : 0.8, at(event.offsetX));
  }, { passive: false });
  canvas.addEventListener("keydown", (event) => {
    if (event.key.startsWith("Arrow")) { step(event.key); }
    else if (event.key === "+" || event.key === "=") { zoom(0.5, (from + to) / 2); }
    else if (event.key === "-") { zoom(2, (from + to) / 2); }
    else { return; }
    event.preventDefault();
  });
  const press = (id, act) => document.getElementById(id).addEventListener("click", act);
  press("zoom-in", () => zoom(0.5, (from + to) / 2));
  press("zoom-out", () => zoom(2, (from + to) / 2));
  press("pan-left", () => move(from - (to - from) / 3, to - from));
  press("pan-right", () => move(from + (to - from) / 3, to - from));
  press("whole", () => move(0, longest()));
  document.getElementById("which").addEventListener("change", (event) => choose(Number(event.target.value)));
  sameScale.addEventListener("change", () => move(0, longest()));
  window.addEventListener("resize", resize);
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);

  const legend = document.getElementById("legend");
  const entry = (words, shade, pattern) => {
    const item = document.createElement("li"), mark = document.createElement("i");
    mark.style.background = pattern ? "repeating-linear-gradient(135deg, #555 0 1px, " + shade + " 1px 5px)" : shade;
    item.append(mark, words);
    legend.append(item);
  };
  data.timelines[0].kinds.forEach(([words, shade]) => entry(words, shade, false));
  data.timelines[0].causes.forEach(([words, shade]) => entry(words, shade, true));
  if (data.timelines.some((other) => other.hidden_gpus)) { entry("more gpus than drawn", "transparent", false); }
  choose(0);
})();
