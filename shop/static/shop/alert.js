// Tells a buyer who looks at another tab that a unit is held for them: by a sound and, where the browser may, by a
// notification. Only for those who pressed its button; asks for the permission then and at no other time.

const NOTES_HZ = [660, 880];
const NOTE_SECONDS = 0.25;
const VOLUME = 0.2;
const ticket = () => document.querySelector("[data-ticket]");
const button = () => document.querySelector("[data-alert]");
const KEPT = `fairdrop:alert:${ticket().dataset.id}`;
const texts = { ...button().dataset };
let isOn = isKept();
let before = ticket().dataset.state;
let audio = null;

function isKept() {
  try {
    return Boolean(localStorage.getItem(KEPT));
  } catch {
    return false;
  }
}

function keep() {
  try {
    if (isOn) localStorage.setItem(KEPT, "on");
    else localStorage.removeItem(KEPT);
  } catch { /* then it holds until the page is loaded again */ }
}

const mayNotify = () => "Notification" in window && Notification.permission === "granted";

function show() {
  if (button()) button().textContent = isOn ? (mayNotify() ? texts.on : texts.sound) : texts.off;
}

function ring() {
  try {
    audio ??= new AudioContext();
    audio.resume().catch(() => {}); // refused after a reload, until the page is touched: the notification is left
    NOTES_HZ.forEach((hertz, index) => {
      const begins = audio.currentTime + index * NOTE_SECONDS;
      const [note, volume] = [audio.createOscillator(), audio.createGain()];
      note.frequency.value = hertz;
      volume.gain.setValueAtTime(VOLUME, begins);
      volume.gain.exponentialRampToValueAtTime(0.001, begins + NOTE_SECONDS);
      note.connect(volume).connect(audio.destination);
      note.start(begins);
      note.stop(begins + NOTE_SECONDS);
    });
  } catch { /* a browser without sound */ }
}

function notify(text) {
  if (!mayNotify()) return;
  try {
    const shown = new Notification(text, { body: ticket().querySelector("h2").textContent, tag: KEPT });
    shown.onclick = () => { window.focus(); shown.close(); };
  } catch { /* some phones let only installed pages do it: the sound is left */ }
}

function look() {
  const state = ticket()?.dataset.state;
  show();
  if (isOn && state === "held" && before !== "held" && document.hidden) {
    const left = ticket().querySelector("[data-until]").textContent;
    notify(texts.text.replace("{what}", ticket().querySelector("h1").textContent.trim()).replace("{left}", left));
    ring();
  }
  before = state;
}

// The buyer hears the sound once; a browser plays none later that it did not play at a press.
export async function press() {
  isOn = !isOn;
  keep();
  if (isOn) {
    ring();
    if ("Notification" in window) await Notification.requestPermission();
  }
  show();
  document.querySelector("[data-announce]").textContent = button()?.textContent ?? "";
}

document.addEventListener("parts-replaced", look);
show();
