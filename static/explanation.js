// The heat map of a page "why": the buttons of query tokens choose whose similarities colour the document.
"use strict";

const isAll = (button) => button.dataset.token === "all";

function heat(card) {
  const data = JSON.parse(document.getElementById(card.dataset.heat).textContent);
  const spans = [...card.querySelectorAll("[data-column]")];
  const buttons = [...card.querySelectorAll("[data-token]")];
  const counted = new Set(data.best);

  function choose(button) {
    const row = isAll(button) ? null : Number(button.dataset.token);
    const steps = row === null ? data.all : data.rows[row];
    buttons.forEach((each) => each.setAttribute("aria-pressed", String(each === button)));
    spans.forEach((span, column) => {
      span.className = span.className.replace(/\bh\d+\b/, `h${steps[column]}`);
      span.classList.toggle("counted", row === null ? counted.has(column) : data.best[row] === column);
    });
  }

  buttons.forEach((button) => {
    button.hidden = false;
    button.addEventListener("click", () => choose(button));
  });
  card.querySelector(".tokens").addEventListener("keydown", (event) => {
    const move = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    // Alt with an arrow is the browser's: a page back or forward.
    if (event.altKey || event.ctrlKey || event.metaKey || (event.key !== "0" && !move)) return;
    const present = buttons.findIndex((button) => button.getAttribute("aria-pressed") === "true");
    const next = move ? buttons[(present + move + buttons.length) % buttons.length] : buttons.find(isAll);
    event.preventDefault();
    next.focus();
    choose(next);
  });
}

document.querySelectorAll("[data-heat]").forEach(heat);
