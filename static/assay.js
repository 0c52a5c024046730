// What the pages do beyond HTML and htmx: theme, keyboard, file drop, copy. Everything works without it.
"use strict";

// Runs in the head, before the first paint, so that a chosen theme does not flash.
const root = document.documentElement;
const stored = (name) => { try { return localStorage.getItem(name); } catch { return null; } };
const store = (name, value) => { try { localStorage.setItem(name, value); } catch { /* private window: the choice lasts for this page */ } };
const applyTheme = (theme) => theme === "light" || theme === "dark" ? root.dataset.theme = theme : delete root.dataset.theme;
applyTheme(stored("theme"));
root.classList.add("scripted");

function themeChoice() {
  const select = document.querySelector("[data-theme-choice]");
  if (!select) return;
  select.closest("[hidden]").hidden = false;
  select.value = stored("theme") || "auto";
  select.addEventListener("change", () => { store("theme", select.value); applyTheme(select.value); });
}

// On a narrow screen the navigation folds behind a button; without this script it stays open.
function menu() {
  const button = document.querySelector("[data-menu]");
  button?.addEventListener("click", () => button.setAttribute("aria-expanded", String(button.ariaExpanded !== "true")));
}

// Elements carry their shortcut in data-key: "j", or "g j" for two keys in a row.
function keyboard() {
  const help = document.getElementById("help");
  const toggle = document.getElementById("keys-on");
  if (!help || !toggle) return;
  toggle.checked = stored("keys") !== "off";
  toggle.addEventListener("change", () => store("keys", toggle.checked ? "on" : "off"));
  document.querySelectorAll("[data-help]").forEach((button) => { button.hidden = false; button.addEventListener("click", () => help.showModal()); });
  let before = "";
  let timer = 0;
  document.addEventListener("keydown", (event) => {
    const typing = event.target.closest("input, textarea, select, [contenteditable]");
    if (typing || event.ctrlKey || event.metaKey || event.altKey || help.open || !toggle.checked) return;
    const key = before ? `${before} ${event.key}` : event.key;
    clearTimeout(timer);
    before = "";
    if (key === "g") {
      before = "g";
      timer = setTimeout(() => { before = ""; }, 1200);
    } else if (key === "?") {
      help.showModal();
    } else if (key === "/") {
      const search = document.querySelector("[data-search]");
      if (search) { event.preventDefault(); search.focus(); search.select(); }
    } else {
      const target = document.querySelector(`[data-key="${CSS.escape(key)}"]`);
      if (target) { event.preventDefault(); target.click(); }
    }
  });
}

// A file may be dropped anywhere on a page that takes one.
function fileDrop() {
  const zone = document.querySelector("[data-drop]");
  const input = zone?.querySelector("input[type=file]");
  if (!input) return;
  const mark = (on) => zone.classList.toggle("over", on);
  document.addEventListener("dragover", (event) => { event.preventDefault(); mark(true); });
  document.addEventListener("dragleave", (event) => { if (!event.relatedTarget) mark(false); });
  document.addEventListener("drop", (event) => {
    event.preventDefault();
    mark(false);
    if (event.dataTransfer.files.length) { input.files = event.dataTransfer.files; input.dispatchEvent(new Event("change", { bubbles: true })); }
  });
}

function uploadProgress() {
  const bar = document.querySelector("[data-upload-progress]");
  if (!bar) return;
  document.body.addEventListener("htmx:xhr:progress", (event) => {
    if (!event.detail.lengthComputable) return;
    bar.closest("[hidden]")?.removeAttribute("hidden");
    bar.value = event.detail.loaded / event.detail.total;
  });
}

function copyButtons() {
  if (!navigator.clipboard) return;
  document.querySelectorAll("[data-copy]").forEach((button) => { button.hidden = false; });
}

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent);
  button.textContent = "Copied";
});

// An open menu closes when one turns elsewhere, or with Escape, which gives the focus back.
function menus() {
  const open = () => document.querySelectorAll("[data-menu-popover][open]");
  document.addEventListener("click", (event) => open().forEach((menu) => { if (!menu.contains(event.target)) menu.open = false; }));
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    open().forEach((menu) => { menu.open = false; menu.querySelector("summary").focus(); });
  });
}

// Arrows beside the names of columns; the order of the list is the order that the form sends.
function columnOrder() {
  document.querySelectorAll(".movers").forEach((movers) => { movers.hidden = false; });
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-move]");
    if (!button) return;
    const item = button.closest("li");
    const other = button.dataset.move === "1" ? item.nextElementSibling : item.previousElementSibling;
    if (!other?.querySelector("[data-move]")) return;
    if (button.dataset.move === "1") other.after(item); else other.before(item);
    button.focus();
  });
}

// Models that are asked side by side answer one by one: ranks are compared with those of the first column that has any.
function rankChanges() {
  const columns = [...document.querySelectorAll("[data-column]")].filter((column) => column.querySelector("[data-rank]"));
  const ranks = (column) => new Map([...column.querySelectorAll("[data-rank]")].map((hit) => [hit.dataset.index, hit]));
  const [first, ...others] = columns.map(ranks);
  others.forEach((hits) => hits.forEach((hit, index) => {
    const before = Number(first.get(index)?.dataset.rank), now = Number(hit.dataset.rank), change = hit.querySelector("[data-change]");
    if (!before || !change) return;
    change.hidden = false;
    change.textContent = before === now ? "same rank" : `${before > now ? "↑" : "↓"} ${Math.abs(before - now)}, from rank ${before}`;
  }));
}

// What renews itself waits while a question in it is open.
function openQuestions() {
  document.body.addEventListener("htmx:beforeRequest", (event) => {
    if (event.target.matches?.('[hx-trigger^="every"]') && event.target.querySelector(".confirm[open]")) event.preventDefault();
  });
}

// htmx writes a red line for every request that is called off. What the page calls off itself, for a newer request or with
// its column, is no error; the details of a request may say so.
function callsOff() {
  const asked = new WeakMap();
  document.body.addEventListener("htmx:beforeRequest", (event) => asked.set(event.detail.elt, event.detail));
  document.addEventListener("htmx:abort", (event) => { if (asked.has(event.target)) asked.get(event.target).error = ""; }, true);
}

// A column that goes takes its request with it.
function columnsGone() {
  document.body.addEventListener("htmx:beforeCleanupElement", (event) => {
    if (event.target.matches?.("[data-column][hx-post]")) htmx.trigger(event.target, "htmx:abort");
  });
}

document.addEventListener("DOMContentLoaded", () => {
  callsOff();
  columnsGone();
  openQuestions();
  document.body.addEventListener("htmx:afterSettle", rankChanges);
  themeChoice();
  menus();
  columnOrder();
  menu();
  keyboard();
  fileDrop();
  uploadProgress();
  copyButtons();
  document.body.addEventListener("htmx:afterSettle", copyButtons);
});
