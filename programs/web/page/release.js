// Releasing a holder: the dialog asks, names who loses what, and shows the service's answer.

import { byId, element, name } from "./elements.js";
import { count, plain, say, write } from "./format.js";
import { label } from "./holders.js";

const TOKEN = "diesel-locks operator token";
const dialog = byId("dialog");
const ok = byId("dialog-ok");
const tokenField = byId("token");
let latest = null;
/** What the dialog is about: the semaphore, the slot or null for all, and the holders when it was opened. */
let target = null;
let running = false;

/** Takes the state that the dialog compares with. */
export function update(snapshot) {
  latest = snapshot;
  byId("forget").hidden = !snapshot.guarded || !stored();
  if (dialog.open && !running) compare();
}

/** Opens the dialog for a slot, or for all slots of a semaphore if the slot is null. */
export function ask(semaphore, slot) {
  const holders = holdersOf(semaphore, slot);
  if (holders.length === 0) return;
  target = { semaphore, slot, holders };
  const title = slot === null ? `Release all holders of ${plain(semaphore)}?` : `Release slot ${slot} of ${plain(semaphore)}?`;
  say(byId("dialog-title"), title);
  say(ok, slot === null ? `Release ${count(holders.length, "holder")}` : "Release the holder");
  showHolders(holders);
  say(byId("dialog-changed"), "");
  say(byId("dialog-problem"), "");
  askForToken(latest.guarded && !stored());
  ok.disabled = false;
  dialog.showModal();
  if (tokenField.required) tokenField.focus();
}

function holdersOf(semaphore, slot) {
  const found = latest?.semaphores.find((candidate) => candidate.name === semaphore);
  return (found?.slots ?? []).filter((held) => held.state === "held" && (slot === null || held.number === slot));
}

function showHolders(holders) {
  const items = holders.map((slot) => {
    const holder = name();
    write(holder, label(slot.holder));
    const item = element("li", "", holder, ` loses slot ${slot.number}`);
    if (slot.fence) item.append(`, fence ${slot.fence}`);
    return item;
  });
  byId("dialog-holders").replaceChildren(...items);
}

/** Prevents that somebody else is released than the dialog has named. */
function compare() {
  const fences = (holders) => holders.map((slot) => `${slot.number} ${slot.fence}`).join();
  const now = holdersOf(target.semaphore, target.slot);
  if (fences(now) === fences(target.holders)) return;
  target.holders = now;
  if (now.length === 0) {
    say(byId("dialog-changed"), "Nobody holds it any more. There is nothing to release.");
    ok.disabled = true;
  } else if (target.slot === null) {
    say(byId("dialog-changed"), "The holders have changed since this was opened.");
    say(ok, `Release ${count(now.length, "holder")}`);
    ok.disabled = false;
    showHolders(now);
  } else {
    say(byId("dialog-changed"), `The slot was granted to another holder, ${plain(label(now[0].holder))}. Cancel, and look again.`);
    ok.disabled = true;
  }
}

function askForToken(asked) {
  byId("dialog-token").hidden = !asked;
  tokenField.required = asked;
  if (asked) tokenField.value = "";
}

async function release() {
  const { semaphore, slot, holders } = target;
  const guarded = latest.guarded;
  const token = byId("dialog-token").hidden ? stored() : tokenField.value;
  const all = `admin/semaphores/${encodeURIComponent(semaphore)}`;
  // With the fences nobody else is released, should a holder change just now.
  const path = slot === null ? `${all}/release` : `${all}/slots/${slot}/release?fence=${holders[0].fence}`;
  const headers = new Headers();
  if (guarded && token) headers.set("authorization", `Bearer ${token}`);
  let body = null;
  if (slot === null) {
    headers.set("content-type", "application/json");
    body = JSON.stringify({ grants: holders.map(({ number, fence }) => ({ slot: number, fence })) });
  }
  const answer = await fetch(path, { method: "POST", headers, body });
  if (answer.ok) {
    if (guarded) store(token);
    return answer.json();
  }
  if (answer.status === 401) {
    store(null);
    askForToken(true);
    tokenField.focus();
  }
  throw new Error(await problem(answer));
}

/** The title and detail of a problem (RFC 9457), or the status. */
async function problem(answer) {
  const { title, detail } = await answer.json().catch(() => ({}));
  return [title ?? `The service answered ${answer.status}`, detail].filter(Boolean).map(plain).join(": ");
}

byId("dialog-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  if (running) return;
  running = true;
  ok.disabled = true;
  say(byId("dialog-problem"), "");
  const { semaphore, slot } = target;
  try {
    const { released, gone } = await release();
    dialog.close();
    const what = slot === null ? count(released, "holder") : `slot ${slot}`;
    const others = gone ? ` ${count(gone, "other")} had gone before.` : "";
    tell(`Released ${what} of ${plain(semaphore)}.${others}`);
  } catch (error) {
    say(byId("dialog-problem"), error instanceof TypeError ? "The service can’t be reached." : error.message);
  } finally {
    running = false;
    ok.disabled = false;
  }
});

byId("dialog-cancel").addEventListener("click", () => dialog.close());

byId("forget").addEventListener("click", () => {
  store(null);
  byId("forget").hidden = true;
  tell("The token is forgotten.");
});

let hiding = 0;
function tell(text) {
  say(byId("result"), text);
  clearTimeout(hiding);
  hiding = setTimeout(() => say(byId("result"), ""), 8000);
}

/** The token, for as long as the tab is open. Where the browser keeps nothing, for as long as the page is. */
let kept = null;
function stored() {
  try {
    return sessionStorage.getItem(TOKEN) ?? kept;
  } catch {
    return kept;
  }
}

function store(token) {
  kept = token;
  try {
    if (token === null) sessionStorage.removeItem(TOKEN);
    else sessionStorage.setItem(TOKEN, token);
  } catch {
    // It stays in `kept`.
  }
}
