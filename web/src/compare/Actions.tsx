/** What can be done with a comparison: save it under a name, copy its address, export it. */

import { type ChangeEvent, type FormEvent, useState } from "react";
import { compareQuery } from "../api/queries";
import type { CompareReport, SavedComparison } from "../api/types";
import { toAddress } from "../lib/base";
import { navigate } from "../lib/router";
import { DeleteDialog } from "../ui/confirm";
import { CopyButton } from "../ui/copy";
import { DialogButtons, FormError } from "../ui/forms";
import { ActionMenu, ModalDialog } from "../ui/overlays";
import { toast } from "../ui/toast";
import { savedAddress } from "./address";
import { useDeleteComparison, useSaveComparison } from "./queries";
import { addressOf, type Chosen, optionsOf } from "./view";

interface ActionsProps {
  report: CompareReport;
  chosen: Chosen;
  saved: SavedComparison | null;
}

export function Actions({ report, chosen, saved }: ActionsProps) {
  const [dialog, setDialog] = useState<"save" | "rename" | "delete" | null>(null);
  const save = useSaveComparison();
  const close = () => setDialog(null);
  const { runs, options } = chosen;
  const body = (name: string) => ({
    name,
    runs: [...runs],
    options: optionsOf(report.options),
  });
  const store = (id: string | null, name: string) =>
    save.mutate(
      { id, body: body(name) },
      {
        onSuccess: (kept) => {
          close();
          toast(`Saved ${kept.name}`);
          navigate(savedAddress(kept.id), { replace: id !== null });
        },
        onError: (error) => dialog === null && toast(error.message, { isError: true }),
      },
    );
  const download = (kind: "html" | "json") =>
    toAddress(`/api/v1/compare/report.${kind}?${new URLSearchParams(queryText(runs, options)).toString()}`);
  return (
    <div className="compare-actions">
      {saved === null && (
        <button type="button" className="button" onClick={() => setDialog("save")}>
          Save…
        </button>
      )}
      {saved && isOther(saved, report) && (
        <button
          type="button"
          className="button primary"
          disabled={save.isPending}
          onClick={() => store(saved.id, saved.name)}
        >
          Save changes
        </button>
      )}
      <CopyButton text={location.origin + toAddress(addressOf(runs, options))} label="Copy link" />
      <ActionMenu
        label="Export and more"
        actions={[
          { id: "html", text: "Export as HTML", download: download("html") },
          { id: "json", text: "Export as JSON", download: download("json") },
          ...(saved
            ? [
                { id: "rename", text: "Rename…", onAction: () => setDialog("rename") },
                { id: "copy", text: "Save as another…", onAction: () => setDialog("save") },
                { id: "delete", text: "Delete…", danger: true, onAction: () => setDialog("delete") },
              ]
            : []),
        ]}
      />
      {(dialog === "save" || dialog === "rename") && (
        <NameDialog
          title={dialog === "save" ? "Save comparison" : "Rename comparison"}
          name={dialog === "rename" && saved ? saved.name : suggestName(report)}
          error={save.error}
          isBusy={save.isPending}
          onName={(name) => store(dialog === "rename" && saved ? saved.id : null, name)}
          onClose={close}
        />
      )}
      {dialog === "delete" && saved && (
        <DeleteComparison saved={saved} onClose={close} afterDelete={() => navigate("/compare")} />
      )}
    </div>
  );
}

/** Whether what is shown differs from what was saved. */
function isOther({ runs, options }: SavedComparison, report: CompareReport): boolean {
  return (
    runs.map(({ id }) => id).join(",") !== report.key ||
    options.metric !== report.options.metric ||
    options.align !== report.options.align ||
    options.tolerance_share !== report.options.tolerance_share
  );
}

function queryText(runs: readonly string[], options: Chosen["options"]): Record<string, string> {
  const entries = Object.entries(compareQuery({ runs, options })).filter(([, value]) => value !== undefined);
  return Object.fromEntries(entries.map(([key, value]) => [key, String(value)]));
}

function suggestName({ members }: CompareReport): string {
  const [baseline, ...others] = members.map(({ name }) => name);
  return `${others.join(", ")} against ${baseline ?? ""}`.slice(0, MOST_CHARS);
}

const MOST_CHARS = 200;

interface NameDialogProps {
  title: string;
  name: string;
  error: Error | null;
  isBusy: boolean;
  onName: (name: string) => void;
  onClose: () => void;
}

export function NameDialog({ title, name, error, isBusy, onName, onClose }: NameDialogProps) {
  const [text, setText] = useState(name);
  const onChange = (event: ChangeEvent<HTMLInputElement>) => setText(event.target.value);
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (text.trim()) onName(text.trim());
  };
  return (
    <ModalDialog title={title} isOpen onClose={onClose}>
      <form onSubmit={submit} className="form">
        <label className="field">
          <span>Name</span>
          {/* biome-ignore lint/a11y/noAutofocus: the dialog was opened to type here */}
          <input value={text} maxLength={MOST_CHARS} required autoFocus onChange={onChange} />
        </label>
        <FormError error={error} />
        <DialogButtons onCancel={onClose} submit="Save" busy={isBusy} />
      </form>
    </ModalDialog>
  );
}

interface DeleteComparisonProps {
  saved: SavedComparison;
  onClose: () => void;
  afterDelete?: () => void;
}

export function DeleteComparison({ saved, onClose, afterDelete }: DeleteComparisonProps) {
  const remove = useDeleteComparison();
  const onDelete = () =>
    remove.mutate(saved.id, {
      onSuccess: () => {
        toast(`Deleted ${saved.name}`);
        onClose();
        afterDelete?.();
      },
    });
  return (
    <DeleteDialog what="comparison" remove={remove} onClose={onClose} onDelete={onDelete}>
      <strong>{saved.name}</strong> is forgotten. Its runs stay as they are.
    </DeleteDialog>
  );
}
