/** The parts that all pages are built of. */

export { Bar, Progress } from "./Bar";
export type { Segment } from "./Bar";
export { Button, ButtonLink } from "./Button";
export { Card } from "./Card";
export { Reward } from "./Reward";
export { Chip, OutcomeChip, OutcomeMark, StateChip } from "./Chip";
export type { Tone } from "./Chip";
export { Command, CopyButton } from "./Copy";
export { Dialog } from "./Dialog";
export * as format from "./format";
export { useShortcuts } from "./keys";
export { Menu, MenuItem } from "./Menu";
export { Empty, ErrorNote, Problems, Spinner, WarnNote } from "./notes";
export { Table } from "./Table";
export type { Column } from "./Table";
export { colorOf, useTheme } from "./theme";
