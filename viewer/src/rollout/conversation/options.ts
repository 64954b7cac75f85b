/** What of a conversation is shown. Kept in the address. */

import { useParameter } from "../../state";

export interface Shown {
  tools: boolean;
  reasoning: boolean;
  metadata: boolean;
  /** Texts as they are, instead of markdown. */
  raw: boolean;
  /** Reasoning and long system messages are open. */
  unfolded: boolean;
}

export const ALL: Shown = { tools: true, reasoning: true, metadata: true, raw: false, unfolded: false };

const HIDEABLE = ["tools", "reasoning", "metadata"] as const;

export function useShown(): [Shown, (name: keyof Shown) => void] {
  const [hide, setHide] = useParameter("hide");
  const [raw, setRaw] = useParameter("raw");
  const [unfold, setUnfold] = useParameter("unfold");
  const hidden = new Set((hide ?? "").split(","));
  const shown: Shown = {
    tools: !hidden.has("tools"),
    reasoning: !hidden.has("reasoning"),
    metadata: !hidden.has("metadata"),
    raw: raw === "true",
    unfolded: unfold === "true",
  };
  const toggle = (name: keyof Shown): void => {
    if (name === "raw") return setRaw(shown.raw ? null : "true");
    if (name === "unfolded") return setUnfold(shown.unfolded ? null : "true");
    const now = HIDEABLE.filter((each) => (each === name ? shown[each] : !shown[each]));
    setHide(now.join(",") || null);
  };
  return [shown, toggle];
}
