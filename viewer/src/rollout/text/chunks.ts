/** Cut a long text into parts that can be parsed one by one: parsing time may grow with the square of the length. */

const FENCE = /^ {0,3}(```|~~~)/gm;

export function chunksOf(text: string, size: number): string[] {
  const chunks: string[] = [];
  let rest = text;
  while (rest.length > size) {
    const end = endOf(rest, size);
    chunks.push(rest.slice(0, end));
    rest = rest.slice(end);
  }
  return [...chunks, rest];
}

/** The end of the last paragraph that fits, outside of code blocks, or else of the last line that fits. */
function endOf(text: string, size: number): number {
  const least = size / 2;
  for (let at = text.lastIndexOf("\n\n", size - 2); at >= least; at = text.lastIndexOf("\n\n", at - 1)) {
    if ((text.slice(0, at).match(FENCE)?.length ?? 0) % 2 === 0) return at + 2;
  }
  const line = text.lastIndexOf("\n", size - 1);
  return line >= least ? line + 1 : size - (isInsidePair(text, size) ? 1 : 0);
}

/** Whether a cut would separate the two halves of a character. */
function isInsidePair(text: string, at: number): boolean {
  const code = text.charCodeAt(at - 1);
  return code >= 0xd800 && code <= 0xdbff;
}
