// The page of weir_watch: asks for the newest snapshot once a second, and shows it. What a node says is only ever
// set as text. All that is kept is bounded: the last snapshot, and the numbers of 300.
"use strict";
(() => {
  const KEPT = 300, DRAWN = 10, EVERY_MS = 1000, QUIET_MS = 6000, GIVE_UP_MS = 5000, GAP_S = 2.5, LINES = 6;
  const DASHES = [[], [8, 4], [2, 3], [10, 3, 2, 3], [5, 5], [12, 4]];
  const byId = (id) => document.getElementById(id);
  const token = new URLSearchParams(location.search).get("token");

  // Text

  const is = (value) => value !== undefined && value !== null && value !== "undefined" && value !== "";
  const whole = (n) => Math.round(n).toLocaleString("en");
  const scaled = (n, step, units) => {
    let unit = 0;
    while (Math.abs(n) >= step && unit < units.length - 1) { n /= step; unit += 1; }
    return (unit === 0 || Math.abs(n) >= 100 ? whole(n) : n.toPrecision(2 + (Math.abs(n) >= 10))) + units[unit];
  };
  const short = (n) => typeof n === "number" ? scaled(n, 1000, ["", " k", " M", " G", " T"]) : "–";
  const count = (n) => typeof n === "number" && Math.abs(n) < 1e5 ? whole(n) : short(n);
  const bytes = (n) => typeof n === "number" ? scaled(n, 1000, [" B", " kB", " MB", " GB", " TB"]) : "–";
  const percent = (share) => typeof share !== "number" ? "–" :
    (share * 100).toFixed(share > 0 && share < 0.0995 ? 1 : 0) + " %";
  const duration = (s) => {
    s = Math.max(0, Math.round(s));
    if (s < 100) return `${s} s`;
    if (s < 6000) return `${Math.round(s / 60)} min`;
    if (s < 172800) return `${Math.floor(s / 3600)} h ${Math.floor(s % 3600 / 60)} min`;
    return `${Math.floor(s / 86400)} d ${Math.floor(s % 86400 / 3600)} h`;
  };
  const clock = (ms) => new Date(ms).toLocaleTimeString("en-GB");
  const words = (key) => String(key).replaceAll("_", " ");
  const text = (value) =>
    !is(value) ? "–" :
    typeof value === "number" ? (Number.isInteger(value) ? whole(value) : String(+value.toPrecision(3))) :
    Array.isArray(value) ? (value.length ? value.map(text).join(", ") : "none") :
    typeof value === "object" ? Object.entries(value).map(([k, v]) => `${words(k)} ${text(v)}`).join(", ") || "none" :
    String(value);
  const who = (one) =>
    [one.name, one.label, one.module && one.pid ? `${one.module} ${one.pid}` : one.module, one.pid, "the node"].find(is);
  // Shares come as {"running": 0.9} or as [{"what": "m:f/1", "share": 0.9}].
  const shares = (value) => Array.isArray(value) ? value.map(({ what, share }) => [what, share]) :
    Object.entries(value || {}).sort((a, b) => b[1] - a[1]);

  // Elements

  const put = (element, value) => { if (element.textContent !== value) element.textContent = value; return element; };
  const show = (element, yes) => { if (element.hidden === yes) element.hidden = !yes; };
  const make = (tag, attributes, ...children) => {
    const element = document.createElement(tag);
    for (const [key, value] of Object.entries(attributes || {})) element.setAttribute(key, value);
    element.append(...children);
    return element;
  };
  const svg = (tag, attributes) => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    return element;
  };
  // The children of parent become those of items, in their order. One that stays keeps its element, and so its focus.
  const keyed = (parent, items, key, create, update) => {
    const old = new Map([...parent.children].map((child) => [child.dataset.key, child]));
    items.forEach((item, i) => {
      const name = key(item);
      let child = old.get(name);
      if (child) old.delete(name); else { child = create(item); child.dataset.key = name; }
      if (parent.children[i] !== child) parent.insertBefore(child, parent.children[i] || null);
      update(child, item);
    });
    old.forEach((child) => child.remove());
  };
  const pairs = (parent, entries) => keyed(parent, entries, (entry) => entry[0],
    ([key]) => make("div", {}, make("dt", {}, words(key)), make("dd")),
    (child, [, value]) => put(child.lastChild, value));

  // Diagnoses

  let known = new Set(), names = new Map();

  const diagnosed = (list, at) => {
    const key = (d) => `${is(d.pid) ? d.pid : "node"} ${d.cause}`;
    show(byId("healthy"), list.length === 0);
    keyed(byId("diagnoses"), list, key, newCard, (card, d) => updateCard(card, d, at));
    const news = list.filter((d) => !known.has(key(d)));
    if (news.length) put(byId("news"), news.map((d) => `New diagnosis: ${who(d)}, ${words(d.cause)}. ${d.summary}`).join(" "));
    known = new Set(list.map(key));
  };
  const newCard = () => make("article", { class: "card" },
    make("div", { class: "card-head" }, make("h3"), make("span", { class: "cause" }), make("span", { class: "pid" }),
      make("span", { class: "since" })),
    make("div", { class: "card-body" },
      make("div", {}, make("p", { class: "summary" }),
        make("p", { class: "remedy" }, make("strong", {}, "Remedy. "), make("span"), " ", make("cite")),
        make("p", { class: "chain" }), make("dl", { class: "evidence" })),
      make("pre", { tabindex: "0", "aria-label": "A sketch of the change" }, make("code"))));
  const updateCard = (card, d, at) => {
    const find = (selector) => card.querySelector(selector);
    put(find("h3"), who(d));
    put(find(".cause"), words(d.cause));
    put(find(".pid"), is(d.pid) && who(d) !== d.pid ? d.pid : "");
    put(find(".since"), `for ${duration((at - d.since) / 1000)}, since ${clock(d.since)}`);
    put(find(".summary"), text(d.summary));
    put(find(".remedy span"), is(d.remedy) ? d.remedy : "");
    put(find("cite"), is(d.page) ? d.page : "");
    show(find(".remedy"), is(d.remedy));
    chained(find(".chain"), who(d), d.chain || []);
    pairs(find("dl"), Object.entries(d.evidence || {}).map(([k, v]) => [k, text(v)]));
    put(find("code"), is(d.sketch) ? d.sketch : "");
    show(find("pre"), is(d.sketch));
  };
  const chained = (element, first, chain) => {
    show(element, chain.length > 0);
    put(element, chain.length ? `${first} waits for ${chain.map((pid) => names.get(pid) || pid).join(", who waits for ")}.` : "");
  };

  // Suspects

  const COLUMNS = [
    { key: "process", label: "Process", value: (s) => who(s), show: (s) => who(s) },
    { key: "application", label: "Application", hide: "narrow", value: (s) => s.application || "", show: (s) => text(s.application) },
    { key: "queue", label: "Mailbox", number: true, value: (s) => s.queue + (s.drained || 0), show: (s) => count(s.queue + (s.drained || 0)) },
    { key: "queues", label: "Last minute", hide: "middle" },
    { key: "growth", label: "Growth/s", number: true, hide: "tiny", value: (s) => s.growth,
      show: (s) => (s.growth > 0 ? "+" : "") + count(s.growth) },
    { key: "core", label: "Core", number: true, value: (s) => s.core, show: (s) => percent(s.core) },
    { key: "reductions", label: "Reductions/s", number: true, hide: "middle", value: (s) => s.reductions, show: (s) => short(s.reductions) },
    { key: "heap", label: "Heap", number: true, hide: "narrow", value: (s) => s.heap, show: (s) => bytes(s.heap) },
    { key: "doing", label: "Doing", hide: "narrow", value: (s) => doing(s), show: (s) => doing(s) },
    { key: "waiters", label: "Waiters", number: true, hide: "narrow", value: (s) => s.waiters, show: (s) => count(s.waiters) },
  ];
  const doing = (s) => (shares(s.doing)[0] || ["–"])[0];
  const table = byId("suspects"), body = table.tBodies[0];
  const opened = new Set();
  let sorted = null, descending = true, suspects = [], drawnAt = 0;

  const heads = () => COLUMNS.forEach((column) => {
    const head = make("th", { scope: "col", role: "columnheader", class: [column.hide, column.number && "number"].filter(Boolean).join(" ") });
    if (column.value) {
      const button = make("button", { type: "button" }, column.label);
      button.addEventListener("click", () => sortBy(column));
      head.append(button);
    } else head.append(column.label);
    table.tHead.rows[0].append(head);
  });
  // The first click shows the most first, the next the least, the third the worst again, which is the node's order.
  const sortBy = (column) => {
    if (sorted !== column) { sorted = column; descending = !!column.number; }
    else if (descending === !!column.number) descending = !descending;
    else sorted = null;
    COLUMNS.forEach((c, i) => {
      const head = table.tHead.rows[0].cells[i];
      if (c === sorted) head.setAttribute("aria-sort", descending ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
    suspected(suspects, drawnAt);
  };
  const ordered = (list) => {
    // Who walks through the rows by keyboard finds them where they were.
    if (body.contains(document.activeElement)) {
      const places = new Map([...body.querySelectorAll("tr.row")].map((row, i) => [row.dataset.pid, i]));
      const place = (s) => places.has(s.pid) ? places.get(s.pid) : KEPT;
      return [...list].sort((a, b) => place(a) - place(b));
    }
    if (!sorted) return list;
    const sign = descending ? -1 : 1;
    return [...list].sort((a, b) => {
      const [x, y] = [sorted.value(a), sorted.value(b)];
      return sign * (typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y)));
    });
  };
  const suspected = (list, at) => {
    suspects = list;
    drawnAt = at;
    show(byId("quiet"), list.length === 0);
    show(table, list.length !== 0);
    show(byId("keys"), list.length !== 0);
    const pids = new Set(list.map((s) => s.pid));
    opened.forEach((pid) => { if (!pids.has(pid)) opened.delete(pid); });
    const focused = body.contains(document.activeElement);
    const rows = ordered(list).flatMap((s) => opened.has(s.pid) ? [[s, false], [s, true]] : [[s, false]]);
    keyed(body, rows, ([s, detail]) => (detail ? "details of " : "") + s.pid, ([s, detail]) => detail ? newDetails(s) : newRow(s),
      (row, [s, detail]) => detail ? updateDetails(row, s, at) : updateRow(row, s));
    const all = [...body.querySelectorAll("tr.row")];
    if (all.length && !all.some((row) => row.tabIndex === 0)) all[0].tabIndex = 0;
    if (focused && !body.contains(document.activeElement) && all.length) focus(all[0]);
  };
  const newRow = (s) => {
    const row = make("tr", { class: "row", role: "row", tabindex: "-1", "aria-level": "1" });
    row.dataset.pid = s.pid;
    COLUMNS.forEach((c, i) => {
      const cell = make(i ? "td" : "th", { role: i ? "gridcell" : "rowheader", class: [c.hide, c.number && "number"].filter(Boolean).join(" ") });
      if (i === 0) {
        cell.scope = "row";
        cell.append(make("div", {}, swatch(), make("div", {}, make("span", { class: "who" }), make("small"))));
      }
      if (c.key === "queues") {
        const line = svg("svg", { viewBox: "0 0 100 20", preserveAspectRatio: "none", class: "spark", "aria-hidden": "true" });
        line.append(svg("polyline", { points: "" }));
        cell.append(line);
      }
      row.append(cell);
    });
    row.addEventListener("click", () => { focus(row); toggle(row); });
    return row;
  };
  const updateRow = (row, s) => {
    COLUMNS.forEach((column, i) => {
      const cell = row.cells[i];
      if (i === 0) {
        paint(cell.querySelector("svg"), slots.findIndex((slot) => slot.pid === s.pid));
        put(cell.querySelector("span"), who(s));
        put(cell.querySelector("small"), [is(s.name) || is(s.label) ? s.pid : "", s.answers === false ? "does not answer" : ""].filter(Boolean).join(", "));
      } else if (column.key === "queues") {
        const queues = [...(s.queues || []), s.queue + (s.drained || 0)].slice(-61), top = Math.max(1, ...queues);
        cell.firstChild.firstChild.setAttribute("points", queues.map((q, x) =>
          `${(x / Math.max(1, queues.length - 1) * 100).toFixed(1)},${(19 - q / top * 18).toFixed(1)}`).join(" "));
      } else put(cell, column.show(s));
    });
    row.setAttribute("aria-expanded", String(opened.has(s.pid)));
  };
  const SHARES = { doing: "Was found in", states: "States", messages: "Messages, by kind", sent_by: "Sent by", tables: "Tables" };
  const newDetails = () => {
    const lists = Object.entries(SHARES).map(([name, title]) =>
      make("div", { class: "shares " + name }, make("h4", {}, title), make("ul")));
    return make("tr", { class: "details", role: "row", "aria-level": "2" }, make("td", { colspan: COLUMNS.length, role: "gridcell" },
      make("dl", { class: "evidence" }), make("div", { class: "lists" }, ...lists), make("p", { class: "chain" })));
  };
  const updateDetails = (row, s, at) => {
    const million = s.until_million === "infinity" || !is(s.until_million) ? "never at this rate" : duration(s.until_million);
    pairs(row.querySelector("dl"), [
      ["pid", text(s.pid)], ["label", text(s.label)], ["module", text(s.module)], ["behaviour", text(s.behaviour)],
      ["application", text(s.application)], ["supervisor", text(s.supervisor)], ["above it", text((s.ancestors || []).slice(1))],
      ["looked at for", duration((at - s.since) / 1000)], ["mailbox", whole(s.queue)], ["drained", text(s.drained)],
      ["growth a second", text(s.growth)], ["arriving a second, about", text(s.arriving)], ["handled a second", text(s.handled)],
      ["a million in", million], ["reductions a second", text(s.reductions)], ["heap", bytes(s.heap)],
      ["waiters, about", text(s.waiters)], ["some of them", text(s.waiting)], ["some senders", text(s.senders)],
      ["answers", s.answers === false ? "no, not for a second" : "yes"],
    ].filter(([, value]) => value !== "–" && value !== "none"));
    Object.keys(SHARES).forEach((name) => {
      const list = shares(s[name]).slice(0, 8);
      show(row.querySelector("." + name), list.length > 0);
      keyed(row.querySelector(`.${name} ul`), list, ([what]) => text(what),
        ([what]) => make("li", {}, make("span", { class: "fill" }), make("code", {}, text(what)), make("b")),
        (item, [, share]) => { item.firstChild.style.width = `${share * 100}%`; put(item.lastChild, percent(share)); });
    });
    chained(row.querySelector(".chain"), who(s), s.chain || []);
  };
  const focus = (row) => {
    body.querySelectorAll("tr.row").forEach((other) => { other.tabIndex = other === row ? 0 : -1; });
    row.focus();
  };
  const toggle = (row) => {
    const pid = row.dataset.pid;
    if (!opened.delete(pid)) opened.add(pid);
    suspected(suspects, drawnAt);
  };
  body.addEventListener("keydown", (event) => {
    const rows = [...body.querySelectorAll("tr.row")], at = rows.indexOf(document.activeElement);
    if (at < 0) return;
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: rows.length - 1 }[event.key];
    const row = rows[at], open = opened.has(row.dataset.pid);
    if (to !== undefined) focus(rows[Math.min(Math.max(to, 0), rows.length - 1)]);
    else if (event.key === "Enter" || event.key === " ") toggle(row);
    else if (event.key === "ArrowRight" && !open || (event.key === "ArrowLeft" || event.key === "Escape") && open) toggle(row);
    else return;
    event.preventDefault();
  });

  // Plots

  let points = [], colours = [], faint = "", ink = "";
  // The processes that have a line: who is among the first suspects keeps the one that it has.
  const slots = Array.from({ length: LINES }, () => ({ pid: null, name: "", seen: 0 }));

  const seat = (list, at) => {
    const first = list.slice(0, LINES);
    slots.forEach((slot) => { if (at - slot.seen > KEPT * 1000) slot.pid = null; });
    for (const s of first) {
      let slot = slots.find((one) => one.pid === s.pid);
      if (!slot) {
        const free = slots.filter((one) => !first.some((other) => other.pid === one.pid));
        slot = free.reduce((a, b) => b.seen < a.seen ? b : a);
        slot.pid = s.pid;
      }
      slot.name = who(s);
      slot.seen = at;
    }
  };
  const ofSlots = (field) => ({
    names: () => slots.map((slot) => slot.pid ? slot.name : ""),
    values: (p) => slots.map((slot) => {
      const found = slot.pid && p.suspects.find((s) => s.pid === slot.pid);
      return found && typeof found[field] === "number" ? found[field] : null;
    }),
  });
  const MEMORY = ["total", "processes", "binary", "ets", "code"];
  const WHOLE = Array.from({ length: 30 }, (_, i) => [1, 2, 5][i % 3] * 10 ** Math.floor(i / 3));
  const few = (p) => p.schedulers.length <= LINES;
  const PLOTS = [
    { title: "Mailboxes", unit: "messages", format: count, tick: short, ...ofSlots("queue") },
    { title: "Reductions", unit: "a second", format: short, ...ofSlots("reductions") },
    { title: "Schedulers", unit: "share of the second at work", format: percent, top: 1,
      names: (p) => few(p) ? p.schedulers.map((_, i) => `scheduler ${i + 1}`) : ["mean", "busiest", "idlest"],
      values: ({ schedulers: list }) => few({ schedulers: list }) ? list :
        [list.reduce((a, b) => a + b, 0) / list.length, Math.max(...list), Math.min(...list)] },
    { title: "Memory", unit: "", format: bytes, names: () => MEMORY, values: (p) => MEMORY.map((k) => p.memory[k] ?? null) },
    { title: "Run queue", unit: "processes that wait for a scheduler", format: count, tick: short, names: () => ["run queue"], values: (p) => [p.run_queue] },
    { title: "Input and output", unit: "a second", format: bytes, names: () => ["input", "output"], values: (p) => [p.input, p.output] },
  ];

  const swatch = () => {
    const mark = svg("svg", { viewBox: "0 0 24 8", class: "swatch", "aria-hidden": "true" });
    mark.append(svg("line", { x1: 0, y1: 4, x2: 24, y2: 4 }));
    return mark;
  };
  const paint = (mark, i) => {
    const value = i < 0 ? "none" : `line-${i}`;
    if (mark.dataset.line === value) return;
    mark.dataset.line = value;
    mark.firstChild.setAttribute("stroke-dasharray", i < 0 ? "" : DASHES[i].join(" "));
  };
  const scheme = () => {
    const style = getComputedStyle(document.documentElement);
    const value = (name) => style.getPropertyValue(name).trim();
    colours = Array.from({ length: LINES }, (_, i) => value(`--line-${i}`));
    [faint, ink] = [value("--grid"), value("--muted")];
  };
  const plotted = (plot) => {
    const lines = plot.names(points[points.length - 1]).length;
    const box = make("div", { class: "canvas", role: "img", "aria-label": `${plot.title} over time; the newest values are listed below` });
    const legend = make("ul", { class: "legend" });
    const figure = make("figure", { class: "card" },
      make("figcaption", {}, make("h3", {}, plot.title), make("span", {}, plot.unit)), box, legend);
    byId("plots").append(figure);
    const axis = { stroke: () => ink, grid: { stroke: () => faint, width: 1 }, ticks: { stroke: () => faint, width: 1, size: 4 },
      font: "11px system-ui, sans-serif" };
    plot.lines = lines;
    plot.box = box;
    plot.legend = legend;
    plot.chart = new uPlot({
      width: box.clientWidth || 300, height: 170, legend: { show: false },
      cursor: { sync: { key: "weir" }, y: false, drag: { x: false, y: false } },
      padding: [8, 12, 0, 0],
      scales: {
        x: { range: (u, min, max) => [Math.min(min, max - 60), max] },
        y: { range: (u, min, max) => [0, plot.top || (max > 0 ? max * 1.08 : 1)] },
      },
      axes: [
        { ...axis, size: 28, space: 70, values: [
          [60, "{HH}:{mm}", null, null, null, null, null, null, 1],
          [1, "{HH}:{mm}:{ss}", null, null, null, null, null, null, 1]] },
        { ...axis, size: 58, space: 26, values: (u, ticks) => ticks.map(plot.tick || plot.format), ...(plot.tick ? { incrs: WHOLE } : {}) },
      ],
      series: [{}, ...Array.from({ length: lines }, (_, i) => ({
        stroke: () => colours[i % LINES], dash: DASHES[i % LINES], width: 2, points: { show: false } }))],
      hooks: { setCursor: [() => legends(plot)] },
    }, [[], ...Array.from({ length: lines }, () => [])], box);
    new ResizeObserver(() => plot.chart.setSize({ width: box.clientWidth, height: 170 })).observe(box);
  };
  const draw = () => {
    const newest = points[points.length - 1];
    if (!newest) return;
    for (const plot of PLOTS) {
      if (plot.chart && plot.lines !== plot.names(newest).length) {
        plot.chart.destroy();
        plot.box.parentNode.remove();
        plot.chart = null;
      }
      if (!plot.chart) plotted(plot);
      const data = Array.from({ length: plot.lines + 1 }, () => []);
      let before = null;
      for (const p of points) {
        const x = p.at / 1000;
        // What was not seen is a gap, and no line.
        if (before !== null && x - before > GAP_S) {
          data[0].push(before + 1);
          for (let i = 1; i <= plot.lines; i++) data[i].push(null);
        }
        before = x;
        data[0].push(x);
        plot.values(p).slice(0, plot.lines).forEach((value, i) => data[i + 1].push(value ?? null));
        for (let i = 1; i <= plot.lines; i++) if (data[i].length < data[0].length) data[i].push(null);
      }
      plot.chart.setData(data);
      legends(plot);
    }
  };
  // The values under the cursor, or else the newest.
  const legends = (plot) => {
    const data = plot.chart && plot.chart.data;
    if (!data || !data[0].length) return;
    const index = plot.chart.cursor.idx ?? data[0].length - 1;
    const items = plot.names(points[points.length - 1]).map((name, i) => ({ name, i, value: data[i + 1][index] }))
      .filter(({ name }) => name);
    keyed(plot.legend, items, ({ i }) => String(i), () => make("li", {}, swatch(), make("span"), make("b")),
      (item, { name, i, value }) => {
        paint(item.firstChild, i % LINES);
        put(item.children[1], name);
        put(item.lastChild, value === null || value === undefined ? "–" : plot.format(value));
      });
  };

  // Weir's own parts

  const parted = (parts) => {
    spans(parts.clusters || []);
    const groups = ["pools", "clusters", "servers", "logs", "clients", "caches", "sockets"].map((name) => {
      const value = parts[name];
      const rows = Array.isArray(value) ? value : value && Object.keys(value).length ? [value] : [];
      return { name, rows: rows.map(({ others, by_server, ...row }) => row) };
    }).filter(({ rows }) => rows.length);
    show(byId("parts"), groups.length > 0);
    keyed(byId("tables"), groups, ({ name }) => name,
      ({ name }) => make("div", { class: "card scroll", tabindex: "0", role: "group", "aria-label": name },
        make("table", { class: "plain" }, make("caption", {}, name), make("thead", {}, make("tr")), make("tbody"))),
      (card, { rows }) => grid(card.firstChild, rows));
  };
  // Pools that span nodes: a line from this node to each other for what it sends there, one for what comes from there, as
  // thick as that is much.
  let sent = new Map();
  const spans = (clusters) => {
    const now = new Map();
    const pictures = clusters.filter(({ others }) => others && others.length).map(({ name, served, others }) => {
      const rate = (key, total) => {
        now.set(key, total);
        const before = sent.get(key);
        return before === undefined || last.at <= before.at || total < before.total ? null :
          (total - before.total) * 1000 / (last.at - before.at);
      };
      const pool = text(name);
      const rows = others.map((other) => ({
        ...other,
        to: other.requests === undefined ? undefined : rate(`${pool} to ${other.node}`, other.requests),
        from: rate(`${pool} from ${other.node}`, other.received)
      }));
      const most = Math.max(1, ...rows.flatMap((row) => [row.to || 0, row.from || 0]));
      return { pool, rows, served: rate(pool, served), most };
    });
    sent = new Map([...now].map(([key, total]) => {
      const before = sent.get(key);
      // A snapshot may have the figures of the one before.
      return [key, before && before.at === last.at ? before : { total, at: last.at }];
    }));
    keyed(byId("clusters"), pictures, ({ pool }) => pool,
      ({ pool }) => make("figure", { class: "card" },
        make("figcaption", {}, make("h3", {}, pool), make("span", {}, "requests to other nodes and from them, a second")),
        make("div", { class: "fan" }, make("p", {}, make("b"), make("small")),
          make("div", {}, svg("svg", { preserveAspectRatio: "none", "aria-hidden": "true" })), make("ul"))),
      (figure, { rows, served, most }) => {
        const [hub, between, list] = figure.lastChild.children, lines = between.firstChild;
        put(hub.firstChild, last.node);
        put(hub.lastChild, `serves ${rated(served)} of theirs`);
        const box = `0 0 100 ${rows.length * 100}`;
        if (lines.getAttribute("viewBox") !== box) lines.setAttribute("viewBox", box);
        const drawn = rows.flatMap((row, i) => [
          row.to === undefined ? [] : { key: `to ${row.node}`, i, rate: row.to, shift: -10,
            kind: row.share === 0 ? "out" : row.share < 1 ? "partly" : "" },
          row.received ? { key: `from ${row.node}`, i, rate: row.from, shift: 10, kind: "from" } : []
        ].flat());
        keyed(lines, drawn, ({ key }) => key, () => svg("path", {}), (path, { i, rate, shift, kind }) => {
          const [here, there] = [rows.length * 50 + shift, i * 100 + 50 + shift];
          path.setAttribute("d", `M 0 ${here} C 50 ${here} 50 ${there} 100 ${there}`);
          path.setAttribute("stroke-width", (1 + 7 * (rate || 0) / most).toFixed(1));
          path.setAttribute("class", kind);
        });
        keyed(list, rows, ({ node }) => node, () => make("li", {}, make("b"), make("span"), make("small")), (item, row) => {
          put(item.children[0], row.node);
          put(item.children[1], [row.to === undefined ? "" : `to it ${rated(row.to)}`,
            row.received ? `from it ${rated(row.from)}` : ""].filter(Boolean).join(", "));
          put(item.children[2], [row.weight === undefined ? "serves nobody" : `load ${typeof row.load === "number" ? row.load.toFixed(1) : row.load}`,
            row.share === 0 ? "left out" : row.share < 1 ? `let in for ${percent(row.share)}` : "",
            ...["refused", "failed", "timeouts", "full", "busy"].filter((key) => row[key]).map((key) => `${whole(row[key])} ${words(key)}`),
          ].filter(Boolean).join(", "));
        });
      });
  };
  const rated = (rate) => rate === null ? "–" : `${short(rate)}/s`;

  const grid = (element, rows) => {
    const named = (key) => key === "name" ? 0 : key === "pid" ? 1 : 2;
    const keys = [...new Set(rows.flatMap(Object.keys))].sort((a, b) => named(a) - named(b));
    keyed(element.tHead.rows[0], keys, (key) => key, (key) => make("th", { scope: "col" }, words(key)),
      (head, key) => head.classList.toggle("number", rows.every((row) => typeof row[key] === "number")));
    keyed(element.tBodies[0], rows.map((row, i) => [row, i]), ([row, i]) => `${text(row.name)} ${i}`, () => make("tr"),
      (line, [row]) => keyed(line, keys, (key) => key, () => make("td"), (cell, key) => {
        put(cell, /bytes/.test(key) && typeof row[key] === "number" ? bytes(row[key]) : text(row[key]));
        cell.classList.toggle("number", typeof row[key] === "number");
      }));
  };

  // A snapshot

  let last = null, changed = 0;

  const keep = (p) => {
    const newest = points[points.length - 1];
    if (newest && p.at <= newest.at) return;
    points.push(p);
    if (points.length > KEPT) points.splice(0, points.length - KEPT);
    seat(p.suspects, p.at);
  };
  const pointOf = (s) => ({
    at: s.at, run_queue: s.run_queue, schedulers: s.schedulers, memory: s.memory, input: s.input, output: s.output,
    suspects: s.suspects.slice(0, DRAWN)
      .map(({ pid, name, label, module, queue, reductions }) => ({ pid, name, label, module, queue, reductions })),
  });
  const arrived = (s) => {
    // The node's clock was set back, or it is another node.
    if (last && (s.at < last.at || s.node !== last.node)) {
      points = [];
      slots.forEach((slot) => { slot.pid = null; });
    }
    last = s;
    changed = performance.now();
    keep(pointOf(s));
    const mean = s.schedulers.reduce((a, b) => a + b, 0) / Math.max(1, s.schedulers.length);
    put(byId("node"), s.node);
    document.title = `${s.diagnoses.length ? `(${s.diagnoses.length}) ` : ""}${s.node} · weir_watch`;
    pairs(byId("facts"), [
      ["OTP", text(s.otp)], ["up", duration(s.uptime / 1000)],
      ["processes", `${whole(s.processes)} (${percent(s.processes / s.process_limit)})`], ["ports", whole(s.ports)],
      ["schedulers", percent(mean)], ["run queue", whole(s.run_queue)], ["memory", bytes(s.memory.total)],
    ]);
    names = new Map(s.suspects.map((one) => [one.pid, is(one.name) || is(one.label) ? `${who(one)} ${one.pid}` : one.pid]));
    diagnosed(s.diagnoses, s.at);
    suspected(s.suspects, s.at);
    draw();
    parted(s.parts || {});
    keyed(byId("limits"), s.limits || [], (limit) => limit, (limit) => make("li", {}, limit), () => {});
    put(byId("cost"), `Watching takes ${percent(s.cost.share)} of a core and ${bytes(s.cost.memory)}.`);
  };

  // Asking

  class Refused extends Error { constructor(status) { super(); this.status = status; } }

  const get = async (path) => {
    const control = new AbortController(), timer = setTimeout(() => control.abort(), GIVE_UP_MS);
    try {
      const answer = await fetch(path, {
        headers: token ? { Authorization: `Bearer ${token}` } : {}, cache: "no-store", signal: control.signal });
      if (!answer.ok) throw new Refused(answer.status);
      return await answer.json();
    } finally { clearTimeout(timer); }
  };
  let trouble = null, caughtUp = false;

  const told = (kind, state, sentence) => {
    if (trouble === kind) return;
    trouble = kind;
    byId("state").dataset.state = state;
    put(byId("state"), state);
    put(byId("banner"), sentence);
    show(byId("banner"), sentence !== "");
    document.body.classList.toggle("lost", sentence !== "");
  };
  const lost = (error) => {
    const since = clock(Date.now());
    if (error instanceof Refused && error.status === 503)
      told("agent", "no agent", `No agent has told anything since ${since}. This page shows the next one that does.`);
    else if (error instanceof Refused)
      told("refused", "refused", `The node refuses to answer (${error.status}). Is the token that of this page?`);
    else
      told("lost", "disconnected", `Disconnected since ${since}. What is below is as it was then. Trying again every second.`);
  };
  const ask = async () => {
    try {
      const snapshot = await get("snapshot.json");
      if (!caughtUp) {
        (await get("history.json")).forEach(keep);
        caughtUp = true;
      }
      if (!last || snapshot.at !== last.at) arrived(snapshot);
      if (performance.now() - changed < QUIET_MS) told("none", "live", "");
      else told("quiet", "no news", `The agent has told nothing since ${clock(last.at)}.`);
    } catch (error) {
      caughtUp = false;
      lost(error);
      if (!(error instanceof Refused) && error.name !== "AbortError" && error.name !== "TypeError") console.error(error);
    }
    setTimeout(ask, EVERY_MS);
  };

  // A browser lets a page that nobody sees ask seldom.
  document.addEventListener("visibilitychange", () => { if (!document.hidden) caughtUp = false; });

  scheme();
  heads();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    scheme();
    PLOTS.forEach((plot) => plot.chart && plot.chart.redraw());
  });
  byId("links").querySelectorAll("a").forEach((link) => { link.search = location.search; });
  // For make page-test.
  window.weirWatch = { show: arrived, points: () => points, data: () => PLOTS.map((plot) => plot.chart && plot.chart.data) };
  ask();
})();
