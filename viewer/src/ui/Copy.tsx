/** Text to copy. */

import { useEffect, useState } from "preact/hooks";
import { Button } from "./Button";

export function CopyButton({ text, label = "Copy" }: { text: string; label?: string }) {
  const [result, setResult] = useState<string | null>(null);
  useEffect(() => {
    if (result === null) return;
    const timer = setTimeout(() => setResult(null), 2000);
    return () => clearTimeout(timer);
  }, [result]);
  const copy = () => {
    copyText(text).then(
      () => setResult("Copied"),
      () => setResult("Not copied: select the text instead"),
    );
  };
  return (
    <Button onClick={copy}>
      <span role="status">{result ?? label}</span>
    </Button>
  );
}

/** A command on a line of its own with a button that copies it. */
export function Command({ text }: { text: string }) {
  return (
    <div class="command">
      <code tabIndex={0}>{text}</code>
      <CopyButton text={text} />
    </div>
  );
}

/** Pages from disk have no clipboard of their own, but can copy a selection. */
async function copyText(text: string): Promise<void> {
  if (isSecureContext && "clipboard" in navigator) return navigator.clipboard.writeText(text);
  const area = document.createElement("textarea");
  area.value = text;
  area.style.position = "fixed";
  document.body.append(area);
  area.select();
  const isCopied = document.execCommand("copy");
  area.remove();
  if (!isCopied) throw new Error("The browser does not allow copying.");
}
