// The page: reads the state again and again, shows it, and releases slots.
//
// Everything from the service becomes the text of a node: no markup in it is ever interpreted.

/** The pause between two readings: at least this, and four times as long as a reading takes. */
const PAUSE_MS = 1000;
const LONGEST_PAUSE_MS = 10_000;
/** A reading that takes longer is given up. What is older than the longest pause and this is shown with its age. */
const LIMIT_MS = 5000;

const byId = (id) => document.getElementById(id);
/** Of the page, under whatever path it is mounted. */
const base = location.pathname.replace(/\/*$/, "/");
let snapshot = null;
let problem = null;
let arrived = 0;
let timer = 0;
let newest = 0;
let reading = new AbortController();

const prefix = byId("prefix");
prefix.value = new URLSearchParams(location.search).get("prefix") ?? "";
prefix.oninput = () => {
  const search = prefix.value && `?${new URLSearchParams({ prefix: prefix.value })}`;
  history.replaceState(null, "", location.pathname + search);
  load();
};
document.onvisibilitychange = () => {
  if (document.hidden) return;
  showAge();
  load();
};
setInterval(showAge, 1000);
load();

async function load() {
  clearTimeout(timer);
  const started = performance.now();
  const number = newest += 1;
  reading.abort();
  reading = new AbortController();
  const answer = await read(prefix.value);
  // The filter has changed meanwhile.
  if (number !== newest) return;
  problem = answer.problem;
  if (!problem) {
    snapshot = answer;
    arrived = performance.now();
    show();
  }
  showAge();
  const pause = Math.min(Math.max(PAUSE_MS, 4 * (performance.now() - started)), LONGEST_PAUSE_MS);
  // A page that nobody sees reads again when it is seen.
  timer = setTimeout(() => document.hidden || load(), pause);
}

async function read(prefix) {
  try {
    const answer = await fetch(`${base}state?${new URLSearchParams({ prefix })}`, { signal: AbortSignal.any([reading.signal, AbortSignal.timeout(LIMIT_MS)]) });
    const body = await answer.json();
    return answer.ok ? body : { problem: { what: "Not read", why: `${sentence(body.detail)}.` } };
  } catch {
    return { problem: { what: "Reconnecting", why: "The page can’t reach the service." } };
  }
}

function showAge() {
  const since = Math.floor((performance.now() - arrived) / 1000);
  const isOld = snapshot && since * 1000 > LONGEST_PAUSE_MS + LIMIT_MS;
  write(byId("connection"), problem?.what ?? (snapshot && !isOld ? "Live" : "Connecting"));
  write(byId("stale-why"), problem?.why ?? "");
  write(byId("age"), duration(since));
  byId("stale-age").hidden = !snapshot;
  byId("stale").hidden = !problem && !isOld;
}

function show() {
  const { object_locks, semaphores, sequences } = snapshot.lists;
  write(byId("name"), snapshot.name);
  document.title = `${snapshot.name || "Locks"} · diesel-locks`;
  showTable("object-locks", object_locks, (lock) => [
    lock.id ?? "(not shown)",
    lock.session,
    lock.held_s === null ? "not known" : duration(lock.held_s),
  ], (row, lock) => {
    mark(row.cells[1], lock.session);
    row.classList.toggle("waited-for", lock.waiters.length > 0);
    keep(row.cells[3] ?? row.insertCell(), lock.waiters, ({ session }) => session, () => create("div"), (waiter, { session, waited_s }) => {
      write(waiter, session + (waited_s === null ? "" : ` for ${duration(waited_s)}`));
      mark(waiter, session);
    });
  });
  byId("requests").hidden = !snapshot.requests;
  if (snapshot.requests) {
    showTable("requests", snapshot.requests, (request) => [
      sentence(request.subject),
      request.inside_s === null ? "waits" : `inside for ${duration(request.inside_s)}`,
      `${duration(request.age_s)} ago`,
    ]);
  }
  byId("history").hidden = !snapshot.history;
  if (snapshot.history) showHistory(snapshot.history);
  showCount("semaphores", semaphores);
  const groups = Map.groupBy(semaphores.rows, ({ name }) => name.includes(":") ? name.slice(0, name.indexOf(":") + 1) : "");
  keep(document.querySelector("#semaphores > div"), [...groups], ([name]) => name, newGroup, (group, [name, of]) => showGroup(group, name, of, groups.size));
  showTable("sequences", sequences, (sequence) => [sequence.name, sequence.key ?? "", sequence.last_number]);
  document.querySelector("main").hidden = false;
}

/** How many rows are shown of how many, or why there are none. */
function showCount(id, { rows, total, may_be_more, refusal }) {
  const find = (selector) => document.querySelector(`#${id} > ${selector}`);
  const most = may_be_more ? `at least ${total.toLocaleString("en")}` : total.toLocaleString("en");
  write(find("h2 > small"), total || may_be_more ? `${rows.length.toLocaleString("en")} of ${most} shown` : "");
  const empty = find(".empty");
  empty.unfiltered ??= empty.textContent;
  write(empty, prefix.value ? "None whose name begins with this text." : empty.unfiltered);
  empty.hidden = total > 0 || may_be_more || Boolean(refusal);
  write(find(".refusal"), refusal ? `Not shown: ${refusal}.` : "");
}

/** Rows of equal texts in their first cells are told apart by their order. */
function showTable(id, list, texts, more = () => {}, first = 2) {
  const table = document.querySelector(`#${id} > table`);
  showCount(id, list);
  table.hidden = list.rows.length === 0;
  const seen = new Map();
  const rows = list.rows.map((item) => {
    const cells = texts(item);
    const key = JSON.stringify(cells.slice(0, first));
    seen.set(key, (seen.get(key) ?? 0) + 1);
    return { item, cells, key: key + seen.get(key) };
  });
  keep(table.tBodies[0], rows, ({ key }) => key, () => document.createElement("tr"), (row, { item, cells }) => {
    writeCells(row, cells);
    more(row, item);
  });
}

/** What the process has recorded, by its metrics, of object locks and of each semaphore. */
function showHistory(history) {
  showTable("history", history, ({ name, granted, refused, timed_out, failed, mean_wait_s, most_waiting }) => [
    name ?? "Object locks",
    ...[granted, refused, timed_out, failed].map((count) => count.toLocaleString("en")),
    mean_wait_s === null ? "" : wait(mean_wait_s),
    most_waiting.toLocaleString("en"),
  ], (row, { minutes, most_inside }) => {
    if (!row.cells[7]) row.insertCell().append(newChart(), create("small"));
    const [chart, text] = row.cells[7].children;
    const used = minutes.map(([ago, inside]) => `M${59 - ago} 20v${-14 * inside / (most_inside || 1)}h1V20z`);
    const marked = minutes.filter(([, , notGranted]) => notGranted > 0).map(([ago]) => ago);
    chart.children[0].setAttribute("d", used.join(""));
    chart.children[1].setAttribute("d", marked.map((ago) => `M${59 - ago} 0h1v4h-1z`).join(""));
    chart.setAttribute("aria-label", marked.length ? `Refused, timed out or failed ${marked.join(", ")} minutes ago` : "None refused, timed out or failed");
    write(text, `at most ${most_inside.toLocaleString("en")}`);
  }, 1);
  write(byId("recorded"), history.seconds < 3600 ? `Recorded for ${duration(history.seconds)}.` : "");
}

/** 60 minutes from left to right. */
function newChart() {
  const svg = (tag) => document.createElementNS("http://www.w3.org/2000/svg", tag);
  const chart = svg("svg");
  chart.setAttribute("viewBox", "0 0 60 20");
  chart.setAttribute("preserveAspectRatio", "none");
  chart.setAttribute("role", "img");
  chart.append(svg("path"), svg("path"));
  return chart;
}

/** The semaphores whose names have the same text before a colon: a table of those with leases, and the others folded. */
function newGroup() {
  const group = create("div");
  const table = create("table", "slots");
  table.createTHead().insertRow().append(...["Slot", "Holder", "Held for", "Time left", "Fence", ""].map((title) => create("th", "", title)));
  const free = create("details");
  free.append(create("summary"), create("ul"));
  free.ontoggle = () => showFree(free);
  group.append(create("h3"), table, free);
  return group;
}

function showGroup(group, name, semaphores, groups) {
  const [title, table, free] = group.children;
  const isLeased = ({ held, slots }) => held > 0 || slots.length > 0;
  const held = semaphores.filter(isLeased);
  title.hidden = name === "" && groups === 1;
  write(title, name || "Without a group");
  table.hidden = held.length === 0;
  keep(table, held, (semaphore) => semaphore.name, newSemaphore, showSemaphore, 1);
  free.semaphores = semaphores.filter((semaphore) => !isLeased(semaphore));
  free.hidden = free.semaphores.length === 0;
  const count = free.semaphores.length;
  write(free.firstChild, count === 1 ? "1 semaphore without a lease" : `${count.toLocaleString("en")} semaphores without a lease`);
  showFree(free);
}

/** Nothing is built that is folded. */
function showFree(free) {
  keep(free.lastChild, free.open ? free.semaphores : [], ({ name }) => name, () => create("li"), (item, { name, permits }) => {
    const number = permits === 0 ? "paused: no permits" : permits === 1 ? "1 permit" : `${permits} permits`;
    write(item, permits === null ? name : `${name} (${number})`);
  });
}

/** A body of the table: a row for the semaphore, and one for each slot that is not free. */
function newSemaphore() {
  const body = create("tbody");
  const row = body.insertRow();
  const name = create("th");
  name.scope = "rowgroup";
  name.colSpan = 6;
  name.append(create("bdi"), " ", create("small"));
  row.append(name);
  return body;
}

function showSemaphore(body, semaphore) {
  const { name, permits, held, slots } = semaphore;
  body.item = semaphore;
  const [title, count] = body.rows[0].cells[0].children;
  write(title, name);
  const of = permits === null ? "" : ` of ${permits}`;
  const rest = held > slots.length ? `, ${slots.length} shown` : "";
  write(count, `${slots.filter((slot) => !slot.released).length + Math.max(0, held - slots.length)}${of} held${rest}`);
  keep(body, slots, (slot) => slot.number, newSlot, showSlot, 1);
}

function newSlot() {
  const row = create("tr");
  for (let cell = 0; cell < 6; cell += 1) row.insertCell();
  row.cells[4].className = "fence";
  for (const act of snapshot.may_act ? ACTS : []) {
    const button = create("button", "", `${act.name}…`);
    button.onclick = () => ask(act, row.parentElement.item, row.item);
    row.cells[5].append(button);
  }
  return row;
}

function showSlot(row, slot) {
  row.item = slot;
  const holder = slot.holder || "(no name)";
  const asked = slot.requested_s === null ? "" : `\nrelease requested ${duration(slot.requested_s)} ago`;
  writeCells(row, slot.released
    ? [String(slot.number), `released by ${holder}`, "", `free in ${duration(slot.left_s)}`, ""]
    : [String(slot.number), holder + asked, duration(slot.held_s), duration(slot.left_s), `…${slot.fence.slice(-6)}`]);
  mark(row.cells[1], holder);
  row.classList.toggle("released", slot.released);
  row.cells[4].title = slot.released ? "" : slot.fence;
  for (const button of row.cells[5].children) {
    button.hidden = slot.released;
    button.setAttribute("aria-label", `${button.textContent} slot ${slot.number}, held by ${holder}`);
  }
}

/** Gives the element a letter and a colour, which a holder's text has everywhere. */
function mark(element, text) {
  if (element.marked === text) return;
  element.marked = text;
  let hash = 2166136261;
  for (const c of text) hash = Math.imul(hash ^ c.codePointAt(0), 16777619) >>> 0;
  hash = Math.imul(hash ^ (hash >>> 15), 2246822519) >>> 0;
  element.classList.add("holder");
  element.dataset.letter = String.fromCharCode(65 + (hash >>> 8) % 26);
  element.style.setProperty("--hue", hash % 360);
}

function create(tag, className = "", text = "") {
  const element = document.createElement(tag);
  if (className) element.className = className;
  element.textContent = text;
  return element;
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
  let present = parent.children[first] ?? null;
  for (const item of items) {
    const key = String(keyOf(item));
    const child = known.get(key) ?? create();
    child.dataset.key = key;
    if (present === child) present = child.nextElementSibling;
    else parent.insertBefore(child, present);
    update(child, item);
  }
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

function wait(seconds) {
  if (seconds < 0.001) return "under 1 ms";
  if (seconds < 0.9995) return `${Math.round(seconds * 1000)} ms`;
  return seconds < 59.95 ? `${seconds.toFixed(1)} s` : duration(Math.round(seconds));
}

/** A duration in the two largest units. */
function duration(seconds) {
  const minutes = Math.floor(seconds / 60);
  if (minutes < 1) return `${seconds} s`;
  if (minutes < 60) return `${minutes} min ${seconds % 60} s`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

const ACTS = [
  {
    name: "Request release",
    path: "request-release",
    done: "Requested the release of",
    effect: "The holder sees the request at its next renewal. Leaders, jobs on a timer and “diesel-locks run” then release the slot; other programs if they look for it.",
  },
  {
    name: "Release",
    path: "release",
    done: "Released",
    effect: "The holder is not told: it continues until it renews, releases or pins its slot, and another holder may be granted the slot at once. Release it only when it is known to have stopped.",
  },
];

/** What the dialog is about: an act, a semaphore, and a slot as it was shown. */
let target = null;

function ask(act, semaphore, slot) {
  target = { act, semaphore, slot };
  const name = create("bdi", "", semaphore.name);
  byId("dialog-title").replaceChildren(`${act.name} ${act.path === "release" ? "" : "of "}slot ${slot.number} of `, name, "?");
  byId("dialog-holder").replaceChildren("Held by ", create("bdi", "", slot.holder || "(no name)"), `, fence ${slot.fence}`);
  write(byId("dialog-effect"), act.effect);
  write(byId("dialog-ok"), act.name);
  write(byId("dialog-problem"), "");
  byId("dialog").showModal();
}

async function perform({ act, semaphore, slot }) {
  const answer = await fetch(base + act.path, {
    method: "POST",
    headers: { "authorization": `Bearer ${byId("token").value}`, "content-type": "application/json" },
    // With the fence nobody else is released, should the holder change just now.
    body: JSON.stringify({ semaphore: semaphore.name, slot: slot.number, fence: slot.fence }),
  });
  const { detail } = await answer.json();
  if (!answer.ok) throw new Error(sentence(detail));
  byId("result").replaceChildren(`${act.done} slot ${slot.number} of `, create("bdi", "", semaphore.name), ".");
  load();
}

byId("dialog-form").onsubmit = async (event) => {
  event.preventDefault();
  byId("dialog-ok").disabled = true;
  try {
    await perform(target);
    byId("dialog").close();
  } catch (error) {
    write(byId("dialog-problem"), error.message);
  }
  byId("dialog-ok").disabled = false;
};

byId("dialog-cancel").onclick = () => byId("dialog").close();
