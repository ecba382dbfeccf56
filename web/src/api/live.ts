/** The live websocket: one connection, one subscription at a time and alerts besides, reconnecting with back-off.
 *
 * Knows nothing of React or of what messages mean. Invariant: after every reconnect the present subscription is sent again, so
 * a page never has to.
 */

import type { ClientMessage, ServerMessage } from "./types";

export type Connection =
  | { kind: "connecting" }
  | { kind: "open" }
  /** `sinceMs`: when it was lost; `retryAtMs`: when it is tried again. */
  | { kind: "lost"; sinceMs: number; retryAtMs: number };

export interface LiveHandlers {
  onMessage(message: ServerMessage): void;
  onConnection(connection: Connection): void;
  /** The server says that the session is over: there is nothing to reconnect with. */
  onSignedOut(): void;
}

/** Close code of a session that ended: signed out in another window, or run out. */
const SIGNED_OUT = 4401;

/** First wait and longest wait; in between it doubles, with jitter so that many pages do not return at once. */
const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 15_000;

export class LiveClient {
  readonly #address: string;
  readonly #handlers: LiveHandlers;
  #socket: WebSocket | null = null;
  #wanted: ClientMessage | null = null;
  #failures = 0;
  #lostSinceMs: number | null = null;
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(address: string, handlers: LiveHandlers) {
    this.#address = address;
    this.#handlers = handlers;
  }

  start(): void {
    if (this.#socket) return;
    clearTimeout(this.#timer);
    if (this.#lostSinceMs === null) this.#handlers.onConnection({ kind: "connecting" });
    const socket = new WebSocket(this.#address);
    this.#socket = socket;
    socket.onopen = () => {
      this.#failures = 0;
      this.#lostSinceMs = null;
      this.#handlers.onConnection({ kind: "open" });
      socket.send(JSON.stringify({ type: "watch_alerts" } satisfies ClientMessage));
      if (this.#wanted) socket.send(JSON.stringify(this.#wanted));
    };
    socket.onmessage = (event) => this.#handlers.onMessage(JSON.parse(event.data as string) as ServerMessage);
    // An error is always followed by a close: one place to act on.
    socket.onclose = ({ code }) => {
      if (code === SIGNED_OUT && this.#socket === socket) {
        this.#socket = null;
        this.#handlers.onSignedOut();
      } else this.#lost(socket);
    };
  }

  stop(): void {
    clearTimeout(this.#timer);
    const socket = this.#socket;
    this.#socket = null;
    socket?.close();
  }

  /** What to be told about from now on; null for nothing. */
  watch(message: ClientMessage | null): void {
    this.#wanted = message;
    if (this.#socket?.readyState === WebSocket.OPEN) {
      this.#socket.send(JSON.stringify(message ?? ({ type: "unwatch" } satisfies ClientMessage)));
    }
  }

  /** Asks for the present subscription again, without waiting for the back-off. */
  retryNow(): void {
    if (this.#socket?.readyState === WebSocket.OPEN) this.watch(this.#wanted);
    else if (!this.#socket) this.start();
  }

  #lost(socket: WebSocket): void {
    if (this.#socket !== socket) return;
    this.#socket = null;
    this.#lostSinceMs ??= Date.now();
    const longest = Math.min(LONGEST_WAIT_MS, FIRST_WAIT_MS * 2 ** this.#failures++);
    const waitMs = longest * (0.5 + Math.random() / 2);
    this.#timer = setTimeout(() => this.start(), waitMs);
    this.#handlers.onConnection({ kind: "lost", sinceMs: this.#lostSinceMs, retryAtMs: Date.now() + waitMs });
  }
}
