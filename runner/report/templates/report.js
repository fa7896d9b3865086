"use strict";
// Everything from the data is written as text or as the address of a file beside this page, never as markup.
const rows = JSON.parse(document.getElementById("data").textContent);
const gallery = document.getElementById("gallery");
const found = document.getElementById("found");
const end = document.getElementById("end");
const filters = document.getElementById("filters");
const PAGE = 60;
let chosen = rows;
let shown = 0;

function make(name, className, text) {
  const element = document.createElement(name);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  return element;
}

function player(row) {
  const files = row.files.filter((file) => !file.lost);
  const file = files.find((one) => one.kind !== "file") || files[0];
  if (row.text) return make("pre", "", row.text);
  if (!file) return make("span", "", row.files.length ? "lost: " + row.files[0].lost : "");
  if (file.kind === "image") {
    const image = make("img");
    image.loading = "lazy";
    image.alt = row.prompt.slice(0, 120) || row.id;
    image.src = row.thumb || file.href;
    if (!file.href) return image;
    const link = make("a");
    link.href = file.href;
    link.append(image);
    return link;
  }
  if ((file.kind === "video" || file.kind === "audio") && file.href) {
    const media = make(file.kind);
    media.controls = true;
    media.preload = "metadata";
    media.src = file.href;
    return media;
  }
  return make("span", "", file.name || "");
}

function card(row) {
  const element = make("article", "card");
  const stage = make("div", "shown");
  stage.append(player(row));
  const words = make("div", "words");
  const head = make("div", "head");
  head.append(make("span", "", row.id), make("span", "badge state-" + row.state, row.state));
  words.append(head);
  if (row.prompt) {
    const prompt = make("div", "prompt", row.prompt);
    prompt.tabIndex = 0;
    words.append(prompt);
  }
  if (row.reason || row.detail) {
    words.append(make("div", "why", [row.reason, row.detail].filter(Boolean).join(": ")));
  }
  const fine = ["row " + row.row, row.model, row.took, row.charge].filter(Boolean).join(" · ");
  words.append(make("div", "fine", fine));
  const links = make("div", "fine");
  for (const file of row.files) {
    if (!file.href || file.lost) continue;
    const link = make("a", "", file.name || "result");
    link.href = file.href;
    links.append(link, " ");
  }
  if (links.childNodes.length) words.append(links);
  element.append(stage, words);
  return element;
}

function more() {
  const next = chosen.slice(shown, shown + PAGE);
  gallery.append(...next.map(card));
  shown += next.length;
  end.textContent = shown < chosen.length ? "…" : "";
}

function apply() {
  const wanted = new FormData(filters);
  const text = wanted.get("text").toLowerCase();
  chosen = rows.filter(
    (row) =>
      ["state", "model", "reason"].every((name) => !wanted.get(name) || row[name] === wanted.get(name)) &&
      (!text || row.prompt.toLowerCase().includes(text) || row.id.toLowerCase().includes(text)),
  );
  gallery.replaceChildren();
  shown = 0;
  found.textContent = chosen.length.toLocaleString("en") + (chosen.length === 1 ? " row" : " rows");
  more();
}

for (const name of ["state", "model", "reason"]) {
  const counts = new Map();
  for (const row of rows) if (row[name]) counts.set(row[name], (counts.get(row[name]) || 0) + 1);
  const select = filters.elements[name];
  for (const [value, count] of [...counts].sort((a, b) => b[1] - a[1])) {
    const option = make("option", "", value + " (" + count.toLocaleString("en") + ")");
    option.value = value;
    select.append(option);
  }
  if (counts.size < 2 && name !== "state") select.closest("label").hidden = counts.size === 0;
}
filters.addEventListener("input", apply);
filters.addEventListener("submit", (event) => event.preventDefault());
new IntersectionObserver((entries) => {
  if (entries.some((entry) => entry.isIntersecting) && shown < chosen.length) more();
}, { rootMargin: "1200px" }).observe(end);
apply();
