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

// the timeline: gpus are unpacked when they are first looked at, and drawn anew on every change
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const canvas = document.getElementById("timeline");
  if (!canvas || !data.timelines.length) { return; }
  const pen = canvas.getContext("2d");
  const detail = document.getElementById("detail"), overview = document.getElementById("overview");
  const sameScale = document.getElementById("same-scale"), course = document.getElementById("course");
  const which = document.getElementById("which"), first = document.getElementById("gpu");
  const second = document.getElementById("beside");
  const AXIS = 26, GAP = 8, LEFT = 46, MAX_LANES = 100, ALL = "all", NONE = "none", ROW = 6;
  let timeline, view, from, to, height, width, chosen = null, dragged = null, turn = 0;

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

  async function unpack(pack) {
    const bytes = Uint8Array.from(atob(pack), (letter) => letter.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    return new Response(stream).json();
  }

  // names in a pack count gpus from its own: "xfer.g+0.s+1" is "xfer.g5.s6" on gpu 5
  function read(columns, gpu, count) {
    const absolute = (name) => name.replace(/\b([gs]|gpu )\+(\d+)/g,
      (_, letter, number) => letter + (Number(number) + gpu) % count);
    const place = (dep) => (dep === null ? null
      : Array.isArray(dep) ? [(gpu + dep[0]) % count, dep[1]] : [gpu, dep]);
    const words = columns.words.map(absolute);
    let now = 0;
    const tasks = columns.lane.map((lane, i) => {
      now += columns.start[i];
      return {
        gpu, lane, kind: columns.kind[i], start: now / 1000, end: (now + columns.time[i]) / 1000,
        bytes: columns.bytes[i], flop: columns.flop[i], lost: columns.lost[i] / 1000,
        id: absolute(columns.id[i]), deps: columns.deps[i].map(place), what: words[columns.what[i]],
      };
    });
    const waits = columns.waits.map(([lane, cause, start, end, delayed, last]) => (
      { gpu, lane, cause, wait: true, start: start / 1000, end: end / 1000, delayed, last: place(last) }));
    return { lanes: columns.lanes, tasks, waits };
  }

  // a gpu of the timeline, or null if it did not fit into the page
  async function load(run, gpu) {
    run.read ??= new Map();
    if (!run.read.has(gpu) && run.gpus[gpu] >= 0) {
      const columns = await unpack(run.packs[run.gpus[gpu]]);
      run.read.set(gpu, read(columns, gpu, run.gpus.length));
    }
    return run.read.get(gpu) ?? null;
  }

  const option = (value, words) => {
    const item = document.createElement("option");
    item.value = value;
    item.textContent = words;
    return item;
  };
  const all = () => timeline.num_queues * timeline.gpus.length <= MAX_LANES && !timeline.gpus.includes(-1);
  const wanted = () => (first.value === ALL ? timeline.gpus.map((_, gpu) => gpu)
    : [...new Set([first.value, second.value])].filter((value) => value !== NONE).map(Number));

  function choose(index) {
    const before = [first.value, second.value];
    timeline = data.timelines[index];
    const inside = timeline.gpus.map((pack, gpu) => [pack, gpu]).filter(([pack]) => pack >= 0);
    const gpus = () => inside.map(([, gpu]) => option(gpu, "gpu " + gpu));
    first.replaceChildren(...(all() ? [option(ALL, "all gpus")] : []), ...gpus());
    second.replaceChildren(option(NONE, "none"), ...gpus());
    const kept = (select, value, other) => {
      const there = [...select.options].some((item) => item.value === value);
      select.value = there && (value !== ALL || all()) ? value : other;
    };
    kept(first, before[0], all() ? ALL : String(timeline.last));
    kept(second, before[1], NONE);
    const kinds = timeline.packs.length, missing = timeline.gpus.length - inside.length;
    course.textContent = timeline.gpus.length === 1 ? "" : (kinds === 1 && !missing
      ? "All " + timeline.gpus.length + " gpus run the same, but for which peer is which."
      : missing ? missing + " of " + timeline.gpus.length + " gpus did not fit into this page; those that end last are here."
        : kinds === timeline.gpus.length ? "Every gpu runs differently; gpu " + timeline.last + " ends last."
          : kinds + " courses among " + timeline.gpus.length + " gpus; gpu " + timeline.last + " ends last.");
    overview.hidden = all() || (kinds === 1 && !missing);
    if (!overview.hidden) { course.textContent += " A row per gpu, the darker the more of the time a GEMM runs; a click chooses the gpu."; }
    return showGpus(true);
  }

  async function showGpus(whole) {
    turn += 1;
    const mine = turn, run = timeline, gpus = wanted();
    let found;
    try {
      found = await Promise.all(gpus.map((gpu) => load(run, gpu)));
    } catch (error) {
      detail.textContent = "This browser cannot unpack the timelines: " + error.message;
      return;
    }
    if (mine !== turn) { return; }
    second.disabled = first.value === ALL;
    view = { tasks: found.flatMap((gpu) => gpu.tasks), waits: found.flatMap((gpu) => gpu.waits), lanes: [], tops: new Map() };
    found.forEach((gpu, i) => gpu.lanes.forEach(([engine, index], lane) => view.lanes.push({ gpu: gpus[i], lane, engine, index })));
    const copies = view.lanes.filter((lane) => lane.engine !== "compute").length;
    // all lanes within a screen where that leaves them visible
    const copyHeight = Math.max(3, Math.min(9, (620 - 22 * (view.lanes.length - copies)) / Math.max(copies, 1)));
    let top = AXIS, gpu = null;
    for (const lane of view.lanes) {
      if (gpu !== null && lane.gpu !== gpu) { top += GAP; }
      gpu = lane.gpu;
      lane.top = top;
      lane.high = lane.engine === "compute" ? 22 : copyHeight;
      top += lane.high;
      view.tops.set(lane.gpu + ":" + lane.lane, lane);
    }
    height = top + 6;
    chosen = null;
    if (whole) {
      from = 0;
      to = longest();
    }
    resize();
    canvas.dataset.shown = which.value + ":" + gpus.join(",");
  }

  function resize() {
    const dense = window.devicePixelRatio || 1;
    width = canvas.parentElement.clientWidth;
    canvas.style.height = height + "px";
    canvas.width = Math.round(width * dense);
    canvas.height = Math.round(height * dense);
    pen.setTransform(dense, 0, 0, dense, 0, 0);
    draw();
    drawOverview(dense);
  }

  // a row per gpu, the darker the more of the time a GEMM runs
  function drawOverview(dense) {
    if (overview.hidden) { return; }
    const high = ROW * timeline.gpus.length;
    overview.style.height = high + "px";
    overview.width = Math.round(width * dense);
    overview.height = Math.round(high * dense);
    const thin = overview.getContext("2d"), gpus = wanted();
    thin.setTransform(dense, 0, 0, dense, 0, 0);
    thin.font = "9px system-ui, sans-serif";
    thin.textBaseline = "middle";
    timeline.gpus.forEach((pack, gpu) => {
      if (pack >= 0) {
        const bins = timeline.busy[pack], wide = (width - LEFT) / bins.length;
        for (let i = 0; i < bins.length; i += 1) {
          thin.fillStyle = timeline.kinds[0][1];
          thin.globalAlpha = 0.06 + 0.94 * Number(bins[i]) / 9;
          thin.fillRect(LEFT + i * wide, gpu * ROW + 0.5, wide + 0.3, ROW - 1);
        }
      }
      thin.globalAlpha = 1;
      thin.fillStyle = gpus.includes(gpu) ? "#D55E00" : colour("--ink");
      if (gpus.includes(gpu)) { thin.fillRect(LEFT - 5, gpu * ROW, 4, ROW); }
      if (gpu % 8 === 0 || gpus.includes(gpu)) { thin.fillText((gpus.includes(gpu) ? "\u25B6 " : "") + gpu, 4, gpu * ROW + ROW / 2); }
    });
  }

  function box(item) {
    const { top, high } = view.tops.get(item.gpu + ":" + item.lane);
    const inset = high > 6 ? 1 : 0.3;
    return [x(item.start), top + inset, Math.max(x(item.end) - x(item.start), 0.6), high - 2 * inset];
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
    const least = (to - from) / Math.max((width - LEFT) / 90, 2);
    const power = 10 ** Math.floor(Math.log10(least));
    const step = [1, 2, 5, 10].find((factor) => factor * power >= least) * power;
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
    const seen = (item) => item.end >= from && item.start <= to;
    timeline.causes.forEach(([, shade], cause) => {
      pen.fillStyle = hatch(shade, cause > 0);
      for (const wait of view.waits) {
        if (wait.cause === cause && seen(wait)) { pen.fillRect(...box(wait)); }
      }
    });
    timeline.kinds.forEach(([, shade], kind) => {
      pen.fillStyle = shade;
      for (const task of view.tasks) {
        if (task.kind === kind && seen(task)) {
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
    for (const lane of view.lanes) {
      if (lane.gpu !== gpu) { pen.fillText("gpu " + lane.gpu, 4, lane.top + 11); }
      gpu = lane.gpu;
    }
  }

  // what the chosen one waited for is outlined and joined to it
  function drawChosen(ink) {
    const [left, top, wide, high] = box(chosen);
    pen.lineWidth = 2;
    pen.strokeStyle = ink;
    pen.strokeRect(left, top, wide, high);
    pen.lineWidth = 1;
    for (const source of sources(chosen).map(task)) {
      if (!source || !view.tops.has(source.gpu + ":" + source.lane)) { continue; }
      const [l, t, w, h] = box(source);
      pen.strokeStyle = "#D55E00";
      pen.strokeRect(l, t, w, h);
      pen.beginPath();
      pen.moveTo(l + w, t + h / 2);
      pen.lineTo(left, top + high / 2);
      pen.stroke();
    }
  }

  const sources = (item) => (!item.wait ? item.deps : item.last ? [item.last] : []);

  // a task by its gpu and place; of a gpu that is not unpacked yet nothing, and what is shown again once it is
  function task([gpu, place]) {
    const there = timeline.read.get(gpu);
    if (!there && timeline.gpus[gpu] >= 0) {
      const asked = chosen;
      load(timeline, gpu).then(() => { if (chosen === asked) { describe(); } });
    }
    return there ? there.tasks[place] : null;
  }

  function lane(item) {
    const { gpu, engine, index } = view.tops.get(item.gpu + ":" + item.lane);
    return "gpu " + gpu + ", " + engine + " queue " + index;
  }

  function describe() {
    if (!chosen) { return; }
    const item = chosen;
    const span = time(item.start) + " to " + time(item.end) + " (" + time(item.end - item.start) + ")";
    if (item.wait) {
      const last = item.last ? task(item.last) : null;
      const cause = last ? "the transfer " + last.id + " (" + last.what + "), which ends at " + time(last.end)
        : item.last ? "a transfer on gpu " + item.last[0] : "the host, which has not submitted it yet";
      detail.textContent = "Wait on " + lane(item) + ": " + span + "\n" + task([item.gpu, item.delayed]).id
        + " waits for " + cause;
      return;
    }
    const amount = item.flop ? flop(item.flop) : size(item.bytes);
    const us = item.end - item.start;
    const rate = us <= 0 ? "" : item.flop ? ", " + (item.flop / us / 1e6).toFixed(0) + " TFLOP/s"
      : ", " + (item.bytes / us / 1e3).toFixed(1) + " GB/s";
    const lost = item.lost > 0.005 ? "; " + time(item.lost) + " of it lost to contention" : "";
    const deps = item.deps.map(task).filter((dep) => dep).sort((a, b) => b.end - a.end);
    const others = item.deps.length - deps.length;
    const more = deps.length - 4 > 0 ? " and " + (deps.length - 4) + " more that end earlier" : "";
    const waits = item.deps.length === 0 ? "waits for nothing but its queue" : "waits for " + deps.slice(0, 4)
      .map((dep) => dep.id + " (ends " + time(dep.end) + ")").join(", ") + more
      + (others ? (deps.length ? " and " : "") + others + " on gpus that are not here" : "");
    detail.textContent = timeline.kinds[item.kind][0] + " " + item.id + " on " + lane(item) + "\n" + span + lost
      + "\n" + amount + rate + "; " + item.what + "\n" + waits;
  }

  function find(px, py) {
    const us = at(px), slack = 1.5 / (width - LEFT) * (to - from);
    const row = view.lanes.find(({ top, high }) => py >= top && py < top + high);
    const hit = (item) => row && item.lane === row.lane && item.gpu === row.gpu
      && us >= item.start - slack && us <= item.end + slack;
    return view.tasks.find(hit) ?? view.waits.find(hit) ?? null;
  }

  function show(found) {
    if (!found || found === chosen) { return; }
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
    if (!chosen) { show(view.tasks[0]); return; }
    const middle = (chosen.start + chosen.end) / 2;
    let row = view.lanes.findIndex((other) => other.gpu === chosen.gpu && other.lane === chosen.lane);
    if (key === "ArrowUp" || key === "ArrowDown") { row += key === "ArrowUp" ? -1 : 1; }
    const there = view.lanes[row];
    if (!there) { return; }
    const items = [...view.tasks, ...view.waits].filter((item) => item.gpu === there.gpu && item.lane === there.lane)
      .sort((a, b) => a.start - b.start);
    if (!items.length) { return; }
    let next;
    if (key === "ArrowLeft" || key === "ArrowRight") {
      next = items[items.indexOf(chosen) + (key === "ArrowLeft" ? -1 : 1)];
    } else {
      const far = (item) => Math.max(item.start - middle, middle - item.end, 0);
      next = items.reduce((best, other) => (far(other) < far(best) ? other : best));
    }
    show(next);
    if (next && (next.start < from || next.end > to)) {
      move((next.start + next.end - (to - from)) / 2, to - from);
    }
  }

  canvas.addEventListener("pointermove", (event) => {
    if (!view) { return; }
    if (dragged && event.buttons) {
      move(dragged.from - (event.offsetX - dragged.x) / (width - LEFT) * (to - from), to - from);
    } else { show(find(event.offsetX, event.offsetY)); }
  });
  canvas.addEventListener("pointerdown", (event) => {
    if (!view) { return; }
    dragged = { x: event.offsetX, from };
    show(find(event.offsetX, event.offsetY));
  });
  canvas.addEventListener("pointerup", () => { dragged = null; });
  canvas.addEventListener("pointerleave", () => { dragged = null; });
  canvas.addEventListener("wheel", (event) => {
    // without a key the wheel scrolls the page past a picture that is not in use
    if (!view || (document.activeElement !== canvas && !event.ctrlKey)) { return; }
    event.preventDefault();
    zoom(event.deltaY > 0 ? 1.25 : 0.8, at(event.offsetX));
  }, { passive: false });
  canvas.addEventListener("keydown", (event) => {
    if (!view) { return; }
    if (event.key.startsWith("Arrow")) { step(event.key); }
    else if (event.key === "+" || event.key === "=") { zoom(0.5, (from + to) / 2); }
    else if (event.key === "-") { zoom(2, (from + to) / 2); }
    else { return; }
    event.preventDefault();
  });
  overview.addEventListener("click", (event) => {
    const gpu = Math.floor(event.offsetY / ROW);
    if (timeline.gpus[gpu] >= 0) {
      first.value = String(gpu);
      showGpus(false);
    }
  });
  const press = (id, act) => document.getElementById(id).addEventListener("click", () => { if (view) { act(); } });
  press("zoom-in", () => zoom(0.5, (from + to) / 2));
  press("zoom-out", () => zoom(2, (from + to) / 2));
  press("pan-left", () => move(from - (to - from) / 3, to - from));
  press("pan-right", () => move(from + (to - from) / 3, to - from));
  press("whole", () => move(0, longest()));
  which.addEventListener("change", () => choose(Number(which.value)));
  first.addEventListener("change", () => showGpus(false));
  second.addEventListener("change", () => showGpus(false));
  sameScale.addEventListener("change", () => { if (view) { move(0, longest()); } });
  window.addEventListener("resize", () => { if (view) { resize(); } });
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { if (view) { resize(); } });

  const legend = document.getElementById("legend");
  const entry = (words, shade, pattern) => {
    const item = document.createElement("li"), mark = document.createElement("i");
    mark.style.background = pattern ? "repeating-linear-gradient(135deg, #555 0 1px, " + shade + " 1px 5px)" : shade;
    item.append(mark, words);
    legend.append(item);
  };
  data.timelines[0].kinds.forEach(([words, shade]) => entry(words, shade, false));
  data.timelines[0].causes.forEach(([words, shade]) => entry(words, shade, true));
  choose(0);
})();
