/** Read the data that `ng view --export` put into the page. */
import type { Report } from "../api";
import { EmbeddedSource } from "./EmbeddedSource";

/** Return the report in this page, or null if the page comes from a server. */
export async function embeddedSource(): Promise<EmbeddedSource | null> {
  const element = document.querySelector("script#report[type='application/gzip+base64']");
  return element && new EmbeddedSource(await unpack(element.textContent));
}

async function unpack(text: string): Promise<Report> {
  const packed = Uint8Array.from(atob(text.trim()), (each) => each.charCodeAt(0));
  const unpacked = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return (await new Response(unpacked).json()) as Report;
}
