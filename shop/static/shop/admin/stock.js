// Keeps the live table of stock up to date.
import { place, watch, write } from "./live.js";

const page = document.getElementById("live");
watch({
  address: () => page.dataset.url,
  show(answer) {
    place(answer.parts);
    write("live-at", answer.at);
    write("live-error", answer.error ? page.dataset.away : "");
    document.getElementById("live-error").hidden = !answer.error;
  },
  say: (text) => write("live-state", text),
});
