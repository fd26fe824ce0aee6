// What the admin's own templates leave unsaid to a screen reader or out of reach of the keyboard; only words that are on
// the page already are used. Runs when everything is loaded: some of it is made by the admin's own scripts.
const words = document.currentScript.dataset;
addEventListener("load", () => {
  const each = (selector, mend) => document.querySelectorAll(selector).forEach(mend);
  each(".help-tooltip[aria-label]", (tip) => tip.setAttribute("role", "img"));
  each("th:empty", (cell) => cell.replaceWith(document.createElement("td")));
  each("#searchbar", (input) => {
    const said = input.form.querySelector("[type=submit]")?.value ?? "";
    input.setAttribute("aria-label", said);
    each("#changelist-search label img", (picture) => (picture.alt = said));
  });
  each("img[alt=True], img[alt=False]", (picture) => (picture.alt = picture.alt === "True" ? words.yes : words.no));
  each(".datetime input:not([aria-label])", (input) => {
    const row = input.closest(".form-row")?.querySelector("label, legend");
    input.setAttribute("aria-label", `${row?.textContent ?? ""} ${input.previousSibling?.textContent ?? ""}`.replaceAll(":", "").trim());
  });
  each(".select2-search__field:not([aria-label])", (input) => {
    const label = input.closest(".form-row")?.querySelector("label");
    input.setAttribute("aria-label", label?.textContent.replace(":", "").trim() ?? "");
  });
  each("#changelist .results, .inline-group .tabular", (region) => {
    region.tabIndex = 0;
    region.setAttribute("role", "region");
    region.setAttribute("aria-label", document.querySelector("#content h1")?.textContent ?? document.title);
  });
});
