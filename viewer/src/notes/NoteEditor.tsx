/** The note on a rollout: a star, tags and a comment, saved as soon as they change. */
import { useEffect, useRef, useState } from "preact/hooks";
import type { Note } from "../api";
import { messageOf, useFacets } from "../data";
import { useSource } from "../source";
import { Button } from "../ui/Button";
import { Chip } from "../ui/Chip";
import { useShortcuts } from "../ui/keys";
import { saveNote } from "./saving";
import type { Draft } from "./saving";
import { Star } from "./Star";
import { TagInput } from "./TagInput";
import "./notes.css";

interface Props {
  run: string;
  task: number;
  repeat: number;
  note: Note | null;
  onSaved?: (note: Note) => void;
}

export function NoteEditor(props: Props) {
  const { isReport } = useSource();
  if (isReport) return props.note ? <ReadOnlyNote note={props.note} /> : null;
  return <Editor key={`${props.run} ${props.task}:${props.repeat}`} {...props} />;
}

type Saving = "idle" | "unsaved" | "saving" | "saved" | { error: string };

function Editor({ run, task, repeat, note, onSaved }: Props) {
  const source = useSource();
  const [isTagging, setIsTagging] = useState(false);
  const known = useFacets(isTagging ? run : null).data?.tags.map(({ value }) => value) ?? [];
  const { star = false, tags = [], comment: text = "" } = note ?? {};
  const [draft, setDraft] = useState<Draft>({ task, repeat, star, tags, comment: text });
  const [saving, setSaving] = useState<Saving>("idle");
  const comment = useRef<HTMLTextAreaElement>(null);
  const unsaved = useRef<Draft | null>(null);

  const save = (changed: Draft) => {
    unsaved.current = null;
    setDraft(changed);
    setSaving("saving");
    saveNote(source, run, changed).then(
      (saved) => {
        setSaving((old) => (old === "saving" ? "saved" : old));
        onSaved?.(saved);
      },
      (error: unknown) => {
        unsaved.current ??= changed;
        setSaving({ error: messageOf(error) });
      },
    );
  };
  const saveComment = () => unsaved.current && save(unsaved.current);
  const write = (written: string) => {
    const changed = { ...draft, comment: written };
    unsaved.current = changed;
    setDraft(changed);
    setSaving("unsaved");
  };
  const latest = useRef(saveComment);
  latest.current = saveComment;
  // The browser's buttons leave the page without a blur, and so does closing it.
  useEffect(() => {
    const leave = () => void latest.current();
    addEventListener("pagehide", leave);
    return () => {
      removeEventListener("pagehide", leave);
      leave();
    };
  }, []);
  const toggleStar = () => save({ ...draft, star: !draft.star });
  useShortcuts([
    { keys: ["s"], label: "Star", act: toggleStar },
    { keys: ["c"], label: "Comment", act: () => comment.current?.focus() },
  ]);

  return (
    <div class="note-editor">
      <div class="note-row">
        <Star isOn={draft.star} name={`task ${task}, repeat ${repeat}`} onToggle={toggleStar} />
        <TagInput
          tags={draft.tags}
          known={known}
          onFocus={() => setIsTagging(true)}
          onChange={(tags) => save({ ...draft, tags })}
        />
      </div>
      <textarea
        ref={comment}
        class="field"
        rows={Math.min(12, Math.max(2, draft.comment.split("\n").length))}
        placeholder="Comment (c)"
        aria-label="Comment"
        dir="auto"
        value={draft.comment}
        onInput={(event) => write(event.currentTarget.value)}
        onBlur={saveComment}
        onKeyDown={(event) => {
          if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) saveComment();
          if (event.key === "Escape") comment.current?.blur();
        }}
      />
      <State saving={saving} retry={() => save(draft)} />
    </div>
  );
}

function State({ saving, retry }: { saving: Saving; retry: () => void }) {
  if (typeof saving === "object") {
    return (
      <p class="note-state is-error" role="alert">
        Not saved: {saving.error} <Button kind="quiet" onClick={retry}>Try again</Button>
      </p>
    );
  }
  const texts = { idle: "", unsaved: "Saved when you leave the field, or with Ctrl+Enter.", saving: "Saving…", saved: "Saved." };
  return <p class="note-state dim" role="status">{texts[saving]}</p>;
}

function ReadOnlyNote({ note }: { note: Note }) {
  return (
    <div class="note-editor">
      <div class="note-row">
        <Star isOn={note.star} name="" />
        <span class="tags">{note.tags.map((tag) => <Chip key={tag} tone="accent">{tag}</Chip>)}</span>
      </div>
      {note.comment && <p class="note-comment" dir="auto">{note.comment}</p>}
    </div>
  );
}
