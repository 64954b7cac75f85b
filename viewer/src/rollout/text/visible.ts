/** Invisible characters as visible text: they can reorder a line, hide an instruction or make two texts look equal. */

// Control characters (except tab and line feed), soft hyphens, fillers, zero-width and bidirectional controls, line
// and paragraph separators, invisible operators, interlinear marks, lone surrogates, tags, variation selectors.
const INVISIBLE =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb]|[\ud800-\udfff]|[\u{e0000}-\u{e0fff}]/gu;

/** How `visible` writes a character. */
export const MARK = /‹U\+[0-9A-F]{4,6}›/g;

const LATIN = /[\p{Script=Latin}\p{Script=Common}\s]/u;
const PICTOGRAPH = /[\p{Extended_Pictographic}\p{Emoji_Modifier}\ufe0f]/u;
const BLACK_FLAG = "\u{1f3f4}";

export function visible(text: string): string {
  return text
    .replaceAll("\r\n", "\n")
    .replace(INVISIBLE, (character, at: number) => (isOrdinary(text, character, at) ? character : mark(character)));
}

function mark(character: string): string {
  return `‹U+${(character.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, "0")}›`;
}

/** Joiners belong to emoji and to scripts such as Persian and Hindi; tags belong to the flags of regions. */
function isOrdinary(text: string, character: string, at: number): boolean {
  const before = Array.from(text.slice(Math.max(0, at - 2), at)).at(-1) ?? "";
  if (character === "\u200d" && PICTOGRAPH.test(before)) return true;
  if (character === "\u200c" || character === "\u200d") return before !== "" && !LATIN.test(before);
  const code = character.codePointAt(0) ?? 0;
  if (code >= 0xe0020 && code <= 0xe007f) return text.slice(Math.max(0, at - 14), at).includes(BLACK_FLAG);
  return false;
}
