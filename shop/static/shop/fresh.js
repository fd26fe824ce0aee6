// Gets a part of this page as it is now, for scripts that keep an open page true. Never puts anything in.

let tag = "";

// The next answer counts, even if it is the page that was seen before: a script has changed what is shown.
export function forget() {
  tag = "";
}

// Returns null when it is the page of the last answer, and when it has no such part; fails when there is no answer.
export async function fresh(part) {
  const response = await fetch(location.pathname, { cache: "no-cache", signal: AbortSignal.timeout?.(8000) });
  if (!response.ok) throw new Error(response.status);
  const name = response.headers.get("ETag");
  if (name && name === tag) return null;
  const text = await response.text(); // which may break off: then this page was not seen
  tag = name ?? "";
  return new DOMParser().parseFromString(text, "text/html").querySelector(part);
}
