/** Recognise the usual shapes of graded fields: pairs of expected and extracted, and lists of checks. */

import type { Json, JsonObject } from "../../api";

export interface Pair {
  expectedName: string;
  expected: Json;
  extractedName: string;
  extracted: Json;
}

export interface Check {
  label: string;
  isMet: boolean;
  detail: string | null;
}

export interface Checks {
  title: string;
  checks: Check[];
}

const EXTRACTED = /^(extracted|predicted|parsed|actual|observed)_/;
const EXPECTED_NAMES = [
  ..."expected_answer expected answer ground_truth target solution reference reference_answer gold label".split(" "),
];

/** Fields that grading read from the reply, each with the field of the row that it was compared with. */
export function pairsOf(graded: JsonObject, given: JsonObject): Pair[] {
  const known: JsonObject = { ...given, ...objectOf(given.verifier_metadata), ...graded };
  const extracted = Object.keys(graded).filter((name) => EXTRACTED.test(name));
  const pairs: Pair[] = [];
  for (const name of extracted) {
    const partner = partnerOf(name, known, extracted.length === 1);
    const expected = partner === null ? undefined : known[partner];
    if (partner === null || expected === undefined) continue;
    pairs.push({ expectedName: partner, expected, extractedName: name, extracted: graded[name] ?? null });
  }
  return pairs;
}

function partnerOf(name: string, known: JsonObject, isOnly: boolean): string | null {
  const rest = name.replace(EXTRACTED, "");
  const candidates = [
    `expected_${rest}`,
    `expected_${rest.replace(/s$/, "")}`,
    `reference_${rest}`,
    `gold_${rest}`,
    rest,
  ];
  if (isOnly) candidates.push(...EXPECTED_NAMES);
  return candidates.find((candidate) => candidate !== name && candidate in known) ?? null;
}

const MET = ["is_met", "met", "passed", "is_passed", "ok", "success", "satisfied", "correct", "followed"];
const NAMES = ["name", "title", "id", "criterion", "constraint", "test", "description"];
const REASONS = ["reason", "explanation", "message", "error", "error_message", "detail", "stderr"];
/** Programs' test results also hold negative codes for crashes and time-outs. */
const TEST_LISTS = ["result", "results", "test_results", "unit_test_results"];

/** Lists of tests, constraints or criteria with whether each one is met. Equal lists are shown once. */
export function checksOf(graded: JsonObject, given: JsonObject): Checks[] {
  const found: Checks[] = [];
  for (const [name, value] of Object.entries(graded)) {
    if (!Array.isArray(value) || value.length === 0) continue;
    const checks = objectChecks(value) ?? flagChecks(name, value, { ...given, ...graded });
    if (checks === null) continue;
    const same = found.find((other) => JSON.stringify(other.checks) === JSON.stringify(checks));
    if (same) same.title += `, ${name}`;
    else found.push({ title: name, checks });
  }
  return found;
}

function objectChecks(list: Json[]): Check[] | null {
  const checks: Check[] = [];
  for (const [index, entry] of list.entries()) {
    const fields = objectOf(entry);
    const met = MET.find((key) => typeof fields[key] === "boolean");
    if (met === undefined) return null;
    checks.push({
      label: textOf(fields, NAMES) ?? `${index + 1}`,
      isMet: fields[met] === true,
      detail: textOf(fields, REASONS),
    });
  }
  return checks;
}

function flagChecks(name: string, list: Json[], known: JsonObject): Check[] | null {
  const isFlags = list.every((entry) => typeof entry === "boolean");
  const isTests =
    TEST_LISTS.includes(name) && list.every((entry) => typeof entry === "boolean" || typeof entry === "number");
  if (!isFlags && !isTests) return null;
  const labels = isTests ? null : labelsFor(list.length, known);
  return list.map((entry, index) => ({
    label: labels?.[index] ?? (isTests ? `test ${index + 1}` : `${index + 1}`),
    isMet: entry === true || (typeof entry === "number" && entry > 0),
    detail: typeof entry === "number" && entry < 0 ? `code ${entry}` : null,
  }));
}

/** A list of as many texts, such as instruction_id_list. */
function labelsFor(length: number, known: JsonObject): string[] | null {
  for (const value of Object.values(known)) {
    if (Array.isArray(value) && value.length === length && value.every((entry) => typeof entry === "string"))
      return value as string[];
  }
  return null;
}

/** What is left for the table. */
export function othersOf(graded: JsonObject, shown: ReadonlySet<string>): [string, Json][] {
  return Object.entries(graded).filter(([name]) => !shown.has(name) && !name.startsWith("_ng_"));
}

function textOf(fields: JsonObject, names: string[]): string | null {
  for (const name of names) {
    const value = fields[name];
    if (typeof value === "string" && value) return value;
  }
  return null;
}

function objectOf(value: Json | undefined): JsonObject {
  return value !== null && typeof value === "object" && !Array.isArray(value) ? value : {};
}

/** A value as text to compare: texts as they are, everything else as JSON. */
export function comparable(value: Json): string {
  return typeof value === "string" ? value : JSON.stringify(value, null, 1);
}
