/** Every page is loaded when it is first opened, and an error in one of them leaves the rest of the window usable. */

import { Component } from "preact";
import type { ComponentChildren, ComponentType } from "preact";
import { useEffect, useState } from "preact/hooks";
import { messageOf } from "../data";
import Runs from "../pages/Runs";
import { href } from "../state";
import type { Page } from "../state";
import { Empty, ErrorNote, Spinner } from "../ui";

const Rollouts = lazy(() => import("../pages/Rollouts"));
const Overview = lazy(() => import("../overview/OverviewPage"));
const Rollout = lazy(() => import("../rollout/RolloutPage"));
const Task = lazy(() => import("../rollout/TaskPage"));
const Compare = lazy(() => import("../rollout/ComparePage"));
const Align = lazy(() => import("../rollout/AlignPage"));
const Live = lazy(() => import("../live/LivePage"));

export function CurrentPage({ route }: { route: Page }) {
  return <Guard key={route.page}>{pageOf(route)}</Guard>;
}

function pageOf(route: Page): ComponentChildren {
  switch (route.page) {
    case "runs":
      return <Runs />;
    case "rollouts":
      return <Rollouts run={route.run} />;
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

/** Load a page's module when it is first shown. */
function lazy<Props extends object>(load: () => Promise<{ default: ComponentType<Props> }>) {
  let loaded: ComponentType<Props> | null = null;
  return function Lazy(props: Props) {
    const [PageComponent, setPage] = useState<ComponentType<Props> | null>(() => loaded);
    const [error, setError] = useState<string | null>(null);
    const start = () => {
      setError(null);
      load().then(
        (module) => {
          loaded = module.default;
          setPage(() => module.default);
        },
        (reason: unknown) => setError(messageOf(reason)),
      );
    };
    useEffect(() => {
      if (!loaded) start();
    }, []);
    if (PageComponent) return <PageComponent {...props} />;
    return error ? <ErrorNote message={error} onRetry={start} /> : <Spinner label="Loading the page" />;
  };
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
