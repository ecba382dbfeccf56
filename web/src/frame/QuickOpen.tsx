/** Search over all runs from any page: type, choose, open. */

import { useQuery } from "@tanstack/react-query";
import { useMemo, useState } from "react";
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
      <Autocomplete inputValue={search} onInputChange={setSearch}>
        <SearchField className="field" aria-label="Name, project or tag" autoFocus>
          <Input placeholder="Name, project or tag" />
        </SearchField>
        <Menu
          className="menu quick-list"
          aria-label="Runs found"
          items={found}
          onAction={(id) => {
            onClose();
            navigate(`/runs/${id}`);
          }}
          renderEmptyState={() => (
            <p className="muted quick-empty">{data ? `0 of ${data.total} runs fit.` : "Loading…"}</p>
          )}
        >
          {(run) => (
            <MenuItem id={run.id} className="menu-item" textValue={run.name}>
              <Icon name={SEVERITY_ICON[run.health.severity]} />
              <span className="quick-name">{run.name}</span>
              <span className="muted">{run.project}</span>
            </MenuItem>
          )}
        </Menu>
      </Autocomplete>
    </ModalDialog>
  );
}
