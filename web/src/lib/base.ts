/** Where this app is served: the path prefix, found from the address of its own script, so no build needs to know it. */

function findPrefix(): string {
  // Built: {prefix}assets/index-HASH.js. In development: /src/lib/base.ts.
  const here = new URL(import.meta.url);
  const depth = here.pathname.includes("/assets/") ? "/assets/" : "/src/";
  return here.protocol.startsWith("http") ? here.pathname.slice(0, here.pathname.lastIndexOf(depth)) : "";
}

/** Path prefix without a trailing slash: empty, or `/tools/halfscope` behind a proxy. */
export const PREFIX = findPrefix();

/** A path of the app as the browser knows it. */
export function toAddress(path: string): string {
  return PREFIX + path;
}

/** The app's own path: the browser's without the prefix. */
export function toPath(pathname: string): string {
  return pathname.startsWith(PREFIX) ? pathname.slice(PREFIX.length) || "/" : pathname;
}

export function websocketAddress(path: string): string {
  return `${location.protocol === "https:" ? "wss" : "ws"}://${location.host}${PREFIX}${path}`;
}
