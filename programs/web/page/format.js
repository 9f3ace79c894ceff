// Text of the page. Everything from the service becomes a text node: no markup in it is ever interpreted.

// Characters that hide, reorder or imitate others: control and format characters, separators other than a blank within
// the text, lone surrogates, private use, and letters that have no shape.
const HIDDEN = /([\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}\p{Co}\u{034F}\u{115F}\u{1160}\u{17B4}\u{17B5}\u{3164}\u{FFA0}]|(?! )\p{Zs}|^ | $)/u;

const written = new WeakMap();

/** Writes a text from the service into an element, with hidden characters spelled out (`U+202E`). */
export function write(element, text) {
  const value = String(text);
  if (written.get(element) === value) return;
  written.set(element, value);
  const nodes = value.split(HIDDEN).map((part, index) => {
    if (index % 2 === 0) return part;
    const code = document.createElement("span");
    code.className = "code-point";
    code.textContent = codePoint(part);
    return code;
  });
  element.replaceChildren(...nodes.filter((node) => node !== ""));
}

/** The same as one text, for attributes. */
export function plain(text) {
  return String(text).split(HIDDEN).map((part, index) => (index % 2 ? `[${codePoint(part)}]` : part)).join("");
}

function codePoint(character) {
  return `U+${character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`;
}

/** Sets the text of an element, if it is another one. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** A duration in the two largest units. */
export function duration(micros) {
  const seconds = Math.max(0, Math.floor(micros / 1e6));
  if (seconds < 60) return `${seconds} s`;
  const two = (large, largeUnit, small, smallUnit) =>
    `${large.toLocaleString("en")} ${largeUnit} ${String(small).padStart(2, "0")} ${smallUnit}`;
  if (seconds < 3600) return two(Math.floor(seconds / 60), "min", seconds % 60, "s");
  if (seconds < 86_400) return two(Math.floor(seconds / 3600), "h", Math.floor(seconds / 60) % 60, "min");
  return two(Math.floor(seconds / 86_400), "d", Math.floor(seconds / 3600) % 24, "h");
}

/** A duration that ends soon: with tenths of a second below 10 s. */
export function countDown(micros) {
  if (micros >= 1e7) return duration(micros);
  return `${(Math.floor(Math.max(0, micros) / 1e5) / 10).toFixed(1)} s`;
}

/** A wait in milliseconds. */
export function wait(millis) {
  if (millis < 1000) return `${Math.round(millis)} ms`;
  return millis < 10_000 ? `${(millis / 1000).toFixed(1)} s` : duration(millis * 1000);
}

/** Calls per second. */
export function rate(perSecond) {
  return perSecond >= 100 ? Math.round(perSecond).toLocaleString("en") : perSecond.toFixed(1);
}

/** `1 permit`, `2 permits`. */
export function count(number, noun) {
  return `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;
}
