/** Light or dark: the system's choice, unless the user made one here. */

import { useEffect, useState } from "preact/hooks";

export type Theme = "light" | "dark";

const KEY = "theme";
const system = matchMedia("(prefers-color-scheme: dark)");
const listeners = new Set<(theme: Theme) => void>();

/** Apply the stored choice. Browsers may forbid storage, for example in a file from disk. */
export function applyStoredTheme(): void {
  const stored = storage()?.getItem(KEY);
  if (stored === "light" || stored === "dark") document.documentElement.dataset["theme"] = stored;
}

function currentTheme(): Theme {
  const chosen = document.documentElement.dataset["theme"];
  if (chosen === "light" || chosen === "dark") return chosen;
  return system.matches ? "dark" : "light";
}

/** The theme, for what is drawn on a canvas and must be drawn again when it changes. */
export function useTheme(): Theme {
  const [theme, setTheme] = useState(currentTheme);
  useEffect(() => {
    listeners.add(setTheme);
    return () => void listeners.delete(setTheme);
  }, []);
  return theme;
}

export function toggleTheme(): void {
  const theme = currentTheme() === "dark" ? "light" : "dark";
  document.documentElement.dataset["theme"] = theme;
  storage()?.setItem(KEY, theme);
  listeners.forEach((listener) => listener(theme));
}

/** A colour of tokens.css, such as "--mark", as a canvas understands it. */
export function colorOf(name: string): string {
  const probe = document.createElement("span");
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const color = getComputedStyle(probe).color;
  probe.remove();
  return color;
}

system.addEventListener("change", () => listeners.forEach((listener) => listener(currentTheme())));

function storage(): Storage | null {
  try {
    return localStorage;
  } catch (error) {
    if (error instanceof DOMException) return null;
    throw error;
  }
}
