// Shows that a press is on its way and swallows the second one; the server takes both as the same request anyway.
// Never sends anything itself. Loaded by the sale page.

for (const form of document.querySelectorAll("form.buy")) {
  const button = form.querySelector("button");
  form.addEventListener("submit", (event) => {
    if (button.ariaDisabled === "true") return void event.preventDefault();
    button.ariaDisabled = "true";
    button.dataset.label = button.textContent;
    button.textContent = button.dataset.sending;
    setTimeout(release, 8000, button);
  });
  addEventListener("pageshow", (event) => event.persisted && release(button));
}
function release(button) {
  if (button.ariaDisabled !== "true") return;
  button.ariaDisabled = null;
  button.textContent = button.dataset.label;
}
