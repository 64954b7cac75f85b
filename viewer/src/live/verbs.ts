/** What the answers of a collection to the verbs mean, as sentences. */
import type { JsonObject } from "../api";
import { amount, count } from "../ui/format";

export interface Verb {
  verb: "pause" | "resume" | "concurrency" | "cancel" | "requeue" | "drain" | "stop";
  details?: JsonObject;
}

export function sentenceOf({ verb, details = {} }: Verb, answer: JsonObject): string {
  const running = Number(answer["running"] ?? 0);
  const isChanged = answer["changed"] !== false;
  switch (verb) {
    case "pause":
      return isChanged ? "Paused. Running rollouts go on; no further one starts." : "It is paused already.";
    case "resume":
      return isChanged ? "Resumed." : "It was not paused.";
    case "concurrency":
      return concurrencySentence(details, answer);
    case "cancel":
      return cancelSentence(details, running);
    case "requeue":
      return requeueSentence(Number(answer["requeued"] ?? 0));
    case "drain":
      return `No further rollout starts. The collection ends after ${amount(running, "running rollout")}.`;
    case "stop":
      return `Stopping. ${amount(running, "running rollout")} will stay unresolved; 'ng eval run --resume' continues the run.`;
  }
}

function concurrencySentence(details: JsonObject, answer: JsonObject): string {
  const now = Number(answer["concurrency"]);
  if (details["wanted"] === undefined) return `The concurrency adapts to the measured throughput, starting at ${count(now)}.`;
  const limited = now < Number(details["wanted"]) ? ", which is the limit of this machine" : "";
  return `At most ${amount(now, "rollout")} run at once${limited}.`;
}

function cancelSentence(details: JsonObject, running: number): string {
  const name = `task ${details["task"]}${details["repeat"] === undefined ? "" : `, repeat ${details["repeat"]}`}`;
  if (running > 0) return `Cancelled ${amount(running, "running rollout")} of ${name}.`;
  return `No rollout of ${name} is running. Those that have not started will not run.`;
}

function requeueSentence(requeued: number): string {
  if (requeued === 0) return "No rollout has failed, so none runs again.";
  return `${amount(requeued, "rollout")} will run again.`;
}

/** Parse `12` or `12:3`; null if it is neither. */
export function keyOf(text: string): { task: number; repeat?: number } | null {
  const found = /^\s*(\d{1,12})(?:\s*:\s*(\d{1,12}))?\s*$/.exec(text);
  if (!found) return null;
  return { task: Number(found[1]), ...(found[2] === undefined ? {} : { repeat: Number(found[2]) }) };
}
