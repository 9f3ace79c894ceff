// Building and updating elements without losing the focus or what is under the pointer.

export const byId = (id) => document.getElementById(id);

/** An element with a class and children; a string becomes a text node. */
export function element(name, className, ...children) {
  const created = document.createElement(name);
  if (className) created.className = className;
  created.append(...children);
  return created;
}

/** A text of the service: isolated, so that its direction does not change the text around it. */
export const name = (className) => element("bdi", className ? `name ${className}` : "name");

/** A row of a table. On narrow screens rows are cards, which must not stop being rows for screen readers. */
export function row(cells) {
  const created = element("tr");
  created.setAttribute("role", "row");
  for (const [label, cell, className] of cells) {
    const data = element("td", className, cell);
    data.setAttribute("role", "cell");
    data.dataset.label = label;
    created.append(data);
  }
  return created;
}

/**
 * Keeps the children of an element in step with a list: a child of a key that is still in the list stays the same
 * element. `views` maps keys to what `create` returned, an object with `root`.
 */
export function keep(parent, views, items, keyOf, create, update) {
  const wanted = new Map(items.map((item) => [keyOf(item), item]));
  for (const [key, view] of views) {
    if (wanted.has(key)) continue;
    if (view.root.contains(document.activeElement)) focusHeading(parent);
    view.root.remove();
    views.delete(key);
  }
  let position = parent.firstElementChild;
  for (const [key, item] of wanted) {
    let view = views.get(key);
    if (!view) {
      view = create(item);
      views.set(key, view);
    }
    if (view.root === position) position = position.nextElementSibling;
    else parent.insertBefore(view.root, position);
    update(view, item);
  }
}

/** Where the focus goes when its element has gone: the heading of the section. */
function focusHeading(within) {
  within.closest("section")?.querySelector("[tabindex='-1']")?.focus({ preventScroll: true });
}

/** Shows the table of a section, or what it would show. */
export function showTable(section, any) {
  section.querySelector("table").hidden = !any;
  section.querySelector(".empty").hidden = any;
}
