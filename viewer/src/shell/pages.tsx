/** The page of a route. An error in one of them leaves the rest of the window usable. */

import { Component } from "preact";
import type { ComponentChildren } from "preact";
import { messageOf } from "../data";
import Live from "../live/LivePage";
import Overview from "../overview/OverviewPage";
import Rollouts from "../pages/Rollouts";
import Runs from "../pages/Runs";
import Tasks from "../pages/Tasks";
import Align from "../rollout/AlignPage";
import Compare from "../rollout/ComparePage";
import Rollout from "../rollout/RolloutPage";
import Task from "../rollout/TaskPage";
import Tools from "../tools/ToolsPage";
import Training from "../training/TrainingPage";
import { href } from "../state";
import type { Page } from "../state";
import { Empty, ErrorNote } from "../ui";

export function CurrentPage({ route }: { route: Page }) {
  return <Guard key={route.page}>{pageOf(route)}</Guard>;
}

function pageOf(route: Page): ComponentChildren {
  switch (route.page) {
    case "runs":
      return <Runs />;
    case "rollouts":
      return <Rollouts run={route.run} />;
    case "tasks":
      return <Tasks run={route.run} />;
    case "tools":
      return <Tools run={route.run} />;
    case "training":
      return <Training run={route.run} />;
    case "overview":
      return <Overview run={route.run} />;
    case "live":
      return <Live run={route.run} />;
    case "rollout":
      return <Rollout run={route.run} task={route.task} repeat={route.repeat} />;
    case "task":
      return <Task run={route.run} task={route.task} />;
    case "compare":
      return <Compare runs={route.runs} />;
    case "align":
      return <Align runs={route.runs} task={route.task} />;
    case "unknown":
      return (
        <>
          <h1 class="hidden">Not found</h1>
          <Empty title="This page does not exist">
            <a href={href({ page: "runs" })}>Go to the runs</a>
          </Empty>
        </>
      );
  }
}

/** An error while a page is drawn is a bug of ours, or data that nobody expected. */
class Guard extends Component<{ children: ComponentChildren }, { error: string | null }> {
  override state: { error: string | null } = { error: null };

  static override getDerivedStateFromError(error: unknown): { error: string } {
    return { error: messageOf(error) };
  }

  override render() {
    const { error } = this.state;
    if (error === null) return this.props.children;
    return (
      <ErrorNote
        message={`This page cannot be shown: ${error}. The raw data are in the results file.`}
        onRetry={() => this.setState({ error: null })}
      />
    );
  }
}
