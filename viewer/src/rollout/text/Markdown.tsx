/** A model's text as markdown with formulas. */

import { useLayoutEffect, useRef } from "preact/hooks";
import { fragmentOf } from "./markdown";
import { drawFormulas } from "./maths";
import { visible } from "./visible";

export function Markdown({ text }: { text: string }) {
  const place = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    const root = place.current;
    if (root === null) return;
    const fragment = fragmentOf(text);
    root.classList.toggle("is-plain", fragment === null);
    root.replaceChildren(fragment ?? visible(text));
    // A failed download of the converter leaves the sources of the formulas, which are readable.
    drawFormulas(root).catch((error: unknown) => console.warn("Formulas are shown as source.", error));
  }, [text]);
  return <div class="markdown" dir="auto" ref={place} />;
}
