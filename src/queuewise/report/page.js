"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const config = { displaylogo: false, responsive: true, typesetMath: false, modeBarButtonsToRemove: ["lasso2d", "select2d"] };
  const dark = window.matchMedia("screen and (prefers-color-scheme: dark)");
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  // What depends on the theme and on the width. Black and dark blue lines would be hard to see on a dark page.
  const LIGHTER = { "#000000": "#ffffff", "#0072B2": "#4aa3e8" };
  function themed(layout) {
    const font = { family: 'system-ui, "Segoe UI", "DejaVu Sans", sans-serif', size: 12, color: colour("--ink") };
    const axis = { gridcolor: colour("--line"), linecolor: colour("--line") };
    return { ...layout, font, paper_bgcolor: colour("--card"), plot_bgcolor: colour("--card"), xaxis: { ...layout.xaxis, ...axis }, yaxis: { ...layout.yaxis, ...axis } };
  }

  function visibleOn(traces) {
    if (!dark.matches) return traces;
    const swap = (part) => part && LIGHTER[part.color] ? { ...part, color: LIGHTER[part.color] } : part;
    return traces.map((trace) => ({ ...trace, ...(trace.line && { line: swap(trace.line) }), ...(trace.marker && { marker: swap(trace.marker) }) }));
  }

  function drawCharts() {
    for (const chart of data.charts) {
      const legend = { orientation: "h", x: 0, y: window.innerWidth < 600 ? -0.3 : -0.22, yanchor: "top" };
      const layout = themed({ ...chart.layout, legend, margin: { l: 60, r: 16, t: 12, b: 48 }, hovermode: "closest" });
      const plot = document.getElementById(chart.key).querySelector(".plot");
      if (chart.data.length > 6) plot.style.height = "460px"; // space for a legend with several lines
      Plotly.react(plot, visibleOn(chart.data), layout, config);
    }
  }

  function markWideTables() {
    for (const wide of document.querySelectorAll(".wide")) wide.nextElementSibling.hidden = wide.scrollWidth <= wide.clientWidth;
  }

  // Gantt: the overview when zoomed out, a recomputed grid in between, single bars when zoomed in.
  const MAX_DRAWN = 4000;
  const PALETTE = ["#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#B8B800", "#7F7F7F"];
  const COLUMNS = 320;
  const ROWS = 128;

  function unpack(text, Type) {
    const raw = atob(text);
    const bytes = new Uint8Array(raw.length);
    for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
    return new Type(bytes.buffer);
  }

  function open(packed) {
    if (!packed.opened) {
      packed.opened = {
        lane: unpack(packed.bars.lane, Uint32Array), lanes: unpack(packed.bars.lanes, Uint16Array), job: unpack(packed.bars.job, Uint32Array),
        start: unpack(packed.bars.start, Float64Array), end: unpack(packed.bars.end, Float64Array),
        size: unpack(packed.jobs.size, Float32Array), firstWait: unpack(packed.jobs.first_wait, Float32Array),
        busy: unpack(packed.overview.busy, Uint8Array),
      };
    }
    return packed.opened;
  }

  // plotly reads labels as HTML with links
  function plain(text) {
    return text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
  }

  function unitOf(span) {
    for (const [name, seconds] of [["days", 86400], ["hours", 3600], ["minutes", 60]]) if (span >= 3 * seconds) return { name, seconds };
    return { name: "seconds", seconds: 1 };
  }

  // A grid of shares, painted on a canvas and laid under the axes as one image.
  function grid(rows, columns, view, unit, value) {
    const parse = (text) => [1, 3, 5].map((i) => parseInt(text.slice(i, i + 2), 16));
    const [idle, busy] = [parse(colour("--card")), parse(colour("--busy"))];
    const small = new OffscreenCanvas(columns, rows);
    const pixels = new ImageData(columns, rows);
    for (let r = 0; r < rows; r++) {
      for (let c = 0; c < columns; c++) {
        const share = value(r, c);
        for (let k = 0; k < 3; k++) pixels.data[4 * (r * columns + c) + k] = idle[k] + share * (busy[k] - idle[k]);
        pixels.data[4 * (r * columns + c) + 3] = 255;
      }
    }
    small.getContext("2d").putImageData(pixels, 0, 0);
    const large = document.createElement("canvas"); // enlarged without smoothing: browsers blur an image that is stretched
    large.width = columns * Math.max(1, Math.floor(1280 / columns));
    large.height = rows * Math.max(1, Math.floor(640 / rows));
    const paint = large.getContext("2d");
    paint.imageSmoothingEnabled = false;
    paint.drawImage(small, 0, 0, large.width, large.height);
    const image = { source: large.toDataURL(), xref: "x", yref: "y", x: view.t0 / unit.seconds, y: view.l0 - 0.5, sizex: (view.t1 - view.t0) / unit.seconds,
      sizey: view.l1 - view.l0, xanchor: "left", yanchor: "top", sizing: "stretch", layer: "above" };
    const corners = { type: "scatter", mode: "markers", marker: { opacity: 0 }, hoverinfo: "skip", showlegend: false,
      x: [view.t0 / unit.seconds, view.t1 / unit.seconds], y: [view.l0 - 0.5, view.l1 - 0.5] };
    return { traces: [corners], images: [image] };
  }

  function rebinned(bars, view, unit) {
    const rows = Math.max(1, Math.min(ROWS, Math.ceil(view.l1 - view.l0)));
    const busy = new Float64Array(rows * COLUMNS);
    const width = (view.t1 - view.t0) / COLUMNS;
    const height = (view.l1 - view.l0) / rows;
    const rowOf = (lane) => Math.min(rows - 1, Math.floor((lane - view.l0) / height));
    const lanesIn = new Float64Array(rows); // rows can differ in their number of lanes
    for (let lane = Math.max(0, Math.ceil(view.l0)); lane < view.l1; lane++) lanesIn[rowOf(lane)]++;
    for (let i = 0; i < bars.lane.length; i++) {
      if (bars.end[i] <= view.t0 || bars.start[i] >= view.t1) continue;
      const from = (Math.max(bars.start[i], view.t0) - view.t0) / width;
      const to = (Math.min(bars.end[i], view.t1) - view.t0) / width;
      for (let lane = bars.lane[i]; lane < bars.lane[i] + bars.lanes[i]; lane++) {
        if (lane < view.l0 || lane >= view.l1) continue;
        const row = rowOf(lane);
        for (let c = Math.floor(from); c < Math.min(Math.ceil(to), COLUMNS); c++) busy[row * COLUMNS + c] += Math.min(to, c + 1) - Math.max(from, c);
      }
    }
    return grid(rows, COLUMNS, view, unit, (r, c) => Math.min(1, busy[r * COLUMNS + c] / Math.max(1, lanesIn[r])));
  }

  function visible(bars, view) {
    const found = [];
    for (let i = 0; i < bars.lane.length; i++) {
      if (bars.end[i] > view.t0 && bars.start[i] < view.t1 && bars.lane[i] + bars.lanes[i] > view.l0 && bars.lane[i] < view.l1) {
        if (found.length === MAX_DRAWN) return null;
        found.push(i);
      }
    }
    return found;
  }

  function drawn(packed, bars, found, unit) {
    return [{
      type: "bar", orientation: "h", width: found.map((i) => bars.lanes[i] - 0.14), opacity: 0.85, showlegend: false,
      base: found.map((i) => bars.start[i] / unit.seconds), x: found.map((i) => (bars.end[i] - bars.start[i]) / unit.seconds), y: found.map((i) => bars.lane[i] + (bars.lanes[i] - 1) / 2),
      marker: { color: found.map((i) => PALETTE[bars.job[i] % PALETTE.length]), line: { width: 0.5, color: colour("--card") } },
      hovertext: found.map((i) => `job ${plain(packed.jobs.id[bars.job[i]])}<br>size ${bars.size[bars.job[i]]}<br>first started after ${Math.round(bars.firstWait[bars.job[i]])} s` +
        `<br>here ${Math.round(bars.end[i] - bars.start[i])} s<br>${plain(packed.lanes[bars.lane[i]])}`),
      hoverinfo: "text", textposition: "none",
    }];
  }

  function laneTicks(packed, view) {
    const step = Math.max(1, Math.ceil((view.l1 - view.l0) / 24));
    const tickvals = [];
    for (let lane = Math.ceil(Math.max(0, Math.floor(view.l0)) / step) * step; lane < Math.min(packed.lanes.length, view.l1); lane += step) tickvals.push(lane);
    return { tickvals, ticktext: tickvals.map((lane) => plain(packed.lanes[lane])) };
  }

  const figure = document.getElementById("gantt");
  const state = document.getElementById("gantt-state");
  const select = document.getElementById("gantt-policy");
  const plot = figure.querySelector(".plot");
  let current = null;
  let lastView = null;
  let timer = 0;

  function redraw(view) {
    const bars = open(current);
    const unit = unitOf(current.span);
    const whole = !view;
    view = view || { t0: 0, t1: current.span, l0: 0, l1: current.lanes.length };
    const found = visible(bars, view);
    const overview = current.overview;
    const shown = found ? { traces: drawn(current, bars, found, unit), images: [] }
      : whole ? grid(overview.rows, overview.columns, view, unit, (r, c) => bars.busy[r * overview.columns + c] / 255)
      : rebinned(bars, view, unit);
    state.textContent = found ? `${found.length.toLocaleString("en")} bars` : `${bars.lane.length.toLocaleString("en")} bars in total: zoom in to see them`;
    figure.dataset.detail = found ? "bars" : "grid";
    lastView = whole ? null : view;
    const layout = themed({
      margin: { l: 60, r: 16, t: 36, b: 48 }, bargap: 0, hovermode: "closest", images: shown.images,
      xaxis: { title: { text: `${unit.name} since the first submission` }, range: [view.t0 / unit.seconds, view.t1 / unit.seconds], zeroline: false },
      yaxis: { range: [view.l1 - 0.5, view.l0 - 0.5], automargin: true, zeroline: false, ...laneTicks(current, view) },
    });
    return Plotly.react(plot, shown.traces, layout, { ...config, doubleClick: false });
  }

  function zoomed() {
    const unit = unitOf(current.span);
    const [x0, x1] = plot.layout.xaxis.range;
    const [y0, y1] = plot.layout.yaxis.range;
    redraw({ t0: x0 * unit.seconds, t1: x1 * unit.seconds, l0: Math.min(y0, y1) + 0.5, l1: Math.max(y0, y1) + 0.5 });
  }

  if (data.gantts.length) {
    figure.hidden = false;
    data.gantts.forEach((packed, index) => select.add(new Option(packed.policy, String(index))));
    current = data.gantts[0];
    redraw(null);
    plot.on("plotly_relayout", (change) => {
      clearTimeout(timer);
      if (Object.keys(change).some((key) => key.endsWith("autorange"))) timer = setTimeout(() => redraw(null), 0);
      else if (Object.keys(change).some((key) => key.includes("axis.range"))) timer = setTimeout(zoomed, 30);
    });
    plot.on("plotly_doubleclick", () => redraw(null));
    select.addEventListener("change", () => { current = data.gantts[Number(select.value)]; redraw(null); });
  }
  drawCharts();
  markWideTables();
  window.addEventListener("resize", markWideTables);
  dark.addEventListener("change", () => { drawCharts(); if (current) redraw(lastView); });
  document.body.dataset.ready = "yes";
})();
