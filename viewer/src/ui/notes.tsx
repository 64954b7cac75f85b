/** What a page shows instead of data: nothing found, an error, or that it waits. */

import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import type { Problem } from "../api";
import { Button } from "./Button";
import { amount } from "./format";

export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <h2>{title}</h2>
      {children}
    </div>
  );
}

interface ErrorNoteProps {
  message: string;
  onRetry?: () => void;
  /** What the button does, if that is not to try again. */
  label?: string;
}

export function ErrorNote({ message, onRetry, label = "Try again" }: ErrorNoteProps) {
  return (
    <div class="note note-error" role="alert">
      <span class="note-text">{message}</span>
      {onRetry && <Button onClick={onRetry}>{label}</Button>}
    </div>
  );
}

export function WarnNote({ children }: { children: ComponentChildren }) {
  return (
    <div class="note note-warn" role="status">
      <div class="note-text">{children}</div>
    </div>
  );
}

/** Shown after 200 ms, because a spinner that flashes disturbs more than a short wait. */
export function Spinner({ label }: { label: string }) {
  const [isShown, setIsShown] = useState(false);
  useEffect(() => {
    const timer = setTimeout(() => setIsShown(true), 200);
    return () => clearTimeout(timer);
  }, []);
  return (
    <div class="spinner" role="status">
      {isShown && (
        <>
          <span class="spinner-ring" aria-hidden="true" /> {label}
        </>
      )}
    </div>
  );
}

/** Problems of the files, folded if there are many. */
export function Problems({ problems }: { problems: Problem[] }) {
  if (problems.length === 0) return null;
  return (
    <details class="note note-warn problems" open={problems.length <= 3}>
      <summary>{amount(problems.length, "problem")} in the files</summary>
      <ul>
        {problems.map((problem) => (
          <li>
            <span class="mono">
              {problem.file}
              {problem.line !== null && `:${problem.line}`}
            </span>{" "}
            {problem.message}
          </li>
        ))}
      </ul>
    </details>
  );
}
