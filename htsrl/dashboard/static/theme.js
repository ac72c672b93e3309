// Light, dark or as the system has it; and the colours of the style sheet for what is drawn.

import { byId } from "./dom.js";

const CHOICES = ["auto", "light", "dark"];
export const NUM_COLORS = 10;
const known = new Map();
let probe = null;

export function colorOf(variable) {
  if (!known.has(variable)) {
    probe ??= document.body.appendChild(Object.assign(document.createElement("span"), { hidden: true }));
    probe.style.color = `var(${variable})`;
    known.set(variable, getComputedStyle(probe).color);
  }
  return known.get(variable);
}

export const curveColor = (index) => `--c${index % NUM_COLORS}`;

export function followTheme(redraw) {
  const button = byId("theme");
  const choose = (choice) => {
    document.documentElement.dataset.theme = choice;
    button.textContent = `Theme: ${choice}`;
    known.clear();
    redraw();
  };
  button.addEventListener("click", () => {
    const next = CHOICES[(CHOICES.indexOf(document.documentElement.dataset.theme) + 1) % CHOICES.length];
    store(next);
    choose(next);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { known.clear(); redraw(); });
  choose(CHOICES.includes(stored()) ? stored() : "auto");
}

function stored() {
  try {
    return localStorage.getItem("htsrl-theme");
  } catch {
    return null; // storage may be forbidden
  }
}

function store(choice) {
  try {
    localStorage.setItem("htsrl-theme", choice);
  } catch {
    // storage may be forbidden; the choice lasts as long as the page
  }
}
