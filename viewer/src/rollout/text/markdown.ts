/** Markdown with formulas as a sanitised fragment. HTML in the text is shown as text, and nothing is loaded. */

import DOMPurify from "dompurify";
import { Marked, type RendererObject, type TokenizerExtension, type RendererExtension } from "marked";
import { visible } from "./visible";

const TAGS = [
  ..."p br hr strong em del code pre blockquote ul ol li a span div".split(" "),
  ..."table thead tbody tr th td".split(" "),
];
/** Attributes that are no addresses. */
const PLAIN_ATTRIBUTES = ["start", "data-maths", "data-heading", "data-image"];

function escape(text: string): string {
  return text.replace(/[&<>"']/g, (character) => `&#${character.charCodeAt(0)};`);
}

const renderer: RendererObject = {
  // The headings of a model's text are no headings of the page.
  heading({ tokens, depth }) {
    return `<p data-heading="${depth}">${this.parser.parseInline(tokens)}</p>`;
  },
  html({ text, ...token }) {
    return "block" in token && token.block ? `<p>${escape(text)}</p>` : escape(text);
  },
  image({ href, text }) {
    return `<span data-image="">${escape(text || "image")}: ${escape(href)}</span>`;
  },
  checkbox({ checked }) {
    return checked ? "☑ " : "☐ ";
  },
  code({ text }) {
    return `<pre><code>${escape(text)}</code></pre>`;
  },
};

interface Formula {
  raw: string;
  source: string;
}

type Extension = TokenizerExtension & RendererExtension;

/** `$$…$$`, `\[…\]` and environments at the start of a block. */
const blockFormula: Extension = {
  name: "blockFormula",
  level: "block",
  // The text begins within a line, so that a block begins only after a line feed.
  start: (text) => place(text, /\n {0,3}(\$\$|\\\[|\\begin\{)/),
  tokenizer(text) {
    const found =
      /^ {0,3}\$\$([^$]+?)\$\$ *(?:\n|$)/.exec(text) ??
      /^ {0,3}\\\[([\s\S]+?)\\\] *(?:\n|$)/.exec(text) ??
      /^ {0,3}(\\begin\{(align|aligned|equation|gather|cases|matrix|pmatrix|bmatrix)\*?\}[\s\S]+?\\end\{\2\*?\}) *(?:\n|$)/.exec(
        text,
      );
    return found ? { type: "blockFormula", raw: found[0], source: found[1] ?? "" } : undefined;
  },
  renderer: (token) => `<div data-maths="block">${escape((token as unknown as Formula).source.trim())}</div>`,
};

/** `$…$`, `\(…\)`, `\[…\]`, `$$…$$` and a bare `\boxed{…}` within a line. */
const inlineFormula: Extension = {
  name: "inlineFormula",
  level: "inline",
  start: (text) => place(text, /\$|\\\(|\\\[|\\boxed\{/),
  tokenizer(text) {
    const found =
      /^\$\$([^$]+?)\$\$/.exec(text) ??
      // As in Pandoc: no space inside the dollars, and no digit after them, so that prices stay prices.
      /^\$(?!\s)((?:\\.|[^$\\\n]){1,2000}?)(?<!\s)\$(?!\d)/.exec(text) ??
      /^\\\(([\s\S]{1,2000}?)\\\)/.exec(text) ??
      /^\\\[([\s\S]{1,2000}?)\\\]/.exec(text);
    if (found) return { type: "inlineFormula", raw: found[0], source: found[1] ?? "" };
    const boxed = text.startsWith("\\boxed{") ? braced(text, "\\boxed".length) : null;
    // "Put the letter into \\boxed{}" means the command and not an empty box.
    if (boxed === null || /^\{\s*\}$/.test(boxed)) return undefined;
    return { type: "inlineFormula", raw: `\\boxed${boxed}`, source: `\\boxed{${asText(boxed.slice(1, -1))}}` };
  },
  renderer: (token) => `<span data-maths="inline">${escape((token as unknown as Formula).source)}</span>`,
};

function place(text: string, pattern: RegExp): number | undefined {
  const at = text.search(pattern);
  return at < 0 ? undefined : text[at] === "\n" ? at + 1 : at;
}

/** The balanced braces that begin at `at`, or null. */
function braced(text: string, at: number): string | null {
  let depth = 0;
  for (let here = at; here < Math.min(text.length, at + 2_000); here++) {
    if (text[here] === "\\") here++;
    else if (text[here] === "{") depth++;
    else if (text[here] === "}" && --depth === 0) return text.slice(at, here + 1);
  }
  return null;
}

/** Words in a box are text; anything with TeX in it is a formula. */
function asText(content: string): string {
  return /[\\^_{}$&#%~]/.test(content) || !/[a-z]{2}/i.test(content) ? content : `\\text{${content}}`;
}

const marked = new Marked({ gfm: true, breaks: true, renderer, extensions: [blockFormula, inlineFormula] });

/** Return the fragment, or null if the text cannot be parsed, for example because it is nested too deeply. */
export function fragmentOf(text: string): DocumentFragment | null {
  let html: string;
  try {
    html = marked.parse(visible(text), { async: false });
  } catch {
    return null;
  }
  const fragment = DOMPurify.sanitize(html, {
    ALLOWED_TAGS: TAGS,
    ALLOWED_ATTR: ["href", ...PLAIN_ATTRIBUTES],
    ADD_URI_SAFE_ATTR: PLAIN_ATTRIBUTES,
    ALLOWED_URI_REGEXP: /^(?:https?|mailto):/i,
    ALLOW_DATA_ATTR: false,
    ALLOW_ARIA_ATTR: false,
    RETURN_DOM_FRAGMENT: true,
  });
  for (const link of fragment.querySelectorAll("a")) openOutside(link);
  for (const block of fragment.querySelectorAll("pre, table")) makeScrollable(block);
  return fragment;
}

/** Open a link in a new tab, and show its address if its text differs. A link without an address becomes text. */
function openOutside(link: HTMLAnchorElement): void {
  const address = link.getAttribute("href");
  if (address === null) return link.replaceWith(...link.childNodes);
  link.target = "_blank";
  link.rel = "noopener noreferrer nofollow";
  link.referrerPolicy = "no-referrer";
  const text = link.textContent ?? "";
  if (text === address || `mailto:${text}` === address) return;
  const shown = document.createElement("span");
  shown.className = "link-address";
  shown.textContent = ` (${visible(address)})`;
  link.after(shown);
}

/** Wide blocks scroll by themselves, also by keyboard. */
function makeScrollable(block: Element): void {
  const frame = document.createElement("div");
  frame.className = "scrollable";
  frame.tabIndex = 0;
  block.replaceWith(frame);
  frame.append(block);
}
