/** Write notes one after the other, so that a slow answer never replaces a newer note. */
import type { Note } from "../api";
import type { Source } from "../source";

export type Draft = Omit<Note, "at">;

let latest: Promise<unknown> = Promise.resolve();

export function saveNote(source: Source, run: string, note: Draft): Promise<Note> {
  return inTurn(() => source.writeNote(run, note));
}

/** Set or remove the star of a rollout and keep its tags and its comment. */
export function setStar(source: Source, run: string, task: number, repeat: number, star: boolean): Promise<Note> {
  return inTurn(async () => {
    const notes = await source.notes(run);
    const before = notes.find((note) => note.task === task && note.repeat === repeat);
    return source.writeNote(run, { task, repeat, star, tags: before?.tags ?? [], comment: before?.comment ?? "" });
  });
}

function inTurn<T>(work: () => Promise<T>): Promise<T> {
  const result = latest.then(work);
  // Whoever asked for the work gets its error; the next one starts all the same.
  latest = result.catch(() => undefined);
  return result;
}
