// A comparison's queries: one opens over the list under its own address, and its documents are joined between columns.
// Without this script each query is a page.
"use strict";

const slide = document.getElementById("slide");
const rowOf = (url) => document.querySelector(`[data-slide="${url.match(/\/queries\/(\d+)\//)?.[1]}"]`);
const isBody = (event) => event.detail.target?.id === "slide-body";

// The address follows what is open: one entry for the slide, whatever is looked at in it.
function opened(url) {
  if (slide.open) {
    history.replaceState({ slide: url }, "", url);
  } else {
    if (history.state?.slide !== url) history.pushState({ slide: url }, "", url);
    slide.showModal();
  }
  slide.scrollTop = 0;
  document.getElementById("query-title").focus({ preventScroll: true });
}

function closed() {
  const shown = history.state?.slide;
  if (!shown) return;
  history.back();
  rowOf(shown)?.focus();
}

const show = (url) => htmx.ajax("GET", url, { target: "#slide-body", swap: "innerHTML" });

// Links of the list open the slide, links in it stay in it, but for one to another page; whoever wants another tab gets one.
function followed(event) {
  const link = event.target.closest("a[data-slide], #slide a:not([data-leaves])");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
  event.preventDefault();
  show(link.pathname + link.search);
}

if (slide) {
  document.addEventListener("click", followed);
  document.body.addEventListener("htmx:afterSwap", (event) => {
    if (!isBody(event)) return;
    opened(event.detail.pathInfo.requestPath);
    joined();
  });
  slide.addEventListener("close", closed);
  slide.addEventListener("click", (event) => {
    if (event.target === slide || event.target.closest("[data-slide-close]")) slide.close();
  });
}
window.addEventListener("popstate", (event) => {
  const wanted = event.state?.slide;
  if (!slide) location.reload(); // the page was loaded anew where a slide had been open
  else if (wanted) show(wanted);
  else if (slide.open) slide.close();
});

// Lines join the same document between neighbouring columns: dashed to the end of a column that has it further down.
function joined() {
  const layer = document.querySelector(".side-lines");
  if (!layer) return;
  const area = layer.parentElement;
  const columns = [...area.querySelectorAll(":scope > section")];
  const beside = columns.length > 1 && columns.every((column) => column.offsetParent !== null);
  area.classList.toggle("joined", beside && area.querySelector("[data-ranks]") !== null);
  layer.replaceChildren();
  if (!area.classList.contains("joined")) return;
  const frame = area.getBoundingClientRect();
  layer.setAttribute("viewBox", `0 0 ${frame.width} ${frame.height}`);
  for (let place = 0; place + 1 < columns.length; place += 1) {
    const sides = [columns[place], columns[place + 1]].map((column) => ({
      edges: column.getBoundingClientRect(),
      hits: new Map([...column.querySelectorAll("[data-document]")].map((hit) => [hit.dataset.document, hit])),
    }));
    const documents = new Set([...sides[0].hits.keys(), ...sides[1].hits.keys()]);
    for (const name of documents) {
      const ends = sides.map((side) => side.hits.get(name));
      const ranks = (ends[0] ?? ends[1]).dataset.ranks.split(",").slice(place, place + 2).map(Number);
      if (!ranks[0] || !ranks[1]) continue;
      const heights = sides.map((side, index) => {
        const box = ends[index]?.querySelector(".rank").getBoundingClientRect();
        return (box ? (box.top + box.bottom) / 2 : side.edges.bottom) - frame.top;
      });
      const [left, right] = [sides[0].edges.right - frame.left, sides[1].edges.left - frame.left];
      const middle = (left + right) / 2;
      const line = document.createElementNS("http://www.w3.org/2000/svg", "path");
      line.setAttribute("d", `M${left},${heights[0]} C${middle},${heights[0]} ${middle},${heights[1]} ${right},${heights[1]}`);
      const moved = ranks[1] === ranks[0] ? "equal" : ranks[1] < ranks[0] ? "up" : "down";
      line.setAttribute("class", ends[0] && ends[1] ? moved : `${moved} beyond`);
      line.dataset.of = name;
      layer.append(line);
    }
  }
}

function outlined(event) {
  const name = event.target.closest?.("[data-document]")?.dataset.document;
  document.querySelectorAll(".side-hit.same, .side-lines .same").forEach((each) => each.classList.remove("same"));
  if (name === undefined) return;
  document.querySelectorAll(`[data-document="${name}"], [data-of="${name}"]`).forEach((each) => each.classList.add("same"));
}

document.addEventListener("mouseover", outlined);
document.addEventListener("focusin", outlined);
window.addEventListener("resize", joined);
joined();
