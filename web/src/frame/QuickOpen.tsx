/** Search over runs in a dialog: type, choose. From any page it opens the run that was chosen. */

import { useQuery } from "@tanstack/react-query";
import { type ReactNode, useMemo, useState } from "react";
import { Autocomplete, Input, Menu, MenuItem, SearchField } from "react-aria-components";
import { runsQuery } from "../api/queries";
import { navigate } from "../lib/router";
import { matchesSearch } from "../runs/filters";
import { Icon, SEVERITY_ICON } from "../ui/icons";
import { ModalDialog } from "../ui/overlays";

const MOST_SHOWN = 50;

export function QuickOpen({ onClose }: { onClose: () => void }) {
  const { data } = useQuery(runsQuery);
  const [search, setSearch] = useState("");
  const found = useMemo(
    () => (data?.runs ?? []).filter((run) => matchesSearch(run, search)).slice(0, MOST_SHOWN),
    [data, search],
  );
  return (
    <ModalDialog title="Search runs" isOpen onClose={onClose}>
      <RunSearch
        found={found}
        empty={data ? `0 of ${data.total} runs fit.` : "Loading…"}
        search={search}
        onSearch={setSearch}
        onPick={(id) => {
          onClose();
          navigate(`/runs/${id}`);
        }}
      >
        {(run) => (
          <>
            <Icon name={SEVERITY_ICON[run.health.severity]} />
            <span className="quick-name">{run.name}</span>
            <span className="muted">{run.project}</span>
          </>
        )}
      </RunSearch>
    </ModalDialog>
  );
}

interface RunSearchProps<Run> {
  found: readonly Run[];
  /** What is said where nothing was found. */
  empty: string;
  search: string;
  onSearch: (search: string) => void;
  onPick: (run: string) => void;
  /** A run as its line shows it. */
  children: (run: Run) => ReactNode;
}

export function RunSearch<Run extends { id: string; name: string }>(props: RunSearchProps<Run>) {
  const { found, empty, search, onSearch, onPick, children } = props;
  return (
    <Autocomplete inputValue={search} onInputChange={onSearch}>
      <SearchField className="field" aria-label="Name, project or tag" autoFocus>
        <Input placeholder="Name, project or tag" />
      </SearchField>
      <Menu
        className="menu quick-list"
        aria-label="Runs found"
        items={found}
        onAction={(id) => onPick(String(id))}
        renderEmptyState={() => <p className="muted quick-empty">{empty}</p>}
      >
        {(run) => (
          <MenuItem id={run.id} className="menu-item" textValue={run.name}>
            {children(run)}
          </MenuItem>
        )}
      </Menu>
    </Autocomplete>
  );
}
