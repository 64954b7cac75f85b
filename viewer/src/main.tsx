/** Start the page: from the server's /api, or from the data inside an exported report. */

// The styles first: those of the pages come after them and may override them.
import "./styles/tokens.css";
import "./styles/base.css";
import "./styles/ui.css";
import "./styles/overlays.css";
import "./styles/tables.css";
import "./shell/shell.css";
import "./styles/print.css";
import { render } from "preact";
import { messageOf } from "./data";
import { HttpSource } from "./http_source";
import { embeddedSource } from "./report/embedded";
import { Shell } from "./shell/Shell";
import { SourceContext } from "./source";
import type { Source } from "./source";
import { ErrorNote } from "./ui";
import { applyStoredTheme } from "./ui/theme";

async function chooseSource(): Promise<Source> {
  return (await embeddedSource()) ?? new HttpSource();
}

function start(root: HTMLElement): void {
  applyStoredTheme();
  chooseSource().then(
    (source) =>
      render(
        <SourceContext.Provider value={source}>
          <Shell />
        </SourceContext.Provider>,
        root,
      ),
    (error: unknown) => render(<ErrorNote message={`The report cannot be read: ${messageOf(error)}`} />, root),
  );
}

const root = document.getElementById("app");
if (root) start(root);
