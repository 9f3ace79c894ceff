// The operator's page: reads the state as server-sent events, shows it, and releases slots.
//
// Everything from the service becomes the text of a node: no markup in it is ever interpreted.

/** The service sends an event at least every 3 s. What is older than this is shown as such. */
const STALE_MS = 5000;
/** A stream that is silent for this long is opened again, in case nobody is at its other end. */
const SILENT_MS = 10_000;

const byId = (id) => document.getElementById(id);
let source = null;
let opened = 0;
let arrived = 0;
let isCut = false;
let snapshot = null;

function open() {
  source?.close();
  source = new EventSource("events");
  opened = performance.now();
  source.onmessage = (event) => {
    snapshot = JSON.parse(event.data);
    arrived = performance.now();
    isCut = false;
    show();
    showAge();
  };
  source.onerror = () => { isCut = true; };
}

setInterval(() => {
  // The browser opens a stream again that was cut, but not after every kind of error.
  const isSilent = performance.now() - Math.max(arrived, opened) > SILENT_MS;
  if (isSilent) open();
  showAge();
}, 1000);
open();

function showAge() {
  if (!snapshot) return;
  const since = performance.now() - arrived;
  const isLost = isCut || since >= STALE_MS;
  const problem = isLost ? "The page reconnects to the service." : snapshot.error && `${sentence(snapshot.error)}.`;
  write(byId("connection"), isLost ? "Reconnecting" : problem ? "Database down" : "Live");
  write(byId("stale-why"), problem ?? "");
  write(byId("age"), duration(snapshot.age_s + Math.floor(since / 1000)));
  byId("stale").hidden = !problem;
}

function show() {
  write(byId("source"), `${snapshot.engine} · ${snapshot.instance}`);
  const table = document.querySelector("table");
  keep(table, snapshot.semaphores, (semaphore) => semaphore.name, newSemaphore, showSemaphore, 1);
  showOrEmpty(table, snapshot.semaphores);
  showRows(byId("object-locks"), snapshot.object_locks, (lock) => [
    lock.id ?? "(not shown)",
    lock.session,
    lock.held_s === null ? "not known" : duration(lock.held_s),
    lock.waiters.map((waiter) => waiter.session + (waiter.waited_s === null ? "" : ` for ${duration(waiter.waited_s)}`)).join(", "),
  ]);
  write(byId("object-locks-note"), snapshot.object_locks_note ?? "");
  showRows(byId("sequences"), snapshot.sequences, (sequence) => [sequence.name, sequence.key ?? "", sequence.last_number]);
}

/** A body of the table: a row for the semaphore, and one for each slot that is not free. */
function newSemaphore() {
  const body = document.createElement("tbody");
  const row = body.insertRow();
  const name = row.insertCell();
  name.colSpan = 2;
  row.insertCell().colSpan = 3;
  addButton(row, "Release all…", () => ask(body.item, held(body.item)));
  return body;
}

function showSemaphore(body, semaphore) {
  const { name, permits, slots } = semaphore;
  body.item = semaphore;
  const holders = held(semaphore).length;
  const [head] = body.rows;
  writeCells(head, [name, `${holders} of ${permits} held`]);
  head.querySelector("button").hidden = holders < 2;
  keep(body, slots, (slot) => slot.number, newSlot, showSlot, 1);
}

const held = (semaphore) => semaphore.slots.filter((slot) => !slot.released);

function newSlot() {
  const row = document.createElement("tr");
  for (let cell = 0; cell < 5; cell += 1) row.insertCell();
  addButton(row, "Release…", () => ask(row.parentElement.item, [row.item]));
  return row;
}

function showSlot(row, slot) {
  row.item = slot;
  const holder = slot.holder || "(no name)";
  writeCells(row, slot.released
    ? [String(slot.number), `released by ${holder}`, "", `free in ${duration(slot.left_s)}`, ""]
    : [String(slot.number), holder, duration(slot.held_s), duration(slot.left_s), slot.fence]);
  const button = row.querySelector("button");
  button.hidden = slot.released;
  button.setAttribute("aria-label", `Release slot ${slot.number}, held by ${holder}`);
}

function addButton(row, text, onclick) {
  const button = document.createElement("button");
  button.textContent = text;
  button.onclick = onclick;
  row.insertCell().append(button);
}

function showRows(body, items, texts) {
  keep(body, items.map(texts), ([first, second]) => JSON.stringify([first, second]), () => document.createElement("tr"), writeCells);
  showOrEmpty(body.closest("table"), items);
}

function showOrEmpty(table, items) {
  table.hidden = items.length === 0;
  table.parentElement.querySelector(".empty").hidden = items.length > 0;
}

/**
 * Keeps the children of an element in step with items, but for the first ones: an item of the same key keeps its element,
 * and with it the focus and what the pointer presses.
 */
function keep(parent, items, keyOf, create, update, first = 0) {
  const keys = new Set(items.map((item) => String(keyOf(item))));
  const known = new Map();
  for (const child of [...parent.children].slice(first)) {
    if (keys.has(child.dataset.key)) known.set(child.dataset.key, child);
    else child.remove();
  }
  items.forEach((item, index) => {
    const key = String(keyOf(item));
    const child = known.get(key) ?? create();
    child.dataset.key = key;
    const present = parent.children[first + index];
    if (present !== child) parent.insertBefore(child, present ?? null);
    update(child, item);
  });
}

function writeCells(row, texts) {
  texts.forEach((text, index) => write(row.cells[index] ?? row.insertCell(), text));
}

/** Sets the text of an element, if it is another one: a text that is selected stays so. */
function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function sentence(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/** A duration in the two largest units. */
function duration(seconds) {
  const minutes = Math.floor(seconds / 60);
  if (minutes < 1) return `${seconds} s`;
  if (minutes < 60) return `${minutes} min ${seconds % 60} s`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

/** What the dialog is about: a semaphore, and the slots that are released if they still have the same holders. */
let target = null;

function ask(semaphore, slots) {
  target = { semaphore: semaphore.name, slots };
  const what = slots.length === 1 ? `slot ${slots[0].number}` : `${slots.length} slots`;
  write(byId("dialog-title"), `Release ${what} of ${semaphore.name}?`);
  byId("dialog-holders").replaceChildren(...slots.map((slot) => {
    const item = document.createElement("li");
    item.textContent = `${slot.holder || "(no name)"} loses slot ${slot.number}, fence ${slot.fence}`;
    return item;
  }));
  write(byId("dialog-problem"), "");
  byId("dialog").showModal();
}

async function release({ semaphore, slots }) {
  const answer = await fetch(`admin/semaphores/${encodeURIComponent(semaphore)}/release`, {
    method: "POST",
    headers: { "authorization": `Bearer ${byId("token").value}`, "content-type": "application/json" },
    // With the fences nobody else is released, should a holder change just now.
    body: JSON.stringify({ grants: slots.map(({ number, fence }) => ({ slot: number, fence })) }),
  });
  const { detail, released, gone } = await answer.json();
  if (!answer.ok) throw new Error(sentence(detail));
  write(byId("result"), `Released ${released} of ${semaphore}${gone ? `; ${gone} had ended before` : ""}.`);
}

byId("dialog-form").onsubmit = async (event) => {
  event.preventDefault();
  byId("dialog-ok").disabled = true;
  try {
    await release(target);
    byId("dialog").close();
  } catch (error) {
    write(byId("dialog-problem"), error.message);
  }
  byId("dialog-ok").disabled = false;
};

byId("dialog-cancel").onclick = () => byId("dialog").close();
