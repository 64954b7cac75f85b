/** An image or a sound of a message. */

import { useState } from "preact/hooks";
import type { Part } from "../../api";
import { useSource } from "../../source";

type MediaPart = Extract<Part, { kind: "image" | "audio" }>;

export function Media({ part }: { part: MediaPart }) {
  const source = useSource();
  const [isBroken, setBroken] = useState(false);
  const [isLarge, setLarge] = useState(false);
  if (part.source === null || isBroken) {
    return (
      <p class="media-missing">
        {part.kind === "image" ? "Image" : "Sound"} not shown: {part.note ?? "the browser cannot read it"}
      </p>
    );
  }
  const address = source.mediaAddress(part.source);
  if (part.kind === "audio") {
    return <audio class="media-audio" controls preload="metadata" src={address} onError={() => setBroken(true)} />;
  }
  return (
    <button
      type="button"
      class={`media-image${isLarge ? " is-large" : ""}`}
      aria-expanded={isLarge}
      title={isLarge ? "Show smaller" : "Show larger"}
      onClick={() => setLarge(!isLarge)}
    >
      <img src={address} alt={part.note ?? "Image of the message"} loading="lazy" onError={() => setBroken(true)} />
    </button>
  );
}
