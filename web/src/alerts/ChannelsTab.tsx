/** Channels: where notifications go, this browser among them. */

import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import type { ChannelItem, ChannelKind } from "../api/types";
import { formatAge, formatCount, formatTime } from "../lib/format";
import { useNow } from "../lib/hooks";
import { setPrefs, usePrefs } from "../lib/prefs";
import { DeleteDialog } from "../ui/confirm";
import { Icon } from "../ui/icons";
import { ActionMenu } from "../ui/overlays";
import { EmptyState, FailedState, Loading } from "../ui/states";
import { toast } from "../ui/toast";
import { canNotify } from "./AlertWatch";
import { ChannelDialog } from "./ChannelDialog";
import { channelsQuery, useDeleteChannel, useSaveChannel, useTestChannel } from "./queries";

export function ChannelsTab() {
  const { data, error, refetch } = useQuery(channelsQuery);
  const [adding, setAdding] = useState(false);
  const now = useNow(5000);
  if (!data) return error ? <FailedState error={error} onRetry={refetch} /> : <Loading what="the channels" />;
  return (
    <>
      <div className="toolbar">
        <button type="button" className="button primary" onClick={() => setAdding(true)}>
          <Icon name="plus" className="small" />
          New channel
        </button>
      </div>
      {data.channels.length === 0 ? (
        <EmptyState title="No channels yet">
          <p>
            Alerts are seen here and on the pages of their runs. A channel also sends them: {kindsInWords(data.kinds)}.
          </p>
        </EmptyState>
      ) : (
        <ul className="plain-rows" data-testid="channels" aria-label="Channels">
          {data.channels.map((channel) => (
            <ChannelRow key={channel.id} channel={channel} kinds={data.kinds} now={now} />
          ))}
        </ul>
      )}
      <ThisBrowser />
      {adding && <ChannelDialog channel={null} kinds={data.kinds} onClose={() => setAdding(false)} />}
    </>
  );
}

function kindsInWords(kinds: ChannelKind[]): string {
  const titles = kinds.map(({ title }) => title);
  return titles.length > 1 ? `${titles.slice(0, -1).join(", ")} or ${titles.at(-1)}` : (titles[0] ?? "");
}

interface ChannelRowProps {
  channel: ChannelItem;
  kinds: ChannelKind[];
  now: number;
}

function ChannelRow({ channel, kinds, now }: ChannelRowProps) {
  const [dialog, setDialog] = useState<"edit" | "delete" | null>(null);
  const save = useSaveChannel();
  const test = useTestChannel();
  const kind = kinds.find((one) => one.kind === channel.kind);
  const fail = (error: Error) => toast(error.message, { isError: true });
  const setEnabled = (enabled: boolean) => {
    const { kind, name, options } = channel;
    save.mutate({ id: channel.id, body: { kind, name, enabled, options, secrets: {} } }, { onError: fail });
  };
  const shown = Object.values(channel.options).filter(Boolean).join(" · ");
  return (
    <li className="rule-row" data-testid={`channel-${channel.id}`} data-off={channel.enabled ? undefined : true}>
      <label className="check rule-switch">
        <input
          type="checkbox"
          checked={channel.enabled}
          disabled={save.isPending}
          onChange={(event) => setEnabled(event.target.checked)}
          aria-label={`${channel.name} is on`}
        />
      </label>
      <div className="alert-main channel-main">
        <strong>{channel.name}</strong>
        <p className="muted channel-facts">
          {kind?.title ?? channel.kind}
          {shown && ` · ${shown}`}
        </p>
        {test.data && (
          <p className={test.data.ok ? "test-good" : "form-error"} role="status">
            <Icon name={test.data.ok ? "check" : "warning"} className="small" />
            {test.data.text}
          </p>
        )}
        {!test.data && channel.last_error && (
          <p className="form-error">
            <Icon name="warning" className="small" />
            {channel.last_error}
          </p>
        )}
      </div>
      <p className="rule-status">
        <span className="muted" title={channel.last_sent_us === null ? "" : formatTime(channel.last_sent_us).text}>
          {channel.last_sent_us === null ? "Nothing sent yet" : `Sent ${formatAge(channel.last_sent_us, now)} ago`}
        </span>
        {channel.num_waiting > 0 && <span>{formatCount(channel.num_waiting)} waiting</span>}
      </p>
      <button
        type="button"
        className="button"
        disabled={test.isPending}
        aria-label={`Send a test to ${channel.name}`}
        onClick={() => test.mutate(channel.id, { onError: fail })}
      >
        {test.isPending ? "Sending…" : "Test"}
      </button>
      <ActionMenu
        label={`Actions for ${channel.name}`}
        actions={[
          { id: "edit", text: "Edit…", onAction: () => setDialog("edit") },
          { id: "delete", text: "Delete…", danger: true, onAction: () => setDialog("delete") },
        ]}
      />
      {dialog === "edit" && <ChannelDialog channel={channel} kinds={kinds} onClose={() => setDialog(null)} />}
      {dialog === "delete" && <DeleteChannelDialog channel={channel} onClose={() => setDialog(null)} />}
    </li>
  );
}

function DeleteChannelDialog({ channel, onClose }: { channel: ChannelItem; onClose: () => void }) {
  const remove = useDeleteChannel();
  return (
    <DeleteDialog
      what="channel"
      remove={remove}
      onClose={onClose}
      onDelete={() =>
        remove.mutate(channel.id, {
          onSuccess: () => {
            toast(`Deleted ${channel.name}`);
            onClose();
          },
        })
      }
    >
      <strong>{channel.name}</strong> is deleted with what it keeps secret. Nothing is sent there any more
      {channel.num_waiting > 0 && `; ${formatCount(channel.num_waiting)} that wait are given up`}.
    </DeleteDialog>
  );
}

/** The browser's own notifications: asked for here, since they are this browser's. */
function ThisBrowser() {
  const { notifications } = usePrefs();
  const can = canNotify();
  const [permission, setPermission] = useState(can ? Notification.permission : "denied");
  const turn = async (on: boolean) => {
    if (!on) return setPrefs({ notifications: false });
    const answer = await Notification.requestPermission();
    setPermission(answer);
    setPrefs({ notifications: answer === "granted" });
  };
  return (
    <section className="card browser-card" aria-labelledby="browser-title">
      <h2 className="title" id="browser-title">
        This browser
      </h2>
      <label className="check">
        <input
          type="checkbox"
          checked={can && notifications && permission === "granted"}
          disabled={!can || permission === "denied"}
          onChange={(event) => turn(event.target.checked)}
        />
        Notify me here while a page of halfscope is open
      </label>
      <p className="muted">
        {!can
          ? "Browsers allow this only over https, or on the machine itself: open the server through https, or through ssh -L as localhost."
          : permission === "denied"
            ? "The browser refuses notifications of this site; allow them in its settings for this address."
            : "For what begins to fire and is neither silenced nor acknowledged. To be told with every page closed, make a channel."}
      </p>
    </section>
  );
}
