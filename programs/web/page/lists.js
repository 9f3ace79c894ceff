// Figures, object locks, sequences and the list of hand-overs.

import { byId, element, keep, name, row, showTable } from "./elements.js";
import { count, duration, plain, rate, say, wait, write } from "./format.js";
import { colour, label, letter } from "./holders.js";

/** More rows say nothing more to a reader. */
const LISTED_HANDOVERS = 100;
const objects = new Map();
const sequences = new Map();
const handovers = new Map();

/** Shows the lists of a snapshot. */
export function update(snapshot) {
  updateFigures(snapshot);
  updateObjects(snapshot.object_locks);
  updateSequences(snapshot.sequences);
  updateHandovers(snapshot.handovers, snapshot.handovers_cut);
}

/** Brings the times up to date. */
export function tick(now) {
  for (const view of objects.values()) tickObject(view, now);
  if (byId("handovers").open) for (const view of handovers.values()) tickHandover(view, now);
}

function updateFigures({ rates }) {
  say(byId("waiting"), rates.waiting.toLocaleString("en"));
  say(byId("longest"), wait(rates.longest_wait_ms));
  say(byId("granted"), rate(rates.granted_per_s));
  say(byId("refused"), rate(rates.refused_per_s));
  say(byId("timed-out"), rate(rates.timed_out_per_s));
  say(byId("attempts"), rate(rates.attempts_per_s));
}

function updateObjects({ shown, note, locks }) {
  const section = byId("objects");
  showTable(section, locks.length > 0);
  if (!shown) section.querySelector(".empty").hidden = true;
  say(byId("objects-note"), plain(note ?? ""));
  keep(byId("object-rows"), objects, locks, (lock) => JSON.stringify([lock.id, lock.label, lock.session]), objectRow, updateObject);
}

function objectRow() {
  const view = { object: name(), session: name(), held: element("span"), waiters: element("ul", "waiters"), rows: new Map() };
  view.root = row([
    ["Object", view.object],
    ["Session", view.session],
    ["Held for", view.held, "number"],
    ["Waiting", view.waiters],
  ]);
  return view;
}

function updateObject(view, lock) {
  view.lock = lock;
  write(view.object, lock.id ?? lock.label);
  view.object.classList.toggle("unnamed", lock.id === null);
  write(view.session, lock.session);
  const waiters = lock.waiters.length ? lock.waiters : [{ session: null }];
  keep(view.waiters, view.rows, waiters, (waiter) => waiter.session, waiterRow, (waiting, waiter) => {
    waiting.waiter = waiter;
    write(waiting.session, waiter.session === null ? "nobody" : `session ${waiter.session}`);
    waiting.root.classList.toggle("unnamed", waiter.session === null);
  });
}

function waiterRow() {
  const view = { session: name(), since: element("span") };
  view.root = element("li", "", view.session, view.since);
  return view;
}

function tickObject(view, now) {
  say(view.held, view.lock.since_us === null ? "not known" : duration(now - view.lock.since_us));
  for (const { since, waiter } of view.rows.values()) {
    say(since, waiter.since_us ? `, for ${duration(now - waiter.since_us)}` : "");
  }
}

function updateSequences(list) {
  showTable(byId("sequences"), list.length > 0);
  keep(byId("sequence-rows"), sequences, list, (sequence) => JSON.stringify([sequence.name, sequence.key]), sequenceRow, (view, sequence) => {
    write(view.name, sequence.name);
    write(view.key, sequence.key || "none");
    view.key.classList.toggle("unnamed", !sequence.key);
    write(view.last, sequence.last_number ?? "none drawn");
  });
}

function sequenceRow() {
  const view = { name: name(), key: name(), last: name() };
  view.root = row([["Sequence", view.name], ["Key", view.key], ["Last number", view.last, "number"]]);
  return view;
}

function updateHandovers(list, cut) {
  const newest = [...list].sort((a, b) => b.from_us - a.from_us);
  showTable(byId("handovers"), newest.length > 0);
  const holds = cut ? `More than ${count(newest.length, "hold")}` : count(newest.length, "hold");
  say(byId("handovers-title"), `${holds} during the last minute, as a list`);
  say(byId("handovers-cut"), newest.length > LISTED_HANDOVERS ? `Only the newest ${LISTED_HANDOVERS} are listed.` : "");
  const followers = new Map();
  for (const hold of newest) {
    const slot = JSON.stringify([hold.semaphore, hold.slot]);
    hold.next = followers.get(slot);
    followers.set(slot, hold);
  }
  const listed = newest.slice(0, LISTED_HANDOVERS);
  keep(byId("handover-rows"), handovers, listed, (hold) => JSON.stringify([hold.semaphore, hold.slot, hold.from_us]), handoverRow, updateHandover);
}

function handoverRow() {
  const view = { semaphore: name(), slot: element("span"), badge: element("b"), holder: name(), began: element("span"), held: element("span"), next: name() };
  view.root = row([
    ["Semaphore", view.semaphore],
    ["Slot", view.slot, "number"],
    ["Holder", element("span", "holder", view.badge, view.holder)],
    ["Began", view.began, "number"],
    ["Held for", view.held, "number"],
    ["Followed by", view.next],
  ]);
  return view;
}

function updateHandover(view, hold) {
  view.hold = hold;
  write(view.semaphore, hold.semaphore);
  say(view.slot, String(hold.slot));
  view.badge.className = `badge ${colour(hold.holder)}`;
  write(view.badge, letter(hold.holder));
  write(view.holder, label(hold.holder));
  write(view.next, hold.next ? label(hold.next.holder) : hold.to_us === null ? "still held" : "nobody yet");
  view.next.classList.toggle("unnamed", !hold.next);
}

function tickHandover(view, now) {
  say(view.began, `${duration(now - view.hold.from_us)} ago`);
  say(view.held, duration((view.hold.to_us ?? now) - view.hold.from_us));
}
