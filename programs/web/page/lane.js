// The lane of a slot: a bar for each hold of the last minute.

import { element, keep, name } from "./elements.js";
import { duration, plain, write } from "./format.js";
import { colour, label, letter } from "./holders.js";

/** What the lanes show, in microseconds. */
export const WINDOW = 60e6;

/** A new lane. */
export function lane() {
  const root = element("div", "lane");
  root.setAttribute("role", "img");
  return { root, bars: new Map(), said: "" };
}

/** Shows these holds, ordered by their beginning. */
export function updateLane(view, holds) {
  keep(view.root, view.bars, holds, (hold) => hold.from_us, bar, updateBar);
  const names = holds.map((hold) => `${hold.to_us === null ? "now " : ""}${plain(label(hold.holder))}`);
  const said = names.length ? `Holders in the last minute: ${names.join(", ")}` : "Free for the last minute";
  if (said !== view.said) view.root.setAttribute("aria-label", said);
  view.said = said;
}

function bar() {
  const view = { root: element("span"), letter: element("b"), name: name() };
  view.root.append(view.letter, " ", view.name);
  view.root.addEventListener("pointerenter", () => { view.root.title = describe(view.hold, view.now); });
  return view;
}

function updateBar(view, hold) {
  view.hold = hold;
  view.root.className = `bar ${colour(hold.holder)}${hold.to_us === null ? " open" : ""}`;
  write(view.letter, letter(hold.holder));
  write(view.name, label(hold.holder));
}

/** Moves the bars. */
export function moveLane(view, now) {
  for (const bar of view.bars.values()) {
    const from = Math.max(0, 1 - (now - bar.hold.from_us) / WINDOW);
    const to = bar.hold.to_us === null ? 1 : Math.min(1, 1 - (now - bar.hold.to_us) / WINDOW);
    bar.now = now;
    bar.root.hidden = to <= 0;
    bar.root.style.left = `${(from * 100).toFixed(2)}%`;
    bar.root.style.width = `${(Math.max(0, to - from) * 100).toFixed(2)}%`;
    bar.root.classList.toggle("cut", from === 0);
  }
}

function describe(hold, now) {
  const held = `held for ${duration((hold.to_us ?? now) - hold.from_us)}`;
  const when = hold.to_us === null ? "until now" : `until ${duration(now - hold.to_us)} ago`;
  return `${plain(label(hold.holder))}: ${held}, ${when}`;
}
