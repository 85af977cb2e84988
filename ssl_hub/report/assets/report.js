"use strict";
(() => {
  const root = document.documentElement;
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const dataOf = (holder) => JSON.parse(holder.querySelector(":scope > script").textContent);
  const color = (name) => getComputedStyle(root).getPropertyValue(name).trim();
  const make = (name, text, className) => {
    const made = document.createElement(name);
    if (text !== undefined) made.textContent = text;
    if (className) made.className = className;
    return made;
  };
  const painters = []; // everything on a canvas is painted again when the theme changes
  const hiddenRuns = new Set();

  const system = matchMedia("(prefers-color-scheme: dark)");
  const setTheme = (dark) => {
    root.dataset.theme = dark ? "dark" : "light";
    painters.forEach((paint) => paint());
  };
  root.dataset.theme = system.matches ? "dark" : "light";
  system.addEventListener("change", (event) => setTheme(event.matches));
  document.getElementById("theme").addEventListener("click", () => setTheme(root.dataset.theme !== "dark"));

  const readable = (value) => {
    if (value === null || value === undefined) return "–";
    const size = Math.abs(value);
    if (size !== 0 && (size < 1e-3 || size >= 1e6)) return value.toExponential(2);
    return String(Number(value.toPrecision(4)));
  };

  /* The place nearest to `index` where a series has a value: runs are logged at different steps. */
  const nearestKnown = (values, index) => {
    for (let reach = 0; reach < values.length; reach++) {
      if (values[index - reach] != null) return index - reach;
      if (values[index + reach] != null) return index + reach;
    }
    return null;
  };

  const drawChart = (figure) => {
    const spec = dataOf(figure);
    const plot = figure.querySelector(".plot");
    const readout = figure.querySelector(".readout");
    const ramp = (place) => {
      const share = spec.series.length > 1 ? place / (spec.series.length - 1) : 1;
      return `hsl(${250 - 225 * share} ${root.dataset.theme === "dark" ? "75% 66%" : "65% 44%"})`;
    };
    const strokeOf = (series, place) => (spec.ramp ? ramp(place) : color(`--run-${series.run % 8}`));
    const joined = uPlot.join(spec.series.map((series) => [series.x, series.y]));

    const tell = (chart) => {
      const hovered = chart && chart.cursor.idx != null && chart.cursor.left >= 0;
      const focused = chart ? chart.series.findIndex((series, i) => i > 0 && series._focus) : -1;
      readout.replaceChildren();
      const x = hovered ? chart.data[0][chart.cursor.idx] : joined[0].at(-1);
      readout.append(make("span", `${spec.x} ${readable(x)}`));
      spec.series.forEach((series, place) => {
        if (series.run !== undefined && hiddenRuns.has(series.run)) return;
        if (spec.ramp && place !== (hovered && focused > 0 ? focused - 1 : spec.series.length - 1)) return;
        const values = joined[place + 1];
        const index = nearestKnown(values, hovered ? chart.cursor.idx : values.length - 1);
        const entry = make("span");
        const swatch = make("i", "", "swatch");
        swatch.style.background = strokeOf(series, place);
        entry.append(swatch);
        if (spec.ramp || spec.series.length > 1) entry.append(series.label + " ");
        entry.append(make("b", readable(index === null ? null : values[index]) + (spec.unit ? ` ${spec.unit}` : "")));
        readout.append(entry);
      });
    };

    const markLines = (chart) => {
      const context = chart.ctx;
      const ratio = devicePixelRatio;
      for (const value of spec.lines) {
        const y = Math.round(chart.valToPos(value, "y", true));
        context.save();
        context.strokeStyle = color("--bad");
        context.lineWidth = ratio;
        context.setLineDash([5 * ratio, 4 * ratio]);
        context.beginPath();
        context.moveTo(chart.bbox.left, y);
        context.lineTo(chart.bbox.left + chart.bbox.width, y);
        context.stroke();
        context.restore();
      }
    };

    const range = (chart, low, high) => {
      const values = [low, high, ...(spec.span || []), ...spec.lines].filter((value) => value != null);
      if (!values.length) return [0, 1];
      if (spec.log) return [Math.min(...values) / 1.5, Math.max(...values) * 1.5];
      low = Math.min(...values);
      high = Math.max(...values);
      const margin = (high - low || Math.abs(high) || 1) * 0.08;
      const floor = low >= 0 && low - margin < 0 ? 0 : low - margin;
      return [low >= 0 && low < high * 0.4 ? 0 : floor, high + margin];
    };

    const powersOfTen = (_, __, low, high) => {
      const powers = [];
      for (let power = Math.ceil(Math.log10(low)); power <= Math.log10(high); power++) powers.push(10 ** power);
      return powers;
    };

    let chart = null;
    const paint = () => {
      if (chart) chart.destroy();
      const font = `11px ${getComputedStyle(document.body).fontFamily}`;
      const axis = { stroke: color("--soft"), font, grid: { stroke: color("--line"), width: 1 }, ticks: { show: false } };
      const options = {
        width: Math.max(plot.clientWidth, 120),
        height: 210,
        legend: { show: false },
        padding: [8, 12, 0, 0],
        scales: { x: { time: false, range: [0, spec.end] }, y: { range, distr: spec.log ? 3 : 1 } },
        axes: [
          { ...axis, size: 26, gap: 4, grid: { show: false } },
          { ...axis, ...(spec.log ? { splits: powersOfTen, filter: (_, ticks) => ticks } : {}), size: 54, gap: 6, values: (_, ticks) => ticks.map((tick) => (tick === null ? "" : readable(tick))) },
        ],
        focus: { alpha: spec.ramp ? 0.25 : 0.45 },
        cursor: {
          focus: { prox: spec.ramp ? 40 : 20 },
          points: { size: 6 },
          drag: { x: true, y: false },
          dataIdx: (u, place, index) => (place === 0 ? index : nearestKnown(u.data[place], index)),
        },
        series: [
          {},
          ...spec.series.map((series, place) => ({
            label: series.label,
            stroke: strokeOf(series, place),
            width: spec.ramp ? 1 : 1.6,
            spanGaps: true,
            show: !(series.run !== undefined && hiddenRuns.has(series.run)),
            points: { show: spec.dots || series.x.length < 3, size: 5, fill: strokeOf(series, place) },
          })),
        ],
        hooks: { draw: [markLines], setCursor: [tell], setSeries: [tell] },
      };
      chart = new uPlot(options, joined, plot);
      tell(null);
    };
    paint();
    painters.push(paint);
    new ResizeObserver(() => {
      if (plot.clientWidth && plot.clientWidth !== chart.width) chart.setSize({ width: plot.clientWidth, height: 210 });
    }).observe(plot);
  };

  const drawMap = (holder) => {
    const spec = dataOf(holder);
    const canvas = holder.querySelector("canvas");
    const tip = holder.querySelector(".tip");
    const sprite = holder.querySelector(".sprite-sheet");
    const shown = new Set([-1, ...spec.classes.keys()]);
    let points = Object.values(spec.maps)[0];
    let placed = [];
    const colorOf = (label) => {
      if (label < 0) return color(spec.classes.length ? "--faint" : "--accent");
      if (spec.classes.length <= 10) return color(`--class-${label}`);
      return `hsl(${(137.508 * label) % 360} 60% ${(root.dataset.theme === "dark" ? 66 : 46) + (label % 2 ? 6 : -4)}%)`;
    };
    const paint = () => {
      const ratio = devicePixelRatio;
      const [width, height] = [canvas.clientWidth, canvas.clientHeight];
      if (!width) return;
      canvas.width = width * ratio;
      canvas.height = height * ratio;
      const context = canvas.getContext("2d");
      context.scale(ratio, ratio);
      const bounds = [0, 1].map((axis) => {
        const values = points.map((point) => point[axis]);
        return [Math.min(...values), Math.max(...values)];
      });
      const unit = Math.min(...[width, height].map((size, axis) => (size - 28) / (bounds[axis][1] - bounds[axis][0] || 1)));
      const place = (value, axis, size) => size / 2 + (value - (bounds[axis][0] + bounds[axis][1]) / 2) * unit;
      placed = points.map((point) => [place(point[0], 0, width), height - place(point[1], 1, height)]);
      const radius = points.length > 600 ? 3 : 4;
      context.globalAlpha = 0.82;
      placed.forEach(([x, y], row) => {
        if (!shown.has(spec.labels[row])) return;
        context.fillStyle = colorOf(spec.labels[row]);
        context.beginPath();
        context.arc(x, y, radius, 0, 2 * Math.PI);
        context.fill();
      });
      all("[data-class] .swatch", holder).forEach((swatch, label) => (swatch.style.background = colorOf(label)));
    };
    const key = holder.querySelector(".classes");
    spec.classes.forEach((name, label) => {
      const button = make("button");
      button.type = "button";
      button.dataset.class = label;
      button.title = name;
      button.setAttribute("aria-pressed", "true");
      button.append(make("i", "", "swatch"), name);
      button.addEventListener("click", () => {
        const now = !shown.has(label);
        now ? shown.add(label) : shown.delete(label);
        button.setAttribute("aria-pressed", String(now));
        paint();
      });
      key.append(button);
    });
    const point = (event) => {
      const box = canvas.getBoundingClientRect();
      const [x, y] = [event.clientX - box.left, event.clientY - box.top];
      let best = null;
      let least = 14 ** 2;
      placed.forEach(([px, py], row) => {
        const distance = (px - x) ** 2 + (py - y) ** 2;
        if (distance < least && shown.has(spec.labels[row])) [best, least] = [row, distance];
      });
      tip.hidden = best === null;
      if (best === null) return;
      const picture = tip.querySelector(".sprite");
      const size = 64 * spec.columns;
      picture.style.backgroundImage = `url(${sprite.src})`;
      picture.style.backgroundSize = `${size}px auto`;
      picture.style.backgroundPosition = `${-64 * (best % spec.columns)}px ${-64 * Math.floor(best / spec.columns)}px`;
      const name = spec.labels[best] < 0 ? "unlabelled" : spec.classes[spec.labels[best]];
      tip.querySelector("span").textContent = `${name} · ${spec.ids[best]}`;
      const [px, py] = placed[best];
      tip.style.left = `${Math.min(px + 12, canvas.clientWidth - 170)}px`;
      tip.style.top = `${Math.max(py - 84, 0)}px`;
    };
    canvas.addEventListener("pointermove", point);
    canvas.addEventListener("pointerdown", point);
    canvas.addEventListener("pointerleave", () => (tip.hidden = true));
    const buttons = all("[data-map]", holder.parentElement);
    buttons.forEach((button) =>
      button.addEventListener("click", () => {
        points = spec.maps[button.dataset.map];
        buttons.forEach((other) => other.setAttribute("aria-pressed", String(other === button)));
        paint();
      }),
    );
    painters.push(paint);
    new ResizeObserver(paint).observe(canvas);
    paint();
  };

  all("[data-tabs]").forEach((tabs) => {
    const buttons = all("[data-tab]", tabs);
    buttons.forEach((button) =>
      button.addEventListener("click", () => {
        for (const other of buttons) {
          const chosen = other === button;
          other.setAttribute("aria-pressed", String(chosen));
          document.querySelector(`[data-panel="${other.dataset.tab}"]`).hidden = !chosen;
        }
      }),
    );
  });

  all("[data-toggle-run]").forEach((button) =>
    button.addEventListener("click", () => {
      const run = Number(button.dataset.toggleRun);
      hiddenRuns.has(run) ? hiddenRuns.delete(run) : hiddenRuns.add(run);
      button.setAttribute("aria-pressed", String(!hiddenRuns.has(run)));
      document.querySelector(`.compared tbody tr:nth-child(${run + 1})`).hidden = hiddenRuns.has(run);
      painters.forEach((paint) => paint());
    }),
  );

  all("figure.chart").forEach(drawChart);
  all(".map").forEach(drawMap);
})();
