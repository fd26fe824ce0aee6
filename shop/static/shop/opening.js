// Opens a sale that the page shows, when the countdown says so. Never decides anything: the server refuses a press that
// comes too early. Loaded before the countdown, which may say so at once.

document.addEventListener("moment-to-open", ({ target }) => {
  const scope = target.closest("[data-scheduled]") ?? document;
  if (scope.dataset?.state) scope.dataset.state = "open";
  for (const element of scope.querySelectorAll("[data-when]")) {
    element.hidden = element.dataset.when !== "open";
    if (!element.matches("[data-announced]")) continue;
    document.querySelector("[data-announce]").textContent = element.textContent.trim();
  }
  for (const button of scope.querySelectorAll("button[data-opens]")) {
    button.disabled = false;
    button.textContent = button.dataset.opens;
  }
  document.dispatchEvent(new Event("opened-by-the-clock"));
});
