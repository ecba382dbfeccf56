/** Which page is shown: signed in or not, and by path. */

import { QueryClientProvider, useQueryClient } from "@tanstack/react-query";
import { Component, type ReactNode, StrictMode, useCallback, useEffect, useState } from "react";
import { AlertsPage } from "./alerts/AlertsPage";
import { isSignedOut } from "./api/client";
import { LiveProvider } from "./api/live-provider";
import { makeQueryClient } from "./api/queries";
import { ComparePage } from "./compare/ComparePage";
import { Frame } from "./frame/Frame";
import { TopBarContent } from "./frame/top-bar";
import { Link, usePlace } from "./lib/router";
import { ThemeProvider } from "./lib/theme";
import { RunPage } from "./run/RunPage";
import { RunsPage } from "./runs/RunsPage";
import { SettingsPage } from "./settings/SettingsPage";
import { SignInPage, takeCode } from "./signin/SignInPage";
import { EmptyState } from "./ui/states";

const cache = makeQueryClient();

export function App() {
  return (
    <StrictMode>
      <QueryClientProvider client={cache}>
        <Session />
      </QueryClientProvider>
    </StrictMode>
  );
}

/** The code of the link that opened this page, if it was one. Taken while the module loads, before anything can fail. */
const openedWith = takeCode();

function Session() {
  const queries = useQueryClient();
  const [code, setCode] = useState(openedWith);
  const [signedIn, setSignedIn] = useState(openedWith === null);
  const onSignedOut = useCallback(() => {
    setSignedIn(false);
    queries.clear();
  }, [queries]);
  const onSignedIn = useCallback(() => {
    setCode(null);
    setSignedIn(true);
  }, []);
  useEffect(
    () =>
      queries.getQueryCache().subscribe(({ type, query }) => {
        if (type === "updated" && query.state.status === "error" && isSignedOut(query.state.error)) onSignedOut();
      }),
    [queries, onSignedOut],
  );
  useEffect(() => {
    // A link pasted into a page that is already open changes only the fragment.
    const onHash = () => {
      const fresh = takeCode();
      if (fresh === null) return;
      setCode(fresh);
      setSignedIn(false);
    };
    addEventListener("hashchange", onHash);
    return () => removeEventListener("hashchange", onHash);
  }, []);

  return (
    <ThemeProvider enabled={signedIn}>
      {signedIn ? (
        <LiveProvider onSignedOut={onSignedOut}>
          <Frame>
            <Page onSignedOut={onSignedOut} />
          </Frame>
        </LiveProvider>
      ) : (
        <SignInPage code={code} onSignedIn={onSignedIn} />
      )}
    </ThemeProvider>
  );
}

function Page({ onSignedOut }: { onSignedOut: () => void }) {
  const { path } = usePlace();
  const [, place, id, tab = ""] = path.split("/");
  // A broken page is left by going elsewhere: the boundary starts anew with every path.
  return <PageBoundary key={`${place}/${id}`}>{choose(place, id, tab, onSignedOut)}</PageBoundary>;
}

function choose(place: string | undefined, id: string | undefined, tab: string, onSignedOut: () => void): ReactNode {
  if (!place) return <RunsPage />;
  if (place === "runs" && id) return <RunPage run={decodeURIComponent(id)} tab={tab} />;
  if (place === "compare") return <ComparePage id={id ? decodeURIComponent(id) : ""} />;
  if (place === "alerts") return <AlertsPage tab={id ?? ""} rule={tab ? decodeURIComponent(tab) : undefined} />;
  if (place === "settings") return <SettingsPage onSignedOut={onSignedOut} />;
  return (
    <>
      <TopBarContent crumbs={[{ text: "Runs", to: "/" }]} />
      <EmptyState title="There is no such page">
        <Link to="/" className="button primary">
          Back to Runs
        </Link>
      </EmptyState>
    </>
  );
}

/** Our own mistakes: the page says so and can be tried again, the frame stays. */
class PageBoundary extends Component<{ children: ReactNode }, { error: Error | null }> {
  override state: { error: Error | null } = { error: null };

  static getDerivedStateFromError(error: Error) {
    return { error };
  }

  override render() {
    const { error } = this.state;
    if (!error) return this.props.children;
    return (
      <EmptyState title="This page failed">
        <p>It is a mistake of halfscope, not of your training: {error.message}</p>
        <button type="button" className="button primary" onClick={() => this.setState({ error: null })}>
          Try again
        </button>
      </EmptyState>
    );
  }
}
