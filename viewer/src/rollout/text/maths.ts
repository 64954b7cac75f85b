/** TeX to MathML. The converter is loaded when the first formula is shown. */

let loading: Promise<typeof import("temml").default> | null = null;

/** Long or deeply nested input would block the page. */
const LONGEST = 5_000;

/** Replace the source in each element with `data-maths` by its formula. Formulas with errors keep their source. */
export async function drawFormulas(root: ParentNode): Promise<void> {
  const places = [...root.querySelectorAll<HTMLElement>("[data-maths]:not([data-drawn])")];
  if (places.length === 0) return;
  loading ??= import("temml").then((module) => module.default);
  const temml = await loading;
  for (const place of places) draw(temml, place);
}

function draw(temml: typeof import("temml").default, place: HTMLElement): void {
  const source = place.textContent ?? "";
  place.dataset.drawn = "";
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
