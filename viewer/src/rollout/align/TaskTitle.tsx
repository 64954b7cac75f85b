/** The beginning of a task's prompt. */

import { visible } from "../text/visible";

/** The server sends no more characters. */
const LONGEST = 120;

export function TaskTitle({ title }: { title: string }) {
  if (!title) return null;
  return (
    <p class="task-title cut" dir="auto">
      {visible(title)}
      {title.length >= LONGEST && "…"}
    </p>
  );
}
