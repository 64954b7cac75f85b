/** Tags as chips with a field for another one, which completes the tags of the run. */
import { useId, useState } from "preact/hooks";
import { Chip } from "../ui/Chip";

interface Props {
  tags: string[];
  known: string[];
  /** Called before the tags of the run are needed. */
  onFocus: () => void;
  onChange: (tags: string[]) => void;
}

/** The server accepts tags of this length. */
const LONGEST = 64;

export function TagInput({ tags, known, onFocus, onChange }: Props) {
  const [text, setText] = useState("");
  const id = useId();
  const add = (value: string) => {
    const tag = value.trim();
    setText("");
    if (tag && !tags.includes(tag)) onChange([...tags, tag]);
  };
  const press = (event: KeyboardEvent) => {
    if (event.key === "Enter" || event.key === ",") {
      event.preventDefault();
      add(text);
    } else if (event.key === "Backspace" && text === "" && tags.length > 0) {
      onChange(tags.slice(0, -1));
    }
  };
  return (
    <div class="tags">
      {tags.map((tag) => (
        <Chip key={tag} tone="accent" removeLabel={`Remove the tag ${tag}`} onRemove={() => onChange(tags.filter((each) => each !== tag))}>
          {tag}
        </Chip>
      ))}
      <input
        class="field"
        list={id}
        placeholder="Add a tag"
        aria-label="Add a tag"
        maxLength={LONGEST}
        value={text}
        onInput={(event) => setText(event.currentTarget.value)}
        onFocus={onFocus}
        onKeyDown={press}
        onBlur={() => add(text)}
      />
      <datalist id={id}>
        {known.filter((tag) => !tags.includes(tag)).map((tag) => <option key={tag} value={tag} />)}
      </datalist>
    </div>
  );
}
