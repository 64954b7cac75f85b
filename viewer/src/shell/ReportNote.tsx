/** What an exported report contains of its runs. */

import { useSource } from "../source";
import { count } from "../ui/format";

export function ReportNote() {
  const { excerpt } = useSource();
  if (excerpt === null) return null;
  const { included, total, text } = excerpt;
  const filter = [...new URLSearchParams(text)].map(([name, value]) => `${name}=${value}`).join(", ");
  return (
    <p class="report-note">
      Exported report: {included < total ? `${count(included)} of ${count(total)} rollouts` : "all rollouts"}
      {filter && ` with ${filter}`}
    </p>
  );
}
