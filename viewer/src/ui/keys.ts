/** Keys of the page that is shown. The help lists those that are registered at the moment. */

import { useLayoutEffect, useRef, useState } from "preact/hooks";

export interface Shortcut {
  /** Names as in KeyboardEvent.key; they are alternatives. */
  keys: string[];
  label: string;
  act(event: KeyboardEvent): void;
}

const registered: { shortcuts: Shortcut[] }[] = [];
const listeners = new Set<() => void>();

/** Listen to keys while the component is shown, except while the user types into a field or a dialog is open. */
export function useShortcuts(shortcuts: Shortcut[]): void {
  const entry = useRef({ shortcuts });
  entry.current.shortcuts = shortcuts;
  // Before the browser paints: a key pressed as soon as the component is visible must not be lost.
  useLayoutEffect(() => {
    const own = entry.current;
    registered.push(own);
    listeners.forEach((listener) => listener());
    return () => {
      registered.splice(registered.indexOf(own), 1);
      listeners.forEach((listener) => listener());
    };
  }, []);
}

/** The keys that work at the moment. */
export function useRegisteredShortcuts(): Shortcut[] {
  const [, setRound] = useState(0);
  useLayoutEffect(() => {
    const listener = () => setRound((round) => round + 1);
    listeners.add(listener);
    return () => void listeners.delete(listener);
  }, []);
  return registered.flatMap((each) => each.shortcuts);
}

addEventListener("keydown", (event) => {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || isTyping(event)) return;
  // The newest component first: a page's key wins over the shell's.
  for (const { shortcuts } of [...registered].reverse()) {
    const found = shortcuts.find((shortcut) => shortcut.keys.includes(event.key));
    if (!found) continue;
    event.preventDefault();
    found.act(event);
    return;
  }
});

function isTyping(event: KeyboardEvent): boolean {
  if (document.querySelector("dialog[open], .menu-panel")) return true;
  const target = event.target;
  if (!(target instanceof HTMLElement)) return false;
  if (target.matches("input[type=checkbox], input[type=radio]")) return event.key === " ";
  if (target.matches("input, textarea, select, [contenteditable]")) return true;
  // Enter and the space bar press what is focused.
  return target.matches("a, button, summary") && (event.key === "Enter" || event.key === " ");
}
