// Forms of the admin: a file that is too large is named before it is sent, and kept terms fill in their fields in place.
// Without this script the server says the first, and a link loads the form with those terms.
document.addEventListener("DOMContentLoaded", () => {
  for (const input of document.querySelectorAll("input[type=file][data-most-bytes]")) {
    const said = document.createElement("p");
    said.setAttribute("role", "alert");
    said.className = "file-error";
    input.after(said);
    input.addEventListener("change", () => {
      const isTooLarge = input.files.length > 0 && input.files[0].size > Number(input.dataset.mostBytes);
      said.textContent = isTooLarge ? input.dataset.tooLarge : "";
      if (isTooLarge) input.value = "";
    });
  }
  for (const link of document.querySelectorAll("a[data-fills]")) {
    link.addEventListener("click", (event) => {
      event.preventDefault();
      const form = link.closest("form");
      for (const [name, value] of new URL(link.href).searchParams) {
        if (form.elements[name]) form.elements[name].value = value;
      }
    });
  }
});
