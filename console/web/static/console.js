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
