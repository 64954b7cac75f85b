/** The keys that work on the page below. */

import { Fragment } from "preact";
import { Dialog } from "../ui";
import { useRegisteredShortcuts } from "../ui/keys";

const NAMES: Record<string, string> = {
  ArrowDown: "↓",
  ArrowUp: "↑",
  ArrowLeft: "←",
  ArrowRight: "→",
  PageDown: "Page Down",
  PageUp: "Page Up",
  Escape: "Esc",
  " ": "Space",
};

export function Help({ onClose }: { onClose: () => void }) {
  const shortcuts = useRegisteredShortcuts();
  return (
    <Dialog title="Keys" onClose={onClose}>
      <table class="help">
        <tbody>
          {shortcuts.map((shortcut) => (
            <tr key={shortcut.label}>
              <td>
                {shortcut.keys.map((key) => (
                  <Fragment key={key}>
                    <kbd>{NAMES[key] ?? key}</kbd>{" "}
                  </Fragment>
                ))}
              </td>
              <td>{shortcut.label}</td>
            </tr>
          ))}
        </tbody>
      </table>
      <p class="dim">The address holds the page, its filter and its order. Copy it to share what you see.</p>
    </Dialog>
  );
}
