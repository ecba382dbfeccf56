/** Icons of 20 px, drawn in the text's colour. Each stands beside a word or has a label on its button. */

const PATHS = {
  runs: "M3 5h14M3 10h14M3 15h9",
  compare: "M4 16V9M8 16V4m4 12V7m4 9v-4",
  settings: "M4 6h7m4 0h1M4 14h1m4 0h7M13 4v4M7 12v4",
  search: "M9 4a5 5 0 1 0 0 10A5 5 0 0 0 9 4zm4 9 4 4",
  menu: "M10 4.5v.01M10 10v.01M10 15.5v.01",
  copy: "M7 7V4h9v9h-3M4 7h9v9H4z",
  check: "M4 10.5 8.5 15 16 5.5",
  info: "M10 3a7 7 0 1 0 0 14 7 7 0 0 0 0-14zm0 6v5m0-7.6v.01",
  warning: "M10 3 2.5 16.5h15zM10 8v4m0 2.2v.01",
  critical: "M6.5 3h7L17.5 7v6.5L13.5 17h-7L2.5 13V7zM7.5 7.5l5 5m0-5-5 5",
  waiting: "M10 3a7 7 0 1 0 0 14 7 7 0 0 0 0-14zm0 3.5V10l2.5 2",
  unknown: "M10 3a7 7 0 1 0 0 14 7 7 0 0 0 0-14zM8 8a2 2 0 1 1 2.6 1.9c-.5.2-.6.5-.6 1.2m0 2.6v.01",
  table: "M3 4.5h14v11H3zM3 8.2h14M3 11.8h14M8.5 4.5v11",
  live: "M10 8.2a1.8 1.8 0 1 0 0 3.6 1.8 1.8 0 0 0 0-3.6zM6 6a5.6 5.6 0 0 0 0 8m8-8a5.6 5.6 0 0 1 0 8",
  pause: "M7 5v10m6-10v10",
  play: "M6.5 4.5 15 10l-8.5 5.5z",
  close: "M5 5l10 10M15 5 5 15",
  down: "M5.5 8 10 12.5 14.5 8",
  up: "M5.5 12.5 10 8l4.5 4.5",
  left: "M12 5 7 10l5 5",
  right: "M8 5l5 5-5 5",
  sun: "M10 6.5a3.5 3.5 0 1 0 0 7 3.5 3.5 0 0 0 0-7zM10 2v1.5m0 13V18m8-8h-1.5M3.5 10H2m13.6-5.6-1 1m-9.2 9.2-1 1m0-11.2 1 1m9.2 9.2 1 1",
  moon: "M16.5 12A7 7 0 0 1 8 3.5 7 7 0 1 0 16.5 12z",
  system: "M3 4.5h14v9H3zM7 17h6m-3-3.5V17",
  filter: "M3 5h14l-5.5 6v5l-3-1.5V11z",
  columns: "M3.5 4.5h13v11h-13zM8 4.5v11m4.2-11v11",
  bell: "M5.5 8.5a4.5 4.5 0 0 1 9 0c0 4 1.5 5 1.5 5H4s1.5-1 1.5-5zM8.5 16.5h3",
  muted: "M5.5 8.5a4.5 4.5 0 0 1 9 0c0 4 1.5 5 1.5 5H4s1.5-1 1.5-5zM8.5 16.5h3M3 3l14 14",
  sent: "M3 10 17 3.5 13 17l-3.5-5.5zM9.5 11.5 17 3.5",
  plus: "M10 4v12M4 10h12",
  help: "M8 7.8a2.1 2.1 0 1 1 2.8 2c-.6.2-.8.6-.8 1.4m0 3v.01",
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name, className = "" }: { name: IconName; className?: string }) {
  return (
    <svg className={`icon ${className}`} viewBox="0 0 20 20" width="20" height="20" aria-hidden="true">
      <path d={PATHS[name]} />
    </svg>
  );
}

/** Severity or verdict as an icon: never colour alone. */
export const SEVERITY_ICON = { ok: "check", info: "info", warning: "warning", critical: "critical" } as const;
