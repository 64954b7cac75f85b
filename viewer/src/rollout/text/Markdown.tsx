/** A model's text as markdown with formulas. Text that waits for its turn is shown as it is. */

import { useLayoutEffect, useRef } from "preact/hooks";
import { fragmentOf } from "./markdown";
import { drawFormulas } from "./maths";
import { inSlices } from "./slices";
import { visible } from "./visible";

export function Markdown({ text }: { text: string }) {
  const place = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    const root = place.current;
    if (root === null) return;
    const show = (content: DocumentFragment | null): void => {
      root.classList.toggle("is-plain", content === null);
      root.replaceChildren(content ?? visible(text));
    };
    show(null);
    return inSlices(() => {
      show(fragmentOf(text));
      drawFormulas(root);
    });
  }, [text]);
  return <div class="markdown" dir="auto" ref={place} />;
}
