/** What surrounds every page: rail or bottom bar, top bar, banners, search and help. */

import { type ReactNode, useMemo, useRef, useState } from "react";
import { AlertWatch } from "../alerts/AlertWatch";
import { Bell, CountBadge } from "../alerts/Bell";
import { useLive } from "../api/live-provider";
import { useNow } from "../lib/hooks";
import { useKeys } from "../lib/keys";
import { usePrefs } from "../lib/prefs";
import { Link, navigate, usePlace } from "../lib/router";
import { cycleTheme } from "../lib/theme";
import { Icon } from "../ui/icons";
import { Toasts } from "../ui/toast";
import { HelpDialog } from "./HelpDialog";
import { QuickOpen } from "./QuickOpen";
import { type Slots, SlotsContext } from "./top-bar";

const PLACES = [
  { to: "/", title: "Runs", icon: "runs" },
  { to: "/compare", title: "Compare", icon: "compare" },
  { to: "/alerts", title: "Alerts", icon: "bell" },
  { to: "/settings", title: "Settings", icon: "settings" },
] as const;

export function Frame({ children }: { children: ReactNode }) {
  const { path } = usePlace();
  const [overlay, setOverlay] = useState<"help" | "search" | null>(null);
  const [crumbs, setCrumbs] = useState<HTMLElement | null>(null);
  const [pill, setPill] = useState<HTMLElement | null>(null);
  const slots = useMemo<Slots>(() => ({ crumbs, pill }), [crumbs, pill]);
  const content = useRef<HTMLElement>(null);
  // Where the page has a search field of its own, that is the search.
  const search = () => {
    const field = document.querySelector<HTMLInputElement>("[data-page-search]");
    if (field) field.focus();
    else setOverlay("search");
  };
  useKeys({
    "?": () => setOverlay("help"),
    "/": search,
    "g r": () => navigate("/"),
    "g c": () => navigate("/compare"),
    "g a": () => navigate("/alerts"),
    "g s": () => navigate("/settings"),
    m: cycleTheme,
  });

  return (
    <SlotsContext value={slots}>
      <button type="button" className="skip-link" onClick={() => content.current?.focus()}>
        Skip to content
      </button>
      <nav className="rail" aria-label="Main">
        {PLACES.map(({ to, title, icon }) => {
          const isHere = to === "/" ? path === "/" || path.startsWith("/runs") : path.startsWith(to);
          return (
            <Link key={to} to={to} className="rail-item" aria-current={isHere ? "page" : undefined}>
              <Icon name={icon} />
              {title}
              {icon === "bell" && <CountBadge />}
            </Link>
          );
        })}
      </nav>
      <header className="top-bar">
        <nav ref={setCrumbs} className="crumbs-slot" aria-label="Where you are" />
        <button type="button" className="search-button" onClick={search} aria-label="Search runs">
          <Icon name="search" />
          <span className="search-hint">Search</span>
          <kbd>/</kbd>
        </button>
        <div ref={setPill} className="pill-slot" />
        <Bell />
        <ThemeButton />
        <button
          type="button"
          className="icon-button help-button"
          aria-label="Keyboard shortcuts"
          title="Keyboard shortcuts (?)"
          onClick={() => setOverlay("help")}
        >
          <Icon name="help" />
        </button>
      </header>
      <main ref={content} className="content" tabIndex={-1}>
        <ServerBanner />
        {children}
      </main>
      <Toasts />
      <AlertWatch />
      {overlay === "help" && <HelpDialog onClose={() => setOverlay(null)} />}
      {overlay === "search" && <QuickOpen onClose={() => setOverlay(null)} />}
    </SlotsContext>
  );
}

const THEMES = {
  system: { icon: "system", text: "as the system" },
  light: { icon: "sun", text: "light" },
  dark: { icon: "moon", text: "dark" },
} as const;

function ThemeButton() {
  const { icon, text } = THEMES[usePrefs().theme];
  return (
    <button
      type="button"
      className="icon-button"
      aria-label={`Theme: ${text}`}
      title={`Theme: ${text} (m)`}
      onClick={cycleTheme}
    >
      <Icon name={icon} />
    </button>
  );
}

/** How long the server may be away before the page speaks of it: a restart behind a proxy takes about a second. */
const GRACE_MS = 1500;

function ServerBanner() {
  const { connection, client } = useLive();
  const now = useNow(500);
  if (connection.kind !== "lost" || now - connection.sinceMs < GRACE_MS) return null;
  const since = new Date(connection.sinceMs).toLocaleTimeString();
  return (
    <div className="banner banner-warning" role="alert" data-testid="server-banner">
      <Icon name="warning" />
      <span>The server does not answer since {since}. What you see is the last data; it is tried again by itself.</span>
      <button type="button" className="button" onClick={() => client.retryNow()}>
        Try now
      </button>
    </div>
  );
}
