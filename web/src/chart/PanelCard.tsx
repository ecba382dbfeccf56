/** A panel: title, newest value, chart, and the same numbers as a table. Fails alone. */

import { useQuery, useQueryClient } from "@tanstack/react-query";
import { type KeyboardEvent, type ReactNode, useCallback, useEffect, useRef, useState } from "react";
import { PanelAlerts, usePanelBands } from "../alerts/panel-bands";
import { ApiError } from "../api/client";
import { panelErrorKey, useLiveData } from "../api/live-provider";
import { keyOf, panelQuery, panelTableQuery, type Source } from "../api/queries";
import type { LiveError, PanelInfo, Table, Window } from "../api/types";
import { useHeight, useVisible } from "../lib/hooks";
import { Icon } from "../ui/icons";
import { ModalDialog } from "../ui/overlays";
import { FailedState, Loading } from "../ui/states";
import { type ChartPoint, Plot } from "./Plot";

export interface PanelCardProps {
  source: Source;
  info: PanelInfo;
  window: Window;
  onVisible: (panel: string, visible: boolean) => void;
  onZoom: (range: [number, number] | null) => void;
  onPick?: (point: ChartPoint) => void;
  /** Where keys act on the chart: makes it a place for the focus. */
  onKey?: (event: KeyboardEvent) => void;
  /** What stands at the end of the head. */
  actions?: ReactNode;
  /** What stands below the chart. */
  children?: ReactNode;
  /** Makes the chart as tall as its neighbours in the row let it be. */
  fills?: boolean;
  /** The newest value below the title instead of beside it: for those that say much. */
  isStacked?: boolean;
  /** The layer that is shown: its alerts are marked instead of those of the panel. */
  layer?: string;
  /** The same numbers as a table behind a button; off where they are on the page already. */
  hasTable?: boolean;
}

/** Which panels are on screen: only those are asked for and kept live. */
export function useVisiblePanels() {
  const [panels, setPanels] = useState<string[]>([]);
  const onVisible = useCallback((panel: string, isVisible: boolean) => {
    setPanels((before) => {
      if (before.includes(panel) === isVisible) return before;
      return isVisible ? [...before, panel].sort() : before.filter((id) => id !== panel);
    });
  }, []);
  return { panels, onVisible };
}

export function PanelCard(props: PanelCardProps) {
  const {
    source,
    info,
    window,
    onVisible,
    actions,
    children,
    isStacked = false,
    fills = false,
    hasTable = true,
  } = props;
  const card = useRef<HTMLElement>(null);
  const visible = useVisible(card);
  const [showsTable, setShowsTable] = useState(false);
  useEffect(() => {
    onVisible(info.id, visible);
    return () => onVisible(info.id, false);
  }, [info.id, visible, onVisible]);

  const { data: figure } = useQuery({ ...panelQuery(source, info.id, window), enabled: visible });
  return (
    <section
      ref={card}
      className={fills ? "panel panel-fills" : "panel"}
      id={`panel-${info.id}`}
      data-testid={`panel-${info.id}`}
      aria-labelledby={`panel-title-${info.id}`}
      style={{ "--columns": info.columns } as React.CSSProperties}
    >
      <header className={isStacked ? "panel-head panel-stacked" : "panel-head"}>
        <h3 className="panel-title" id={`panel-title-${info.id}`}>
          {info.title}
        </h3>
        <span className="panel-headline" title={figure?.fill.headline}>
          {figure?.fill.headline}
        </span>
        {source.kind === "run" && <PanelAlerts run={source.run} panel={info.id} layer={props.layer} />}
        {actions}
        {hasTable && (
          <button
            type="button"
            className="icon-button"
            aria-label={`Show ${info.title} as table`}
            title="Show as table"
            onClick={() => setShowsTable(true)}
          >
            <Icon name="table" />
          </button>
        )}
      </header>
      <div className="panel-body" style={{ minHeight: info.height_px }}>
        <PanelBody {...props} visible={visible} />
      </div>
      {children}
      {showsTable && <TableDialog source={source} info={info} window={window} onClose={() => setShowsTable(false)} />}
    </section>
  );
}

function PanelBody({
  source,
  info,
  window,
  visible,
  onZoom,
  onPick,
  onKey,
  layer,
  fills = false,
}: PanelCardProps & { visible: boolean }) {
  const [box, setBox] = useState<HTMLElement | null>(null);
  const boxPx = useHeight(fills ? box : null);
  const cache = useQueryClient();
  const bands = usePanelBands(source.kind === "run" ? source.run : null, info.id, layer, window);
  const { data: figure, error, refetch } = useQuery({ ...panelQuery(source, info.id, window), enabled: visible });
  const errorKey = panelErrorKey(keyOf(source), info.id);
  const failure = useLiveData<LiveError>(errorKey);
  const retry = () => {
    cache.setQueryData(errorKey, null);
    refetch();
  };
  if (failure) {
    return <FailedState error={new ApiError(0, failure.code, failure.detail, failure.request_id)} onRetry={retry} />;
  }
  if (error && !figure) return <FailedState error={error} onRetry={retry} />;
  if (!figure) return visible ? <Loading what={info.title} /> : null;
  if (figure.fill.empty) return <p className="panel-empty muted">{figure.fill.empty}</p>;
  return (
    <figure ref={setBox} aria-label={figure.fill.label} tabIndex={onKey ? 0 : undefined} onKeyDown={onKey}>
      <Plot
        figure={figure}
        height={Math.max(info.height_px, boxPx)}
        x={window.x}
        windowKey={JSON.stringify(window)}
        utcOffsetMin={window.utc_offset_min}
        bands={bands}
        onZoom={onZoom}
        onPick={onPick}
      />
    </figure>
  );
}

function TableDialog({
  source,
  info,
  window,
  onClose,
}: Pick<PanelCardProps, "source" | "info" | "window"> & { onClose: () => void }) {
  const { data: table, error, refetch } = useQuery(panelTableQuery(source, info.id, window));
  return (
    <ModalDialog title={info.title} isOpen onClose={onClose} size="wide">
      {error && !table && <FailedState error={error} onRetry={refetch} />}
      {!error && !table && <Loading what="the table" />}
      {table && (
        // biome-ignore lint/a11y/noNoninteractiveTabindex: a scrolling region must be reachable from the keyboard
        <section className="table-scroll" tabIndex={0} aria-label={info.title}>
          <NumberTable table={table} />
        </section>
      )}
      {table?.note && <p className="muted">{table.note}</p>}
    </ModalDialog>
  );
}

export function NumberTable({ table }: { table: Table }) {
  return (
    <table className="data-table">
      <thead>
        <tr>
          {table.columns.map((column) => (
            <th key={column} scope="col">
              {column}
            </th>
          ))}
        </tr>
      </thead>
      <tbody>
        {table.rows.map((row, at) => (
          // biome-ignore lint/suspicious/noArrayIndexKey: rows are numbers without identity and are replaced whole
          <tr key={at}>
            {row.map((cell, column) => (
              // biome-ignore lint/suspicious/noArrayIndexKey: as above
              <td key={column}>{cell}</td>
            ))}
          </tr>
        ))}
      </tbody>
    </table>
  );
}
