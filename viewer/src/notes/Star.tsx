/** The star of a rollout, as a button or, in a report, as a mark. */
import "./notes.css";

interface Props {
  isOn: boolean;
  /** What is starred, such as "task 3, repeat 1". */
  name: string;
  /** Without it, the star cannot be changed. */
  onToggle?: (() => void) | undefined;
  tabIndex?: number;
}

const OUTLINE = "M8 1.8l1.9 3.9 4.3.6-3.1 3 .7 4.3L8 11.6l-3.8 2 .7-4.3-3.1-3 4.3-.6z";

export function Star({ isOn, name, onToggle, tabIndex }: Props) {
  const shape = (
    <svg viewBox="0 0 16 16" width="16" height="16" aria-hidden="true">
      <path d={OUTLINE} fill={isOn ? "currentColor" : "none"} stroke="currentColor" stroke-width="1.2" stroke-linejoin="round" />
    </svg>
  );
  if (!onToggle) {
    return isOn ? <span class="star is-on" role="img" aria-label="starred">{shape}</span> : null;
  }
  return (
    <button
      type="button"
      class={isOn ? "star is-on" : "star"}
      aria-pressed={isOn}
      aria-label={`Star ${name}`}
      title={isOn ? "Remove the star (s)" : "Star (s)"}
      {...(tabIndex === undefined ? {} : { tabIndex })}
      onClick={(event) => {
        event.stopPropagation();
        onToggle();
      }}
    >
      {shape}
    </button>
  );
}
