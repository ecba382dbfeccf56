/** Search, filters and columns of the Runs page; on a phone the filters are in a sheet. */

import { useEffect, useState } from "react";
import type { RunList } from "../api/types";
import { usePhone } from "../lib/hooks";
import { setPrefs, usePrefs } from "../lib/prefs";
import { setQuery } from "../lib/router";
import { Icon } from "../ui/icons";
import { CheckMenu, ModalDialog } from "../ui/overlays";
import { COLUMNS } from "./columns";
import { clearFilters, FILTER_KEYS, type FilterKey, type Filters, setFilter } from "./filters";
import { CompareChosen } from "./Selection";

const TITLES: Record<FilterKey, string> = { project: "Project", precision: "Precision", state: "State", tag: "Tag" };

/** What can be chosen: what occurs, and what is chosen although it no longer occurs. */
function options(list: RunList, { chosen }: Filters): Record<FilterKey, { id: string; text: string }[]> {
  const present: Record<FilterKey, string[]> = {
    project: list.projects,
    precision: list.precisions,
    state: [...new Set(list.runs.map(({ state }) => state))].sort(),
    tag: list.tags,
  };
  const all = (key: FilterKey) => [...new Set([...present[key], ...chosen[key]])].map((id) => ({ id, text: id }));
  return { project: all("project"), precision: all("precision"), state: all("state"), tag: all("tag") };
}

export function Toolbar({ list, filters }: { list: RunList; filters: Filters }) {
  const phone = usePhone();
  const { columns } = usePrefs();
  const [sheet, setSheet] = useState(false);
  const choices = options(list, filters);
  const numChosen = FILTER_KEYS.reduce((sum, key) => sum + filters.chosen[key].length, 0);
  return (
    <div className="toolbar">
      <SearchBox value={filters.search} />
      {phone ? (
        <button type="button" className="button" onClick={() => setSheet(true)}>
          <Icon name="filter" />
          Filters{numChosen > 0 && ` (${numChosen})`}
        </button>
      ) : (
        <>
          {FILTER_KEYS.filter((key) => choices[key].length > 0).map((key) => {
            const chosen = filters.chosen[key];
            const text =
              chosen.length === 0
                ? TITLES[key]
                : chosen.length === 1
                  ? `${TITLES[key]}: ${chosen[0]}`
                  : `${TITLES[key]} (${chosen.length})`;
            return (
              <CheckMenu
                key={key}
                label={`Filter by ${TITLES[key].toLowerCase()}`}
                text={text}
                options={choices[key]}
                selected={chosen}
                onChange={(selected) => setFilter(key, selected)}
              />
            );
          })}
          <span className="push" />
          <CheckMenu
            label="Columns"
            text="Columns"
            icon="columns"
            options={COLUMNS.filter(({ optional }) => optional).map(({ id, title }) => ({ id, text: title }))}
            selected={columns}
            onChange={(selected) => setPrefs({ columns: selected })}
          />
        </>
      )}
      <CompareChosen runs={list.runs} />
      {sheet && <FilterSheet choices={choices} filters={filters} onClose={() => setSheet(false)} />}
    </div>
  );
}

function SearchBox({ value }: { value: string }) {
  const [text, setText] = useState(value);
  // The URL can change from outside: Back, or "clear".
  useEffect(() => setText(value), [value]);
  return (
    <label className="search-box">
      <span className="sr-only">Search runs</span>
      <Icon name="search" />
      <input
        type="search"
        placeholder="Name, project or tag"
        value={text}
        data-page-search
        onChange={(event) => {
          setText(event.target.value);
          setQuery({ q: event.target.value });
        }}
        onKeyDown={(event) => event.key === "Escape" && event.currentTarget.blur()}
      />
    </label>
  );
}

interface FilterSheetProps {
  choices: Record<FilterKey, { id: string; text: string }[]>;
  filters: Filters;
  onClose: () => void;
}

function FilterSheet({ choices, filters, onClose }: FilterSheetProps) {
  const toggle = (key: FilterKey, id: string) => {
    const chosen = filters.chosen[key];
    setFilter(key, chosen.includes(id) ? chosen.filter((other) => other !== id) : [...chosen, id]);
  };
  return (
    <ModalDialog title="Filters" isOpen onClose={onClose} size="sheet">
      {FILTER_KEYS.filter((key) => choices[key].length > 0).map((key) => (
        <fieldset key={key} className="sheet-group">
          <legend className="panel-title">{TITLES[key]}</legend>
          {choices[key].map(({ id, text }) => (
            <label key={id} className="check">
              <input type="checkbox" checked={filters.chosen[key].includes(id)} onChange={() => toggle(key, id)} />
              {text}
            </label>
          ))}
        </fieldset>
      ))}
      <div className="dialog-buttons">
        <button type="button" className="button" onClick={clearFilters}>
          Clear
        </button>
        <button type="button" className="button primary" onClick={onClose}>
          Show runs
        </button>
      </div>
    </ModalDialog>
  );
}
