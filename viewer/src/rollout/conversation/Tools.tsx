/** The tools that the model could call. */

import type { Rollout } from "../../api";
import { amount } from "../../ui/format";
import { JsonTree } from "../text/JsonTree";
import { LongText } from "../text/LongText";
import { visible } from "../text/visible";

export function Tools({ tools }: { tools: Rollout["tools"] }) {
  if (tools.length === 0) return null;
  return (
    <details class="tools">
      <summary>
        {amount(tools.length, "tool")}: <code>{visible(tools.map((tool) => tool.name).join(", "))}</code>
      </summary>
      <ul>
        {tools.map((tool, index) => (
          <li key={index}>
            <h3>
              <code>{visible(tool.name)}</code>
            </h3>
            {tool.description && <LongText text={tool.description} />}
            <JsonTree value={tool.parameters} label={`parameters of ${tool.name}`} open={0} />
          </li>
        ))}
      </ul>
    </details>
  );
}
