/** The address bar as the store of what is shown: paths, query keys, links. Nothing else touches `history`. */

import { type AnchorHTMLAttributes, type MouseEvent, useSyncExternalStore } from "react";
import { toAddress, toPath } from "./base";

const listeners = new Set<() => void>();

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  addEventListener("popstate", listener);
  return () => {
    listeners.delete(listener);
    removeEventListener("popstate", listener);
  };
}

function announce(): void {
  for (const listener of listeners) listener();
}

/** Path and query of the app, as one string: `/runs/abc?x=time`. */
export function currentPlace(): string {
  return toPath(location.pathname) + location.search;
}

export function usePlace(): { path: string; query: URLSearchParams } {
  const place = useSyncExternalStore(subscribe, currentPlace);
  const [path = "/", search = ""] = place.split("?", 2);
  return { path, query: new URLSearchParams(search) };
}

/** Goes to a path of the app; `replace` leaves no entry for Back. */
export function navigate(place: string, { replace = false } = {}): void {
  if (place === currentPlace()) return;
  history[replace ? "replaceState" : "pushState"](null, "", toAddress(place));
  announce();
  if (!replace) scrollTo(0, 0);
}

/** Sets query keys of the present place; null or empty removes a key. Leaves no entry for Back unless asked to. */
export function setQuery(changes: Record<string, string | string[] | null>, { push = false } = {}): void {
  const [path = "/", search = ""] = currentPlace().split("?", 2);
  const query = new URLSearchParams(search);
  for (const [key, value] of Object.entries(changes)) {
    query.delete(key);
    for (const one of Array.isArray(value) ? value : value ? [value] : []) query.append(key, one);
  }
  // Commas and tildes are legal in a query and far easier to read and share than %2C.
  const text = query.toString().replaceAll("%2C", ",");
  const place = text ? `${path}?${text}` : path;
  if (place === currentPlace()) return;
  history[push ? "pushState" : "replaceState"](null, "", toAddress(place));
  announce();
}

type LinkProps = Omit<AnchorHTMLAttributes<HTMLAnchorElement>, "href"> & { to: string };

/** A real link: the middle button, Ctrl and the context menu work; a plain click stays inside the app. */
export function Link({ to, onClick, ...rest }: LinkProps) {
  const follow = (event: MouseEvent<HTMLAnchorElement>) => {
    onClick?.(event);
    if (
      event.defaultPrevented ||
      event.button !== 0 ||
      event.metaKey ||
      event.ctrlKey ||
      event.shiftKey ||
      event.altKey
    ) {
      return;
    }
    event.preventDefault();
    navigate(to);
  };
  return <a {...rest} href={toAddress(to)} onClick={follow} />;
}
