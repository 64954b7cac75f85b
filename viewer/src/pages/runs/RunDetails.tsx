/** The settings, the command and the problems of a run. */

import type { Run } from "../../api";
import { Command, Problems } from "../../ui";
import { visible } from "../../rollout/text/visible";
import { plain } from "../../ui/format";
import { quoted } from "../../ui/shell_words";

export function RunDetails({ run }: { run: Run }) {
  const settings = Object.entries(run.settings);
  return (
    <div class="run-details">
      {run.reason && <p>{visible(run.reason)}</p>}
      <p class="dim mono">{run.path}</p>
      {run.command && <Command text={run.command.map(quoted).join(" ")} />}
      <Problems problems={run.problems} />
      {settings.length > 0 ? (
        <dl class="settings">
          {settings.map(([name, value]) => (
            <div key={name}>
              <dt>{visible(name)}</dt>
              <dd>{visible(plain(value))}</dd>
            </div>
          ))}
        </dl>
      ) : (
        <p class="dim">The settings are unknown, because the run has no x_run.json.</p>
      )}
    </div>
  );
}
