/** Rename, tag, mute and delete a run, from its page and from its row; deleting asks first. */

import { useMutation, useQueryClient } from "@tanstack/react-query";
import { type FormEvent, useState } from "react";
import { SilenceDialog } from "../alerts/SilenceDialog";
import { api, unwrap } from "../api/client";
import type { RunList, RunSummary } from "../api/types";
import { CompareWith } from "../compare/CompareWith";
import { formatCount } from "../lib/format";
import { DeleteDialog } from "../ui/confirm";
import { DialogButtons, FormError } from "../ui/forms";
import { ActionMenu, ModalDialog } from "../ui/overlays";
import { toast } from "../ui/toast";

interface RunMenuProps {
  summary: RunSummary;
  afterDelete?: () => void;
}

export function RunMenu({ summary, afterDelete }: RunMenuProps) {
  const [dialog, setDialog] = useState<"compare" | "rename" | "tags" | "mute" | "delete" | null>(null);
  const close = () => setDialog(null);
  return (
    <>
      <ActionMenu
        label={`Actions for ${summary.name}`}
        actions={[
          { id: "compare", text: "Compare with…", onAction: () => setDialog("compare") },
          { id: "rename", text: "Rename…", onAction: () => setDialog("rename") },
          { id: "tags", text: "Edit tags…", onAction: () => setDialog("tags") },
          {
            id: "copy",
            text: "Copy run id",
            onAction: () =>
              navigator.clipboard?.writeText(summary.id).then(
                () => toast("Run id copied"),
                () => toast(`Could not copy. The run id is ${summary.id}`, { isError: true }),
              ),
          },
          { id: "mute", text: "Mute alerts…", onAction: () => setDialog("mute") },
          { id: "delete", text: "Delete…", danger: true, onAction: () => setDialog("delete") },
        ]}
      />
      {dialog === "compare" && <CompareWith run={summary} onClose={close} />}
      {dialog === "rename" && <RenameDialog summary={summary} onClose={close} />}
      {dialog === "tags" && <TagsDialog summary={summary} onClose={close} />}
      {dialog === "mute" && (
        <SilenceDialog
          title="Mute alerts of this run"
          subject={{ rule: "", ruleName: "", run: summary.id, runName: summary.name, layer: "" }}
          parts={["run"]}
          onClose={close}
        />
      )}
      {dialog === "delete" && (
        <DeleteRunDialog summary={summary} onClose={close} afterDelete={afterDelete ?? (() => {})} />
      )}
    </>
  );
}

/** Changes a run and puts the answer where every page reads it. */
function usePatch(summary: RunSummary, onDone: () => void) {
  const cache = useQueryClient();
  return useMutation({
    mutationFn: (body: { name?: string; tags?: string[] }) =>
      unwrap(api.PATCH("/api/v1/runs/{run}", { params: { path: { run: summary.id } }, body })),
    onSuccess: (changed) => {
      cache.setQueryData<RunSummary>(["run", summary.id], (old) =>
        old ? { ...old, name: changed.name, tags: changed.tags } : changed,
      );
      cache.setQueryData<RunList>(
        ["runs"],
        (list) =>
          list && {
            ...list,
            runs: list.runs.map((run) =>
              run.id === summary.id ? { ...run, name: changed.name, tags: changed.tags } : run,
            ),
          },
      );
      onDone();
    },
  });
}

type DialogProps = { summary: RunSummary; onClose: () => void };

function RenameDialog({ summary, onClose }: DialogProps) {
  const [name, setName] = useState(summary.name);
  const patch = usePatch(summary, onClose);
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (name.trim()) patch.mutate({ name: name.trim() });
  };
  return (
    <ModalDialog title="Rename run" isOpen onClose={onClose}>
      <form onSubmit={submit} className="form">
        <label className="field">
          <span>Name</span>
          {/* biome-ignore lint/a11y/noAutofocus: the dialog was opened to type here */}
          <input value={name} maxLength={200} required autoFocus onChange={(event) => setName(event.target.value)} />
        </label>
        <FormError error={patch.error} />
        <DialogButtons onCancel={onClose} submit="Rename" busy={patch.isPending} />
      </form>
    </ModalDialog>
  );
}

/** Limits of the API, said before it has to refuse. */
const MAX_TAGS = 32;
const MAX_TAG_LENGTH = 64;

function TagsDialog({ summary, onClose }: DialogProps) {
  const [text, setText] = useState(summary.tags.join(", "));
  const patch = usePatch(summary, onClose);
  const tags = [...new Set(text.split(",").map((tag) => tag.trim()))].filter(Boolean);
  const problem =
    tags.length > MAX_TAGS
      ? `${tags.length} tags; at most ${MAX_TAGS} fit.`
      : tags.some((tag) => tag.length > MAX_TAG_LENGTH)
        ? `A tag is longer than ${MAX_TAG_LENGTH} characters.`
        : "";
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (!problem) patch.mutate({ tags });
  };
  return (
    <ModalDialog title="Edit tags" isOpen onClose={onClose}>
      <form onSubmit={submit} className="form">
        <label className="field">
          <span>Tags, separated by commas</span>
          {/* biome-ignore lint/a11y/noAutofocus: the dialog was opened to type here */}
          <input value={text} autoFocus onChange={(event) => setText(event.target.value)} />
        </label>
        {problem && (
          <p className="form-error" role="alert">
            {problem}
          </p>
        )}
        <FormError error={patch.error} />
        <DialogButtons onCancel={onClose} submit="Save tags" busy={patch.isPending} />
      </form>
    </ModalDialog>
  );
}

function DeleteRunDialog({ summary, onClose, afterDelete }: DialogProps & { afterDelete: () => void }) {
  const cache = useQueryClient();
  const remove = useMutation({
    mutationFn: () => unwrap(api.DELETE("/api/v1/runs/{run}", { params: { path: { run: summary.id } } })),
    onSuccess: () => {
      cache.setQueryData<RunList>(
        ["runs"],
        (list) => list && { ...list, total: list.total - 1, runs: list.runs.filter((run) => run.id !== summary.id) },
      );
      toast(`Deleted ${summary.name}`);
      onClose();
      afterDelete();
    },
  });
  const steps = summary.last_step === null ? "no steps" : `${formatCount(summary.last_step + 1)} steps`;
  return (
    <DeleteDialog what="run" remove={remove} onClose={onClose} onDelete={() => remove.mutate()}>
      <strong>{summary.name}</strong> with {steps} is deleted from this server for good. This cannot be undone.
      {summary.state === "live" && " It is still training: the training goes on, but is no longer recorded here."}
    </DeleteDialog>
  );
}
