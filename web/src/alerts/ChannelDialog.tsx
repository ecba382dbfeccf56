/** A channel's form: what its kind asks for. Secrets go in and never come back. */

import { type FormEvent, useState } from "react";
import type { ChannelItem, ChannelKind } from "../api/types";
import { DialogButtons, FormError } from "../ui/forms";
import { ModalDialog } from "../ui/overlays";
import { toast } from "../ui/toast";
import { useSaveChannel } from "./queries";

interface ChannelDialogProps {
  /** Null: a new one. */
  channel: ChannelItem | null;
  kinds: ChannelKind[];
  onClose: () => void;
}

export function ChannelDialog({ channel, kinds, onClose }: ChannelDialogProps) {
  const [kindId, setKindId] = useState(channel?.kind ?? "");
  const [name, setName] = useState(channel?.name ?? "");
  const [options, setOptions] = useState<Record<string, string>>(channel?.options ?? {});
  const [secrets, setSecrets] = useState<Record<string, string>>({});
  const save = useSaveChannel();
  const kind = kinds.find((one) => one.kind === kindId);
  const fields = kind?.fields ?? [];
  const kept = new Set(channel?.secrets_set);
  const submit = (event: FormEvent) => {
    event.preventDefault();
    const ofKind = (values: Record<string, string>, secret: boolean) =>
      Object.fromEntries(
        fields
          .filter((field) => field.secret === secret && values[field.name])
          .map((field) => [field.name, (values[field.name] ?? "").trim()]),
      );
    const title = name.trim() || kind?.title || kindId;
    const body = {
      kind: kindId,
      name: title,
      enabled: channel?.enabled ?? true,
      options: ofKind(options, false),
      secrets: ofKind(secrets, true),
    };
    save.mutate(
      { id: channel?.id ?? null, body },
      {
        onSuccess: () => {
          toast(channel ? `Saved ${title}` : `${title} is on. Send a test to see that it arrives.`);
          onClose();
        },
      },
    );
  };
  return (
    <ModalDialog title={channel ? "Change channel" : "New channel"} isOpen onClose={onClose}>
      <form className="form" onSubmit={submit} autoComplete="off">
        {channel === null && (
          <label className="field">
            <span>Kind</span>
            <select className="select" required value={kindId} onChange={(event) => setKindId(event.target.value)}>
              <option value="">Choose one</option>
              {kinds.map((one) => (
                <option key={one.kind} value={one.kind}>
                  {one.title}
                </option>
              ))}
            </select>
          </label>
        )}
        {kind?.text && <p className="muted">{kind.text}</p>}
        <label className="field">
          <span>Name</span>
          <input
            value={name}
            maxLength={200}
            placeholder={kind?.title}
            onChange={(event) => setName(event.target.value)}
          />
        </label>
        {fields.map((field) => {
          const isKept = field.secret && kept.has(field.name);
          const values = field.secret ? secrets : options;
          const set = field.secret ? setSecrets : setOptions;
          return (
            <label key={`${kindId} ${field.name}`} className="field">
              <span>
                {field.title}
                {!field.required && <span className="muted"> (may be empty)</span>}
              </span>
              <input
                type={field.secret ? "password" : "text"}
                autoComplete={field.secret ? "new-password" : "off"}
                spellCheck={false}
                required={field.required && !isKept}
                value={values[field.name] ?? ""}
                placeholder={isKept ? "kept; type to replace it" : field.placeholder}
                onChange={(event) => set({ ...values, [field.name]: event.target.value })}
              />
              {field.text && <small className="muted">{field.text}</small>}
            </label>
          );
        })}
        <FormError error={save.error} />
        <DialogButtons onCancel={onClose} submit={channel ? "Save" : "Make channel"} busy={save.isPending} />
      </form>
    </ModalDialog>
  );
}
