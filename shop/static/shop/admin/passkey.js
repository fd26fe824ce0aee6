// Sets a passkey up, or shows one: hands the server's options to the browser, and the browser's answer to the form.
const form = document.querySelector("[data-passkey]");
const usable = window.PublicKeyCredential?.parseRequestOptionsFromJSON && PublicKeyCredential.parseCreationOptionsFromJSON;

const ask = {
  create: (options) => navigator.credentials.create({ publicKey: PublicKeyCredential.parseCreationOptionsFromJSON(options) }),
  get: (options) => navigator.credentials.get({ publicKey: PublicKeyCredential.parseRequestOptionsFromJSON(options) }),
};

async function answer(event) {
  event.preventDefault();
  const refused = form.querySelector("[role=alert]");
  refused.textContent = "";
  try {
    const credential = await ask[form.dataset.passkey](JSON.parse(form.dataset.options));
    form.elements.credential.value = JSON.stringify(credential);
  } catch {
    refused.textContent = form.dataset.failed; // refused, ended or not possible: the browser has said why
    return;
  }
  form.submit();
}

if (form && usable) {
  document.getElementById("passkey-unusable").hidden = true;
  form.hidden = false;
  form.addEventListener("submit", answer);
}
