// Keys for those who like them; every page works without this file.
"use strict";
(() => {
  const typing = (target) => target.closest("input, textarea, select, [contenteditable]");
  let waitsForLetter = false;
  let row = -1;

  const rows = () => [...document.querySelectorAll("main tbody tr")];

  const move = (step) => {
    const all = rows();
    if (!all.length) return;
    all[row]?.classList.remove("at");
    row = Math.max(0, Math.min(all.length - 1, row + step));
    all[row].classList.add("at");
    all[row].scrollIntoView({ block: "nearest" });
    all[row].querySelector("a")?.focus({ preventScroll: true });
  };

  const follow = (table) => {
    let source = null;
    const note = document.querySelector("[data-note]");
    const say = (text) => { if (note) note.textContent = text; };
    const open = () => {
      source = new EventSource(table.dataset.live);
      source.addEventListener("open", () => say("What is written from now on appears at the top."));
      source.addEventListener("error", () => say("The stream is interrupted; it is tried again."));
      source.addEventListener("note", (event) => say(event.data));
      source.addEventListener("rows", (event) => {
        table.insertAdjacentHTML("afterbegin", event.data);
        while (table.rows.length > 500) table.deleteRow(-1);
      });
    };
    document.addEventListener("visibilitychange", () => {
      if (document.hidden) { source?.close(); source = null; } else if (!source) { open(); }
    });
    open();
  };
  document.querySelectorAll("[data-live]").forEach(follow);

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || typing(event.target)) return;
    if (waitsForLetter) {
      waitsForLetter = false;
      const link = document.querySelector(`header nav a[data-key="${CSS.escape(event.key)}"]`);
      if (link) { event.preventDefault(); link.click(); }
    } else if (event.key === "g") {
      waitsForLetter = true;
    } else if (event.key === "/") {
      const field = document.querySelector("[data-search]");
      if (field) { event.preventDefault(); field.focus(); field.select(); }
    } else if (event.key === "j") {
      move(1);
    } else if (event.key === "k") {
      move(-1);
    } else if (event.key === "?") {
      document.querySelector("footer")?.scrollIntoView();
    }
  });
})();
