/** All rules as YAML, to keep in git: copied or saved from here, checked and taken over from here. */

import { useQuery } from "@tanstack/react-query";
import { type ChangeEvent, useState } from "react";
import { api, unwrap } from "../api/client";
import type { ImportResult } from "../api/types";
import { formatCount } from "../lib/format";
import { Choice } from "../ui/choice";
import { CopyButton } from "../ui/copy";
import { FormError } from "../ui/forms";
import { ModalDialog } from "../ui/overlays";
import { FailedState, Loading } from "../ui/states";
import { toast } from "../ui/toast";
import { useImport } from "./queries";

const SIDES = [
  { value: "export", text: "Export" },
  { value: "import", text: "Import" },
] as const;

export function YamlDialog({ onClose }: { onClose: () => void }) {
  const [side, setSide] = useState<"export" | "import">("export");
  return (
    <ModalDialog title="Rules as YAML" isOpen onClose={onClose} size="wide">
      <Choice label="Direction" value={side} options={SIDES} onChange={setSide} />
      {side === "export" ? <Export /> : <Import onClose={onClose} />}
    </ModalDialog>
  );
}

function Export() {
  const { data, error, refetch } = useQuery({
    queryKey: ["rules-yaml"],
    queryFn: () => unwrap(api.GET("/api/v1/rules/yaml")),
    staleTime: 0,
  });
  if (!data) return error ? <FailedState error={error} onRetry={refetch} /> : <Loading what="the rules" />;
  const save = () => {
    const address = URL.createObjectURL(new Blob([data.text], { type: "application/yaml" }));
    const link = document.createElement("a");
    link.href = address;
    link.download = "halfscope-rules.yaml";
    link.click();
    URL.revokeObjectURL(address);
  };
  return (
    <>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a scrolling region must be reachable from the keyboard */}
      <pre className="snippet yaml" tabIndex={0} data-testid="yaml">
        {data.text}
      </pre>
      <div className="dialog-buttons">
        <CopyButton text={data.text} label="Copy" />
        <button type="button" className="button primary" onClick={save}>
          Save as file
        </button>
      </div>
    </>
  );
}

function Import({ onClose }: { onClose: () => void }) {
  const [text, setText] = useState("");
  const [seen, setSeen] = useState<{ text: string; result: ImportResult } | null>(null);
  const run = useImport();
  const read = async (event: ChangeEvent<HTMLInputElement>) => {
    const file = event.target.files?.[0];
    if (file) setText(await file.text());
  };
  // Only what was checked as it stands can be taken over.
  const result = seen?.text === text ? seen.result : null;
  const isGood = result !== null && result.problems.length === 0;
  const check = () => run.mutate({ text, dryRun: true }, { onSuccess: (found) => setSeen({ text, result: found }) });
  const takeOver = () =>
    run.mutate(
      { text, dryRun: false },
      {
        onSuccess: (found) => {
          if (found.problems.length > 0) return setSeen({ text, result: found });
          toast(`Took over ${formatCount(found.created.length + found.changed.length)} rules`);
          onClose();
        },
      },
    );
  return (
    <div className="form">
      <label className="field">
        <span>YAML</span>
        <textarea
          className="yaml-input"
          value={text}
          rows={12}
          spellCheck={false}
          onChange={(event) => setText(event.target.value)}
        />
      </label>
      <label className="field">
        <span>or a file</span>
        <input type="file" accept=".yaml,.yml" onChange={read} />
      </label>
      {result && <Outcome result={result} />}
      <FormError error={run.error} />
      <div className="dialog-buttons">
        <button type="button" className="button" onClick={onClose}>
          Cancel
        </button>
        {isGood ? (
          <button type="button" className="button primary" disabled={run.isPending} onClick={takeOver}>
            Take over
          </button>
        ) : (
          <button
            type="button"
            className="button primary"
            disabled={run.isPending || text.trim() === ""}
            onClick={check}
          >
            Check
          </button>
        )}
      </div>
    </div>
  );
}

function Outcome({ result: { created, changed, unchanged, problems } }: { result: ImportResult }) {
  if (problems.length > 0) {
    return (
      <div role="alert">
        <p className="form-error">Nothing is taken over while something is wrong:</p>
        <ul className="problems">
          {problems.map(({ where, text }) => (
            <li key={`${where} ${text}`}>
              <code>{where}</code> {text}
            </li>
          ))}
        </ul>
      </div>
    );
  }
  const parts = [
    ["new", created],
    ["changed", changed],
    ["as they are", unchanged],
  ] as const;
  return (
    <div role="status">
      {parts.map(([word, ids]) => (
        <p key={word}>
          {formatCount(ids.length)} {word}
          {ids.length > 0 && <span className="muted">: {ids.join(", ")}</span>}
        </p>
      ))}
    </div>
  );
}
