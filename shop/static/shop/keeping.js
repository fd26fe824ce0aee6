// Keeps what a script finds again after a reload, as JSON. Never fails.

export function kept(name) {
  let text = null;
  try {
    text = localStorage.getItem(name);
    return JSON.parse(text);
  } catch {
    return text; // an alert of before
  }
}

export function keep(name, value) {
  try {
    if (value) localStorage.setItem(name, JSON.stringify(value));
    else localStorage.removeItem(name);
  } catch { /* nothing is kept */ }
}
