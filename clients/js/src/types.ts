// What the parts of the client hand to each other, and what its users see.

/** What somebody published: about a subject, or for its users alone, without one. */
export interface Event {
  id: string;
  subject?: string;
  private?: true;
  /** Milliseconds since 1970, by the server's clock. */
  at: number;
  data: any;
  gap?: undefined;
}

/** Between these times events may be missing; null where nobody knows. */
export interface Gap {
  from: number | null;
  to: number | null;
  reason: string;
}

/** In the order of arrival: an event, or the news that some are missing. */
export type Item = Event | { gap: Gap };

export type State = 'connecting' | 'open' | 'reconnecting' | 'closed';

/** What a connection brings: http.md 7.4, whatever carried it. */
export interface Message {
  cursor?: string;
  id?: string;
  subject?: string;
  private?: true;
  at?: number;
  data?: unknown;
  gap?: Gap;
  end?: { reason: string };
  ref?: string | number;
  ok?: unknown;
  error?: { code: string; message: string; retry_after_s?: number };
}

/** Why there is no connection any more. */
export interface Loss {
  code: string;
  message?: string;
  status?: number;
  /** The server has said when to come back. */
  retryAfterMs?: number;
  /** This transport doesn't work here; the next one may. */
  broken?: boolean;
  /** Nothing is wrong: the next connection may begin now. */
  atOnce?: boolean;
}

/** Who is told what one connection does. After `lost` it says nothing more. */
export interface Listener {
  /** What came; nothing in it is a heartbeat. */
  message(message: Message): void;
  /** What the server asks to be waited before the next connection (http.md 13.3). */
  retry(ms: number): void;
  lost(loss: Loss): void;
}

export interface Connection {
  /** Ends it without a word to the listener. */
  drop(): void;
  /** What the client says; only where the transport has a way back. */
  send?(text: string): void;
}

export interface Place {
  /** `https://host/v1/`, with whatever path stands before `v1`. */
  base: string;
  user?: string | undefined;
  token?: string | undefined;
  cursor?: string | undefined;
  fetch: typeof fetch;
  WebSocket?: typeof WebSocket | undefined;
}

export interface Transport {
  name: string;
  /** May it be tried here at all? */
  isThere?(place: Place): boolean;
  open(place: Place, listener: Listener): Connection;
}

/** The errors of Halley (http.md 5.3), and those of the client itself. */
export class HalleyError extends Error {
  constructor(
    readonly code: string,
    message?: string,
    readonly status?: number | undefined,
    readonly retryAfterMs?: number | undefined,
  ) {
    super(message ?? code);
    this.name = 'HalleyError';
  }
}
