/** Find words in a part of the page, and mark them without changing it (CSS Custom Highlight API). */

import { MARK } from "./text/visible";

/** More hits than this are counted, but not marked. */
const MOST_HITS = 5_000;

export function rangesOf(root: Node, words: string): Range[] {
  const wanted = lowered(words);
  if (!wanted) return [];
  return ranges(root, (text) => {
    const lower = lowered(text);
    const found: [number, number][] = [];
    for (let at = lower.indexOf(wanted); at >= 0; at = lower.indexOf(wanted, at + wanted.length)) {
      found.push([at, at + wanted.length]);
    }
    return found;
  });
}

/** The text in lower case, of the same length. A letter whose lower case is longer, such as İ, stays as it is. */
function lowered(text: string): string {
  const lower = text.toLowerCase();
  if (lower.length === text.length) return lower;
  return Array.from(text, (each) => (each.toLowerCase().length === each.length ? each.toLowerCase() : each)).join("");
}

export function marksOf(root: Node): Range[] {
  return ranges(root, (text) => [...text.matchAll(MARK)].map((match) => [match.index, match.index + match[0].length]));
}

function ranges(root: Node, places: (text: string) => [number, number][]): Range[] {
  const found: Range[] = [];
  const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node !== null && found.length < MOST_HITS; node = walker.nextNode()) {
    const text = node.nodeValue ?? "";
    for (const [start, end] of places(text)) {
      const range = document.createRange();
      range.setStart(node, start);
      range.setEnd(node, end);
      found.push(range);
    }
  }
  return found;
}

export function highlight(name: "found" | "found-now" | "invisible", ranges: Range[]): void {
  // Older browsers do without marks; the search itself still works.
  if (typeof Highlight === "undefined") return;
  if (ranges.length === 0) CSS.highlights.delete(name);
  else CSS.highlights.set(name, new Highlight(...ranges));
}

/** Open the folds around a hit and scroll to it. */
export function reveal(range: Range): void {
  const element = range.startContainer.parentElement;
  for (
    let fold = element?.closest("details:not([open])");
    fold;
    fold = fold.parentElement?.closest("details:not([open])")
  ) {
    (fold as HTMLDetailsElement).open = true;
  }
  element?.scrollIntoView({ block: "center" });
}
