// The operator's page: reads the state as server-sent events, and shows it.

import { byId } from "./elements.js";
import { duration, plain, say } from "./format.js";
import { assign } from "./holders.js";
import { WINDOW } from "./lane.js";
import * as lists from "./lists.js";
import * as release from "./release.js";
import * as semaphores from "./semaphores.js";

/** Data that is older than this is shown as such. */
const STALE_MS = 3000;
/** A stream that is silent for this long is opened again, in case nobody is at its other end. */
const SILENT_MS = 8000;
const RETRY_MS = { first: 500, longest: 8000 };
/** A browser allows few streams per host, so one that nobody looks at is closed after this long. */
const HIDDEN_MS = 60_000;
const STATES = { connecting: "Connecting", live: "Live", reconnecting: "Reconnecting", failing: "Database down" };

const stream = { source: null, opened: 0, retry: RETRY_MS.first, timer: 0, hiding: 0 };
let snapshot = null;
/** When the snapshot arrived, and the last one that the database has answered. */
let arrived = 0;
let read = 0;
let state = "connecting";

function open() {
  close();
  const source = new EventSource("events");
  stream.source = source;
  stream.opened = performance.now();
  source.onmessage = (event) => {
    stream.retry = RETRY_MS.first;
    show(JSON.parse(event.data));
  };
  source.onerror = () => {
    // The browser would retry too, but not after every kind of error, and not at once.
    close();
    stream.timer = setTimeout(open, stream.retry);
    stream.retry = Math.min(stream.retry * 2, RETRY_MS.longest);
    setState("reconnecting");
  };
}

function close() {
  clearTimeout(stream.timer);
  stream.source?.close();
  stream.source = null;
}

function show(received) {
  const began = received.now_us - WINDOW;
  snapshot = { ...received, handovers: received.handovers.filter((hold) => hold.to_us === null || hold.to_us > began) };
  arrived = performance.now();
  if (!snapshot.error) read = arrived;
  assign([
    ...snapshot.semaphores.flatMap((semaphore) => semaphore.slots.filter((slot) => slot.state === "held").map((slot) => slot.holder)),
    ...snapshot.handovers.map((hold) => hold.holder),
  ]);
  say(byId("source"), `${plain(snapshot.engine)} · ${plain(snapshot.instance)}`);
  byId("unguarded").hidden = snapshot.guarded;
  byId("guard").hidden = !snapshot.guarded;
  release.update(snapshot);
  semaphores.update(snapshot, release.ask);
  lists.update(snapshot);
  setState(snapshot.error ? "failing" : "live");
  if (snapshot.error) say(byId("stale-why"), sentence(snapshot.error));
  tick();
}

/** Brings everything that depends on the time up to date. */
function tick() {
  const present = performance.now();
  if (stream.source && present - Math.max(arrived, stream.opened) > SILENT_MS) open();
  if (!snapshot) return;
  if (present - arrived > STALE_MS) setState("reconnecting");
  say(byId("age"), duration((present - read) * 1000));
  // By the database's clock, which was at `now_us` when the snapshot was made.
  const now = snapshot.now_us + (present - arrived) * 1000;
  semaphores.tick(now, state !== "live");
  lists.tick(now);
}

function setState(next) {
  if (next === state) return;
  const before = state;
  state = next;
  const old = snapshot !== null && state !== "live";
  byId("connection").dataset.state = state;
  say(byId("connection-text"), STATES[state]);
  byId("stale").hidden = !old;
  byId("main").classList.toggle("stale", old);
  say(byId("stale-why"), state === "failing" ? sentence(snapshot.error) : "Reconnecting to the service.");
  if (old) say(byId("announcements"), byId("stale-why").textContent);
  else if (before !== "connecting") say(byId("announcements"), "The page is live again.");
}

function sentence(text) {
  return `${text.charAt(0).toUpperCase()}${plain(text.slice(1))}.`;
}

document.addEventListener("visibilitychange", () => {
  clearTimeout(stream.hiding);
  if (document.hidden) stream.hiding = setTimeout(close, HIDDEN_MS);
  else if (!stream.source) open();
});
addEventListener("online", open);
addEventListener("pageshow", (event) => { if (event.persisted) open(); });

const calm = matchMedia("(prefers-reduced-motion: reduce)");
let ticking = 0;
function setPace() {
  clearInterval(ticking);
  ticking = setInterval(() => { if (!document.hidden) tick(); }, calm.matches ? 1000 : 200);
}
calm.addEventListener("change", setPace);
setPace();
open();
