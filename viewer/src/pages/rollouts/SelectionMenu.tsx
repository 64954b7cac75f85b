/** Take the selected rollouts along: as a download, or by a command. */

import type { Filter } from "../../api";
import { useCurrentRun } from "../../data";
import { filterQuery, queryOf, useSource } from "../../source";
import { ButtonLink, Command, Menu } from "../../ui";
import { amount } from "../../ui/format";
import { quoted } from "../../ui/shell_words";

export function SelectionMenu({ run, filter, total }: { run: string; filter: Filter; total: number }) {
  const address = useSource().selectionAddress(run, filter);
  const { data } = useCurrentRun();
  if (address === null || !data) return null;
  const file = `${data.name.split("/").at(-1)}_selection.jsonl`;
  const filterText = queryOf(filterQuery(filter)).toString();
  const words = ["ng", "view", data.path, ...(filterText ? ["--filter", filterText] : []), "--jsonl", file];
  return (
    <Menu
      label={
        <>
          Save<span class="wide-only"> the selected rollouts</span>
        </>
      }
      name="Save the selected rollouts"
      alignRight
    >
      {() => (
        <div class="selection">
          <p>The lines of {amount(total, "rollout")}, as they are in the results:</p>
          <ButtonLink to={address} download={file}>
            Download {file}
          </ButtonLink>
          <p>The same by a command:</p>
          <Command text={words.map(quoted).join(" ")} />
        </div>
      )}
    </Menu>
  );
}
