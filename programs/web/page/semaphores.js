// The semaphores: a card for each, with a row for each slot.

import { byId, element, keep, name, row } from "./elements.js";
import { count, countDown, duration, plain, say, write } from "./format.js";
import { colour, label, letter } from "./holders.js";
import { lane, moveLane, updateLane } from "./lane.js";

/** A semaphore with more slots lists only those that are held, or were during the last minute. */
const LISTED_SLOTS = 12;
const COLUMNS = [["Slot", "number"], ["Holder"], ["Held for", "number"], ["Time left", "number"], ["Fence", "number"], ["Last minute", "lane-cell"], ["", "action"]];
const cards = new Map();
const list = byId("semaphore-list");

/** Shows the semaphores of a snapshot. `release` is called with a semaphore's name, and a slot's number or null. */
export function update(snapshot, release) {
  byId("lanes-cut").hidden = !snapshot.handovers_cut;
  const holds = Map.groupBy
    ? Map.groupBy(snapshot.handovers, holdKey)
    : snapshot.handovers.reduce((map, hold) => map.set(holdKey(hold), [...(map.get(holdKey(hold)) ?? []), hold]), new Map());
  byId("semaphores").querySelector(":scope > .empty").hidden = snapshot.semaphores.length > 0;
  byId("semaphores").querySelector(".legend").hidden = snapshot.semaphores.length === 0;
  keep(list, cards, snapshot.semaphores, (semaphore) => semaphore.name, (semaphore) => card(semaphore, release),
    (view, semaphore) => updateCard(view, semaphore, holds, release));
}

const key = (semaphore, slot) => JSON.stringify([semaphore, slot]);
const holdKey = (hold) => key(hold.semaphore, hold.slot);

/** Moves the bars and counts down. `stale`: the leases may have been renewed since. */
export function tick(now, stale) {
  for (const view of cards.values()) for (const slot of view.slots.values()) tickSlot(slot, now, stale);
}

function card(semaphore, release) {
  const title = name();
  const permits = element("p", "permits");
  const all = element("button", "quiet", "Release all…");
  all.type = "button";
  all.addEventListener("click", () => release(semaphore.name, null));
  all.setAttribute("aria-label", `Release all holders of ${plain(semaphore.name)}`);
  const head = element("tr");
  head.setAttribute("role", "row");
  for (const [text, className] of COLUMNS) {
    const cell = element("th", className, text);
    cell.scope = "col";
    cell.setAttribute("role", "columnheader");
    if (className === "lane-cell") cell.replaceChildren(axis());
    if (className === "action") cell.append(element("span", "for-screen-readers", "Release"));
    head.append(cell);
  }
  const header = element("thead", "", head);
  const body = element("tbody");
  const table = element("table", "slots cards", header, body);
  for (const [part, role] of [[table, "table"], [header, "rowgroup"], [body, "rowgroup"]]) part.setAttribute("role", role);
  const more = element("p", "note more");
  const heading = element("h3", "", title);
  heading.tabIndex = -1;
  const root = element("article", "semaphore", element("div", "heading", heading, permits, all), table, axis("narrow"), more);
  write(title, semaphore.name);
  table.setAttribute("aria-label", `Slots of ${plain(semaphore.name)}`);
  return { root, permits, all, body, more, slots: new Map() };
}

function axis(className = "") {
  return element("span", `axis ${className}`, element("span", "", "60 s ago"), element("span", "", "30 s"), element("span", "", "now"));
}

function updateCard(view, semaphore, holds, release) {
  const slots = semaphore.slots.map((slot) => ({ ...slot, holds: heldBy(slot, holds.get(key(semaphore.name, slot.number)) ?? []) }));
  const held = slots.filter((slot) => slot.state === "held").length;
  const released = slots.filter((slot) => slot.state === "released").length;
  say(view.permits, `${held} of ${count(semaphore.permits, "permit")} held${released ? `, ${released} released and not free yet` : ""}`);
  view.all.hidden = held < 2;
  const listed = slots.length <= LISTED_SLOTS ? slots : slots.filter((slot) => slot.state !== "free" || slot.holds.length > 0);
  const left = Math.max(slots.length, semaphore.permits) - listed.length;
  say(view.more, left > 0 ? `${count(left, "more slot")}, free for the last minute` : "");
  keep(view.body, view.slots, listed, (slot) => slot.number, (slot) => slotRow(semaphore.name, slot.number, release), updateSlot);
}

/** The holds of a slot; the present one also when the service has not seen it begin. */
function heldBy(slot, known) {
  const holds = [...known].sort((a, b) => a.from_us - b.from_us);
  if (slot.state === "held" && slot.acquired_us && !holds.some((hold) => hold.to_us === null)) {
    holds.push({ holder: slot.holder, from_us: slot.acquired_us, to_us: null });
  }
  return holds;
}

function slotRow(semaphore, number, release) {
  const badge = element("b", "badge");
  const holder = name();
  const held = element("span");
  const left = element("span", "left");
  const meter = element("span", "meter", element("span"));
  meter.setAttribute("aria-hidden", "true");
  const fence = element("span", "fence");
  const view = { badge, holder, held, left, meter, fence, lane: lane(), button: element("button", "quiet", "Release…") };
  view.button.type = "button";
  view.button.addEventListener("click", () => release(semaphore, number));
  view.root = row([
    ["Slot", String(number), "number slot-number"],
    ["Holder", element("span", "holder", badge, holder), "holder-cell"],
    ["Held for", held, "number"],
    ["Time left", element("span", "countdown", left, meter), "number"],
    ["Fence", fence, "number"],
    ["Last minute", view.lane.root, "lane-cell"],
    ["", view.button, "action"],
  ]);
  view.describe = (holderName) => `Release slot ${number} of ${plain(semaphore)}, held by ${holderName}`;
  return view;
}

function updateSlot(view, slot) {
  const held = slot.state === "held";
  const released = slot.state === "released";
  const renewed = view.slot && view.slot.state === slot.state && view.slot.fence === slot.fence;
  view.longest = renewed ? view.longest : 0;
  view.slot = slot;
  view.root.classList.toggle("free", slot.state === "free");
  view.root.classList.toggle("released", released);
  view.badge.hidden = !held;
  view.badge.className = `badge ${colour(slot.holder)}`;
  write(view.badge, held ? letter(slot.holder) : "");
  write(view.holder, held ? label(slot.holder) : released ? `released by ${label(slot.holder)}` : "free");
  view.holder.classList.toggle("unnamed", !held || !slot.holder);
  write(view.fence, (held && slot.fence) || "");
  if (!held && document.activeElement === view.button) {
    view.button.closest("article").querySelector("h3").focus({ preventScroll: true });
  }
  // Hidden and not removed, so that the row keeps its height.
  view.button.classList.toggle("absent", !held);
  view.button.setAttribute("aria-label", view.describe(plain(label(slot.holder))));
  updateLane(view.lane, slot.holds);
}

function tickSlot(view, now, stale) {
  const { slot } = view;
  const held = slot.state === "held";
  moveLane(view.lane, now);
  say(view.held, held && slot.acquired_us ? duration(now - slot.acquired_us) : "");
  // A slot whose minimum hold time is not over is free when it is, and nobody renews it.
  if (slot.state === "released") {
    const until = slot.free_us - now;
    view.meter.hidden = true;
    view.left.parentElement.classList.remove("ending");
    say(view.left, until > 0 ? `free in ${countDown(until)}` : "free now");
    return;
  }
  view.meter.hidden = !held || !slot.expires_us;
  if (!held || !slot.expires_us) {
    say(view.left, held ? "with its transaction" : "");
    return;
  }
  const left = slot.expires_us - now;
  // The length of the lease is not known; the longest time left that was seen stands for it.
  view.longest = Math.max(view.longest, left);
  const part = Math.max(0, left / view.longest);
  say(view.left, left > 0 ? countDown(left) : stale ? "unknown" : "expired");
  view.meter.firstElementChild.style.width = `${(part * 100).toFixed(1)}%`;
  view.left.parentElement.classList.toggle("ending", part < 0.25);
}
