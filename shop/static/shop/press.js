// Shows that a press is on its way and swallows the second one; the server takes both as the same request anyway.
// Copies a ticket's link. Never sends anything itself. Loaded by the pages that have a form.

document.addEventListener("submit", (event) => {
  const button = event.target.matches("form.buy") && event.target.querySelector("button");
  if (!button) return;
  if (button.ariaDisabled === "true") return void event.preventDefault();
  button.ariaDisabled = "true";
  button.dataset.label = button.textContent;
  button.textContent = button.dataset.sending;
  setTimeout(release, 8000, button);
});
addEventListener("pageshow", (event) => {
  if (event.persisted) document.querySelectorAll("form.buy button").forEach(release);
});
function release(button) {
  if (button.ariaDisabled !== "true") return;
  button.ariaDisabled = null;
  button.textContent = button.dataset.label;
}

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  const link = button.closest(".keep").querySelector("code");
  try {
    await navigator.clipboard.writeText(link.textContent);
    document.querySelector("[data-announce]").textContent = button.textContent = button.dataset.copied;
  } catch {
    getSelection().selectAllChildren(link); // a browser without a clipboard: one press of its own keys is left
  }
});
