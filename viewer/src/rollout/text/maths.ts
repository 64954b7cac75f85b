/** TeX to MathML. */

import temml from "temml";
import { inSlices } from "./slices";

/** Long or deeply nested input would block the page. */
const LONGEST = 5_000;

/** Replace the source in each element with `data-maths` by its formula. Formulas with errors keep their source. */
export function drawFormulas(root: ParentNode): void {
  for (const place of root.querySelectorAll<HTMLElement>("[data-maths]")) inSlices(() => draw(place));
}

function draw(place: HTMLElement): void {
  const source = place.textContent ?? "";
  if (source.length > LONGEST) return;
  const drawn = document.createElement("span");
  try {
    temml.render(source, drawn, {
      displayMode: place.dataset.maths === "block",
      throwOnError: true,
      trust: false,
      maxExpand: 200,
      maxSize: [30, 30],
    });
  } catch {
    // Invalid TeX: the reader sees what the model wrote.
    return;
  }
  // Ids and addresses come from \label and \ref: they could clash with those of the page.
  for (const element of drawn.querySelectorAll("*")) {
    for (const name of ["id", "href", "class"]) element.removeAttribute(name);
  }
  place.title = source;
  place.replaceChildren(...drawn.childNodes);
}
