// Judging with scripts: what could not be saved can be sent again, and the rows of the page of many take keys.
"use strict";

(() => {
  let last = null; // the form or fieldset whose verdict was sent last, and the button that sent it

  document.addEventListener("submit", (event) => { if (event.target.matches("[data-judging]")) last = { form: event.target, button: event.submitter }; });

  const failed = (event) => {
    const row = event.detail.elt.closest("[data-bulk] fieldset");
    if (row) row.querySelector("[data-retry]").hidden = false;
    const note = row ? null : document.querySelector("[data-save-failed]");
    if (!note) return;
    note.hidden = false;
    note.querySelector("[data-retry]").focus(); // so that Enter sends it again
  };
  document.addEventListener("htmx:sendError", failed);
  document.addEventListener("htmx:responseError", failed);
  document.addEventListener("htmx:timeout", failed);

  document.addEventListener("htmx:beforeRequest", (event) => {
    const row = event.detail.elt.closest("[data-bulk] fieldset");
    if (row) row.querySelector(".save-state").textContent = "saving …";
  });
  document.addEventListener("htmx:afterRequest", (event) => {
    const row = event.detail.elt.closest("[data-bulk] fieldset");
    if (!row) return;
    if (event.detail.successful) row.querySelector("[data-retry]").hidden = true;
    else row.querySelector(".save-state").textContent = "";
  });

  document.addEventListener("click", (event) => {
    const retry = event.target.closest("[data-retry]");
    if (!retry) return;
    const row = retry.closest("[data-bulk] fieldset");
    if (row) row.dispatchEvent(new Event("change", { bubbles: true }));
    else if (last?.button?.isConnected) last.form.requestSubmit(last.button);
    else window.location.reload();
  });

  // Single keys may be switched off (the help has the switch), and never act while somebody types.
  const keysOff = () => { try { return localStorage.getItem("keys") === "off"; } catch { return false; } };
  document.addEventListener("keydown", (event) => {
    const typing = event.target.closest("textarea, select, input:not([type=radio])");
    if (keysOff() || typing || event.ctrlKey || event.metaKey || event.altKey) return;
    const rows = [...document.querySelectorAll("[data-bulk] fieldset")];
    if (!rows.length) return;
    const here = rows.indexOf(event.target.closest("[data-bulk] fieldset"));
    if (event.key === "j" || event.key === "k") {
      const next = rows[Math.min(Math.max(here + (event.key === "j" ? 1 : -1), 0), rows.length - 1)];
      const radio = next.querySelector("input:checked") || next.querySelector("input");
      radio.focus();
      next.closest(".bulk-row").scrollIntoView({ block: "nearest" });
    } else if (here >= 0) {
      const wanted = event.key === "u" ? "cannot" : event.key;
      const radio = [...rows[here].querySelectorAll("input[type=radio]")].find((one) => one.value === wanted);
      if (!radio) return;
      radio.focus();
      radio.click();
    } else return;
    event.preventDefault();
  });

  // Whether the guidelines are open is kept for the next pair and the next visit.
  const remember = () => document.querySelectorAll("[data-remembered]").forEach((details) => {
    try { details.open = localStorage.getItem(`open-${details.dataset.remembered}`) === "yes"; } catch { /* a private window: it stays as it is */ }
  });
  document.addEventListener("toggle", (event) => {
    const name = event.target.dataset?.remembered;
    try { if (name) localStorage.setItem(`open-${name}`, event.target.open ? "yes" : "no"); } catch { /* as above */ }
  }, { capture: true }); // it does not bubble
  remember();
  document.addEventListener("htmx:afterSwap", remember); // before a key can be pressed on what came
})();
