/** Settings: what this browser likes, and what the server is. */

import { useQuery } from "@tanstack/react-query";
import { api, unwrap } from "../api/client";
import { serverQuery } from "../api/queries";
import { ShortcutList, ShortcutSwitch } from "../frame/HelpDialog";
import { TopBarContent } from "../frame/top-bar";
import { useTitle } from "../lib/hooks";
import { type Prefs, setPrefs, usePrefs } from "../lib/prefs";
import { FailedState, Loading } from "../ui/states";

const THEMES: { value: Prefs["theme"]; text: string }[] = [
  { value: "system", text: "As the system" },
  { value: "light", text: "Light" },
  { value: "dark", text: "Dark" },
];

export function SettingsPage({ onSignedOut }: { onSignedOut: () => void }) {
  useTitle("Settings");
  const { theme } = usePrefs();
  const signOut = async () => {
    await unwrap(api.DELETE("/api/v1/session"));
    onSignedOut();
  };
  return (
    <div className="settings">
      <TopBarContent crumbs={[{ text: "Settings" }]} />
      <h1 className="sr-only">Settings</h1>
      <section className="card" aria-labelledby="settings-look">
        <h2 className="title" id="settings-look">
          Appearance
        </h2>
        <fieldset className="choice">
          <legend>Theme</legend>
          <div className="choice-bar">
            {THEMES.map(({ value, text }) => (
              <label key={value}>
                <input
                  type="radio"
                  name="theme"
                  checked={theme === value}
                  onChange={() => setPrefs({ theme: value })}
                />
                <span>{text}</span>
              </label>
            ))}
          </div>
        </fieldset>
      </section>
      <section className="card" aria-labelledby="settings-keys">
        <h2 className="title" id="settings-keys">
          Keyboard
        </h2>
        <ShortcutSwitch />
        <ShortcutList />
      </section>
      <section className="card" aria-labelledby="settings-server">
        <h2 className="title" id="settings-server">
          Server
        </h2>
        <ServerFacts />
        <button type="button" className="button" onClick={signOut}>
          Sign out this browser
        </button>
      </section>
    </div>
  );
}

const DATABASES = { sqlite: "SQLite", postgresql: "PostgreSQL" } as const;

function ServerFacts() {
  const { data, error, refetch } = useQuery(serverQuery);
  if (!data) return error ? <FailedState error={error} onRetry={refetch} /> : <Loading what="the server's facts" />;
  const facts = [
    ["Version", data.version],
    ["Address for agents", data.address],
    ["Database", DATABASES[data.database]],
    ["Web build", data.web_version || "–"],
  ];
  return (
    <dl className="config-list">
      {facts.map(([name, value]) => (
        <div key={name} className="config-entry">
          <dt>{name}</dt>
          <dd className="mono">{value}</dd>
        </div>
      ))}
    </dl>
  );
}
