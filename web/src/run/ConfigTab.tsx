/** Config: what the run was started with, as the server lists it. */

import { useQuery } from "@tanstack/react-query";
import { configQuery } from "../api/queries";
import { CopyButton } from "../ui/copy";
import { EmptyState, FailedState, Loading } from "../ui/states";

export function ConfigTab({ run }: { run: string }) {
  const { data, error, refetch } = useQuery(configQuery(run));
  if (!data) return error ? <FailedState error={error} onRetry={refetch} /> : <Loading what="the configuration" />;
  if (data.sections.length === 0) {
    return (
      <EmptyState title="Nothing recorded">
        <p>This run brought no configuration. Pass config= to halfscope.watch to see it here.</p>
      </EmptyState>
    );
  }
  return (
    <div className="config">
      {data.sections.map((section) => (
        <section key={section.title} className="config-section" aria-label={section.title}>
          <header className="config-head">
            <h2 className="title">{section.title}</h2>
            <CopyButton label="Copy" text={section.entries.map(({ key, value }) => `${key}: ${value}`).join("\n")} />
          </header>
          <dl className="config-list">
            {section.entries.map(({ key, value, note }) => (
              <div key={key} className="config-entry">
                <dt>{key}</dt>
                <dd>
                  <span className="mono">{value}</span>
                  {note && <span className="muted config-note">{note}</span>}
                </dd>
              </div>
            ))}
          </dl>
        </section>
      ))}
    </div>
  );
}
