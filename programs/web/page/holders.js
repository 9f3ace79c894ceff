// A letter and a colour for each holder that is shown, so that a short bar can be told apart without its colour.

const COLOURS = 6;
const letters = new Map();

/** Forgets the holders that are shown no more, and gives the new ones the first free letters. */
export function assign(holders) {
  const shown = new Set(holders);
  for (const holder of letters.keys()) if (!shown.has(holder)) letters.delete(holder);
  const used = new Set(letters.values());
  let next = 0;
  for (const holder of shown) {
    if (letters.has(holder)) continue;
    while (used.has(next)) next += 1;
    used.add(next);
    letters.set(holder, next);
  }
}

/** `A` to `Z`, then `AA` and so on. */
export function letter(holder) {
  let number = letters.get(holder) ?? 0;
  let text = "";
  for (; number >= 0; number = Math.floor(number / 26) - 1) text = String.fromCharCode(65 + (number % 26)) + text;
  return text;
}

/** The classes of the holder's colour: after the last colour they start over, with a dashed line. */
export function colour(holder) {
  const number = letters.get(holder) ?? 0;
  return `h${number % COLOURS}${Math.floor(number / COLOURS) % 2 ? " dashed" : ""}`;
}

/** What is shown for a holder without a name. */
export const label = (holder) => holder || "(no name)";
