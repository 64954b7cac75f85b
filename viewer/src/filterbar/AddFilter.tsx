/** The menu that adds to the filter: first what to narrow down, then its values. */

import { Fragment } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import type { Facets, Filter } from "../api";
import { Button, MenuItem } from "../ui";
import { compact, number } from "../ui/format";
import { chosenOf, offered, valuesOf, withChosen, withRange } from "./dimensions";
import type { Dimension } from "./dimensions";

interface PartProps<D extends Dimension = Dimension> {
  facets: Facets;
  filter: Filter;
  dimension: D;
  onChange(filter: Filter): void;
}

export function AddFilter({ facets, filter, onChange }: Omit<PartProps, "dimension">) {
  const [dimension, setDimension] = useState<Dimension | null>(null);
  const [text, setText] = useState("");
  const panel = useRef<HTMLDivElement>(null);
  useEffect(() => panel.current?.querySelector<HTMLElement>("input, .menu-item")?.focus(), [dimension]);
  const choose = (chosen: Dimension) => {
    if (chosen.kind !== "flag") return setDimension(chosen);
    const { [chosen.name]: isSet, ...rest } = filter;
    onChange(isSet ? rest : { ...rest, [chosen.name]: true });
  };
  const found = offered(facets).filter((each) => each.label.toLowerCase().includes(text.toLowerCase()));
  return (
    <div class="filter-panel" ref={panel}>
      {dimension ? (
        <>
          <div class="filter-head">
            <Button kind="quiet" label="Back to all filters" onClick={() => setDimension(null)}>
              ‹
            </Button>
            <span class="cut">{dimension.label}</span>
          </div>
          <Values facets={facets} filter={filter} dimension={dimension} onChange={onChange} />
        </>
      ) : (
        <>
          <SearchField label="Find a filter or field" value={text} onChange={setText} />
          {found.map((each, at) => (
            <Fragment key={`${each.kind} ${each.name}`}>
              {each.kind === "field" && found[at - 1]?.kind !== "field" && (
                <p class="menu-title">Fields of rows and results</p>
              )}
              <Choice dimension={each} filter={filter} onClick={() => choose(each)} />
            </Fragment>
          ))}
          {found.length === 0 && <p class="menu-title">Nothing has this name.</p>}
        </>
      )}
    </div>
  );
}

function Choice({ dimension, filter, onClick }: { dimension: Dimension; filter: Filter; onClick: () => void }) {
  if (dimension.kind === "flag") {
    return (
      <MenuItem checked={filter[dimension.name] === true} onClick={onClick}>
        {dimension.label}
      </MenuItem>
    );
  }
  return (
    <MenuItem onClick={onClick} aside="›">
      {dimension.label}
    </MenuItem>
  );
}

function Values({ facets, filter, dimension, onChange }: PartProps) {
  switch (dimension.kind) {
    case "values":
    case "field":
      return <ValueList facets={facets} filter={filter} dimension={dimension} onChange={onChange} />;
    case "range":
      return <RangeFields facets={facets} filter={filter} dimension={dimension} onChange={onChange} />;
    case "numbers":
      return <NumbersField facets={facets} filter={filter} dimension={dimension} onChange={onChange} />;
    case "flag":
      return null;
  }
}

/** Values with their counts. A value that is not listed, because there are too many, can be typed. */
function ValueList({ facets, filter, dimension, onChange }: PartProps) {
  const [text, setText] = useState("");
  const values = valuesOf(facets, dimension);
  const chosen = chosenOf(filter, dimension);
  const found = values.filter(({ value }) => value.toLowerCase().includes(text.toLowerCase()));
  const isNew = text !== "" && dimension.kind === "field" && !values.some(({ value }) => value === text);
  const toggle = (value: string) => {
    const others = chosen.filter((each) => each !== value);
    onChange(withChosen(filter, dimension, others.length < chosen.length ? others : [...chosen, value]));
  };
  return (
    <>
      {(values.length > 8 || dimension.kind === "field") && (
        <SearchField label="Find a value" value={text} onChange={setText} />
      )}
      {found.map(({ value, count }) => (
        <MenuItem key={value} checked={chosen.includes(value)} aside={compact(count)} onClick={() => toggle(value)}>
          {value === "" ? <em>empty</em> : value}
        </MenuItem>
      ))}
      {isNew && (
        <MenuItem checked={chosen.includes(text)} onClick={() => toggle(text)}>
          {text}
        </MenuItem>
      )}
    </>
  );
}

function RangeFields({ facets, filter, dimension, onChange }: PartProps<Extract<Dimension, { kind: "range" }>>) {
  const known = facets[dimension.name];
  const low = filter[`${dimension.name}_min`];
  const high = filter[`${dimension.name}_max`];
  const change = (nextLow: number | null, nextHigh: number | null) =>
    onChange(withRange(filter, dimension.name, nextLow, nextHigh));
  return (
    <div class="filter-range">
      <NumberField
        label={`${dimension.label} from`}
        value={low}
        hint={known?.min}
        onChange={(value) => change(value, high ?? null)}
      />
      <span class="dim">to</span>
      <NumberField
        label={`${dimension.label} to`}
        value={high}
        hint={known?.max}
        onChange={(value) => change(low ?? null, value)}
      />
    </div>
  );
}

interface NumberFieldProps {
  label: string;
  value: number | undefined;
  hint: number | undefined;
  onChange(value: number | null): void;
}

function NumberField({ label, value, hint, onChange }: NumberFieldProps) {
  const [text, setText] = useState(value === undefined ? "" : String(value));
  return (
    <input
      class="field"
      aria-label={label}
      inputMode="decimal"
      placeholder={hint === undefined ? "" : number(hint)}
      value={text}
      onInput={(event) => {
        const typed = event.currentTarget.value;
        setText(typed);
        if (typed.trim() === "") onChange(null);
        else if (Number.isFinite(Number(typed))) onChange(Number(typed));
      }}
    />
  );
}

function NumbersField({ filter, dimension, onChange }: PartProps<Extract<Dimension, { kind: "numbers" }>>) {
  const [text, setText] = useState((filter[dimension.name] ?? []).join(" "));
  const apply = (typed: string) => {
    setText(typed);
    onChange(
      withChosen(
        filter,
        dimension,
        typed.split(/[\s,;]+/).filter((part) => /^\d{1,15}$/.test(part)),
      ),
    );
  };
  return (
    <div class="filter-range">
      <input
        class="field"
        aria-label={`Numbers of the ${dimension.name}s`}
        placeholder="For example 3 17 42"
        value={text}
        onInput={(event) => apply(event.currentTarget.value)}
      />
    </div>
  );
}

function SearchField({ label, value, onChange }: { label: string; value: string; onChange: (value: string) => void }) {
  return (
    <input
      class="field"
      aria-label={label}
      placeholder={label}
      value={value}
      onInput={(event) => onChange(event.currentTarget.value)}
    />
  );
}
