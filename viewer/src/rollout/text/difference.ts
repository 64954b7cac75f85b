/** Where two texts differ, word by word. */

export interface Piece {
  text: string;
  isSame: boolean;
}

/** More words than this are compared as a whole: the table of the comparison grows with the square. */
const MOST_WORDS = 1_500;

/** Split two texts into pieces that both have and pieces that only one has. */
export function difference(a: string, b: string): [Piece[], Piece[]] {
  const left = words(a);
  const right = words(b);
  if (left.length > MOST_WORDS || right.length > MOST_WORDS) {
    const isSame = a === b;
    return [[{ text: a, isSame }], [{ text: b, isSame }]];
  }
  const pairs = longestCommon(left, right);
  return [pieces(left, new Set(pairs.map((pair) => pair[0]))), pieces(right, new Set(pairs.map((pair) => pair[1])))];
}

function words(text: string): string[] {
  return text.match(/[\p{L}\p{N}_]+|\s+|[^\p{L}\p{N}_\s]/gu) ?? [];
}

function pieces(words: string[], same: Set<number>): Piece[] {
  const found: Piece[] = [];
  words.forEach((text, index) => {
    const isSame = same.has(index);
    const last = found.at(-1);
    if (last?.isSame === isSame) last.text += text;
    else found.push({ text, isSame });
  });
  return found;
}

/** The index pairs of a longest common subsequence. */
function longestCommon(a: readonly string[], b: readonly string[]): [number, number][] {
  return bestPairs(a.length, b.length, (i, j) => (a[i] === b[j] ? 1 : 0));
}

/** The pairs (i, j), both increasing, whose scores sum to the most. Pairs with the score 0 are never made. */
export function bestPairs(rows: number, columns: number, score: (i: number, j: number) => number): [number, number][] {
  const width = columns + 1;
  const best = new Float64Array((rows + 1) * width);
  const at = (i: number, j: number): number => best[i * width + j] ?? 0;
  for (let i = rows - 1; i >= 0; i--) {
    for (let j = columns - 1; j >= 0; j--) {
      const gain = score(i, j);
      const paired = gain > 0 ? gain + at(i + 1, j + 1) : 0;
      best[i * width + j] = Math.max(paired, at(i + 1, j), at(i, j + 1));
    }
  }
  const pairs: [number, number][] = [];
  let i = 0;
  let j = 0;
  while (i < rows && j < columns) {
    const gain = score(i, j);
    if (gain > 0 && at(i, j) === gain + at(i + 1, j + 1)) pairs.push([i++, j++]);
    else if (at(i + 1, j) >= at(i, j + 1)) i++;
    else j++;
  }
  return pairs;
}
