/** Keyboard shortcuts: one listener, a stack of maps, off inside inputs and where an overlay is open. */

import { useEffect, useRef } from "react";
import { getPrefs } from "./prefs";

export type KeyMap = Record<string, () => void>;

/** Newest last: the innermost page wins. */
const maps: { current: KeyMap }[] = [];
/** After `g`, how long the second key may take. */
const CHORD_MS = 1000;
let chord: { key: string; until: number } | null = null;

/** Kinds of input that take no text: a letter on them is free for a shortcut. */
const CHOOSING = ["radio", "checkbox", "button", "submit", "reset"];

function isTyping(target: EventTarget | null): boolean {
  if (target instanceof HTMLInputElement) return !CHOOSING.includes(target.type);
  return target instanceof HTMLElement && (target.isContentEditable || ["TEXTAREA", "SELECT"].includes(target.tagName));
}

function onKeyDown(event: KeyboardEvent): void {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || !getPrefs().shortcuts) return;
  if (isTyping(event.target) || document.querySelector("[role=dialog],[role=alertdialog],[role=menu],[role=listbox]"))
    return;
  const inChord = chord !== null && performance.now() < chord.until;
  const name = inChord && chord ? `${chord.key} ${event.key}` : event.key;
  chord = null;
  for (let at = maps.length - 1; at >= 0; at--) {
    const map = maps[at]?.current ?? {};
    const action = map[name];
    if (action) {
      event.preventDefault();
      action();
      return;
    }
    if (!inChord && Object.keys(map).some((key) => key.startsWith(`${event.key} `))) {
      chord = { key: event.key, until: performance.now() + CHORD_MS };
      return;
    }
  }
}

/** Binds keys while the component is mounted. */
export function useKeys(map: KeyMap): void {
  const holder = useRef(map);
  holder.current = map;
  useEffect(() => {
    if (maps.length === 0) addEventListener("keydown", onKeyDown);
    maps.push(holder);
    return () => {
      maps.splice(maps.indexOf(holder), 1);
      if (maps.length === 0) removeEventListener("keydown", onKeyDown);
    };
  }, []);
}

/** What the help dialog lists; kept beside nothing else, so that help and settings cannot disagree. */
export const SHORTCUTS: { title: string; keys: [string, string][] }[] = [
  {
    title: "Everywhere",
    keys: [
      ["?", "This help"],
      ["/", "Search runs"],
      ["g r", "Go to Runs"],
      ["g c", "Go to Compare"],
      ["g a", "Go to Alerts"],
      ["g s", "Go to Settings"],
      ["m", "Theme: system, light, dark"],
      ["Esc", "Close, leave a field"],
    ],
  },
  {
    title: "Lists",
    keys: [
      ["j", "Next row or layer"],
      ["k", "Row or layer before"],
      ["Enter", "Open the row, select the layer"],
      ["x", "Select the run in focus"],
      ["c", "Compare the selected runs; on a run: compare it with another"],
      ["a", "Acknowledge the alert in focus, or the first"],
    ],
  },
  {
    title: "A run",
    keys: [
      ["1 2 3 4", "Overview, Layers, Events, Config"],
      ["l", "Pause or go live again"],
      ["[", "Bad stretch before"],
      ["]", "Next bad stretch"],
      ["0", "Show the whole run"],
      ["y", "Vertical axis: automatic, log, linear"],
      ["t", "Horizontal axis: step, time"],
      ["s", "Smoothing: off, light, medium, strong"],
      ["u", "Layers: gradient as FP16 sees it, or as it is"],
    ],
  },
  {
    title: "A comparison",
    keys: [
      ["b", "Make the run in focus, else the one looked at, the baseline"],
      ["o", "Layer: side by side, or one over the other"],
      ["u", "Layer: gradient as it is, or as FP16 sees it"],
      ["j k", "Next layer, layer before"],
      ["0", "Show all steps"],
      ["l", "Pause or go live again"],
    ],
  },
];
