"use strict";
(() => {
  const words = document.getElementById("words");
  if (!words) return;
  const shown = document.getElementById("shown");
  const buttons = [...document.querySelectorAll("button[data-group]")];
  const items = [...document.querySelectorAll("[data-item]")].map((element) => ({
    element,
    groups: (element.dataset.groups || "").split(" "),
    text: element.textContent.toLowerCase(),
  }));
  const filter = () => {
    const groups = buttons.filter((b) => b.ariaPressed === "true").map((b) => b.dataset.group);
    const wanted = words.value.toLowerCase().split(/\s+/).filter(Boolean);
    let count = 0;
    for (const { element, groups: own, text } of items) {
      const fits = (!groups.length || groups.some((g) => own.includes(g))) && wanted.every((w) => text.includes(w));
      element.hidden = !fits;
      count += fits;
    }
    shown.textContent = `${count} shown`;
  };
  for (const button of buttons) {
    button.addEventListener("click", () => {
      button.ariaPressed = button.ariaPressed === "true" ? "false" : "true";
      filter();
    });
  }
  words.addEventListener("input", filter);
  document.getElementById("filters").addEventListener("submit", (event) => event.preventDefault());
})();
