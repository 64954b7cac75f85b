/** Numbers and times as people read them. Missing values are an en dash. */

export const MISSING = "–";

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });

/** 1,234,567 */
export function count(value: number | null | undefined): string {
  return isMissing(value) ? MISSING : whole.format(value);
}

/** 1.23M; exact below 10,000. */
export function compact(value: number | null | undefined): string {
  if (isMissing(value)) return MISSING;
  return Math.abs(value) < 10_000 ? whole.format(value) : short.format(value);
}

/** Three decimals for numbers of ordinary size, without trailing zeros; three digits for others. */
export function number(value: number | null | undefined): string {
  if (isMissing(value)) return MISSING;
  if (Number.isInteger(value)) return whole.format(value);
  const size = Math.abs(value);
  if (size >= 1000) return whole.format(value);
  if (size < 0.001) return value.toExponential(1);
  return String(Number(value.toFixed(3)));
}

/** A mean reward: always three decimals, so that columns align. */
export function mean(value: number | null | undefined): string {
  return isMissing(value) ? MISSING : value.toFixed(3);
}

/** 12.5% */
export function percent(share: number | null | undefined): string {
  return isMissing(share) ? MISSING : `${Number((share * 100).toFixed(1))}%`;
}

/** 350 ms, 4.2 s, 3 min 20 s, 2 h 05 min, 3 d 4 h */
export function seconds(value: number | null | undefined): string {
  if (isMissing(value)) return MISSING;
  if (value < 0.9995) return `${Math.round(value * 1000)} ms`;
  if (value < 59.95) return `${Number(value.toFixed(1))} s`;
  const rounded = Math.round(value);
  if (rounded < 3600) return `${Math.floor(rounded / 60)} min ${rounded % 60} s`;
  const minutes = Math.round(rounded / 60);
  if (minutes < 48 * 60) return `${Math.floor(minutes / 60)} h ${String(minutes % 60).padStart(2, "0")} min`;
  return `${Math.floor(minutes / 1440)} d ${Math.floor((minutes % 1440) / 60)} h`;
}

/** 1.2 kB, 3.4 MB */
export function bytes(value: number | null | undefined): string {
  if (isMissing(value)) return MISSING;
  let [size, unit] = [value, "B"];
  for (const larger of ["kB", "MB", "GB", "TB"]) {
    if (size < 999.5) break;
    [size, unit] = [size / 1000, larger];
  }
  return `${unit === "B" || size >= 99.95 ? Math.round(size) : Number(size.toFixed(1))} ${unit}`;
}

/** 2026-11-23 13:17, in the reader's time zone. */
export function dateTime(iso: string | null | undefined): string {
  if (!iso) return MISSING;
  const date = new Date(iso);
  if (Number.isNaN(date.getTime())) return MISSING;
  const [year, month, day, hour, minute] = [
    date.getFullYear(),
    date.getMonth() + 1,
    date.getDate(),
    date.getHours(),
    date.getMinutes(),
  ].map((part) => String(part).padStart(2, "0"));
  return `${year}-${month}-${day} ${hour}:${minute}`;
}

/** "1 run", "2 runs" */
export function amount(value: number, one: string, many = `${one}s`): string {
  return `${count(value)} ${value === 1 ? one : many}`;
}

/** Any JSON value on one line. */
export function plain(value: unknown): string {
  if (value === null || value === undefined) return MISSING;
  if (typeof value === "number") return number(value);
  return typeof value === "string" ? value : JSON.stringify(value);
}

function isMissing(value: number | null | undefined): value is null | undefined {
  return value === null || value === undefined || Number.isNaN(value);
}
