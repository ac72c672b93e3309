// Elements made from text only: nothing that a run folder says is ever read as HTML.

export function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name === "class") made.className = value;
    else if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name.startsWith("aria-") || name.startsWith("data-") || name === "role" || name === "for") {
      made.setAttribute(name, value);
    } else made[name] = value;
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

export function svg(tag, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

export const byId = (id) => document.getElementById(id);

export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

// Options of a select; the chosen one stays chosen, also where it is not among them.
export function setOptions(select, options, chosen) {
  const wanted = options.some(([value]) => value === chosen) ? options : [[chosen, chosen], ...options];
  const now = JSON.stringify(wanted);
  if (select.dataset.options !== now) {
    select.replaceChildren(...wanted.map(([value, label]) => element("option", { value }, label)));
    select.dataset.options = now;
  }
  if (select.value !== chosen) select.value = chosen;
}

export function copyButton(text, what) {
  const button = element("button", { type: "button", class: "copy", "aria-label": `Copy ${what}` }, "Copy");
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch {
      button.textContent = "Select and copy by hand";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });
  return button;
}
