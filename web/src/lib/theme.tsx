/** Light, dark or as the system says; the server's colour roles as CSS variables `--c-<role>` and as values for canvas and charts. */

import { useQuery } from "@tanstack/react-query";
import { createContext, type ReactNode, useContext, useEffect, useMemo } from "react";
import { themeQuery } from "../api/queries";
import type { Theme } from "../api/types";
import { useMedia } from "./hooks";
import { getPrefs, setPrefs, usePrefs } from "./prefs";

export interface Palette {
  mode: "light" | "dark";
  /** CSS colour of a role; transparent for one that the server does not name. */
  color(role: string): string;
}

const PaletteContext = createContext<Palette>({ mode: "light", color: () => "transparent" });
const CACHE_KEY = "halfscope.theme";

/** The colours of the last visit, so that a page does not flash while they are fetched. */
function cachedTheme(): Theme | undefined {
  try {
    return JSON.parse(localStorage.getItem(CACHE_KEY) ?? "") as Theme;
  } catch {
    return undefined;
  }
}

export function ThemeProvider({ children, enabled }: { children: ReactNode; enabled: boolean }) {
  const { theme: wish } = usePrefs();
  const systemDark = useMedia("(prefers-color-scheme: dark)");
  const mode = wish === "system" ? (systemDark ? "dark" : "light") : wish;
  const { data: theme } = useQuery({ ...themeQuery, enabled, initialData: cachedTheme, initialDataUpdatedAt: 0 });
  const roles = theme?.[mode];

  useEffect(() => {
    const root = document.documentElement;
    root.dataset.theme = mode;
    for (const [role, color] of Object.entries(roles ?? {})) root.style.setProperty(`--c-${role}`, color);
  }, [mode, roles]);
  useEffect(() => {
    try {
      if (theme) localStorage.setItem(CACHE_KEY, JSON.stringify(theme));
    } catch {
      // Without storage the next visit fetches them first.
    }
  }, [theme]);

  const palette = useMemo(
    () => ({ mode, color: (role: string) => roles?.[role] ?? "transparent" }) satisfies Palette,
    [mode, roles],
  );
  return <PaletteContext value={palette}>{children}</PaletteContext>;
}

export function usePalette(): Palette {
  return useContext(PaletteContext);
}

const NEXT = { system: "light", light: "dark", dark: "system" } as const;

export function cycleTheme(): void {
  setPrefs({ theme: NEXT[getPrefs().theme] });
}
