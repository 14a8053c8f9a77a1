// The types that the parts of the client hand to each other, and those that its users see.

/** What somebody published: about a subject or several, or for its users alone, without one. */
export interface Event {
  id: string;
  subject?: string;
  /** Of an event about several. */
  subjects?: string[];
  private?: true;
  /** Milliseconds since 1970, by the server's clock. */
  at: number;
  data: any;
  gap?: undefined;
  presence?: undefined;
}

/** Between these times events may be missing; null where nobody knows. */
export interface Gap {
  from: number | null;
  to: number | null;
  reason: string;
}

/** In the order of arrival: an event, or the news that some are missing. */
export type Item = Event | Missing | News;

export interface Missing {
  gap: Gap;
  id?: undefined;
  data?: undefined;
  presence?: undefined;
}

/**
 * Who is in a subject (`users`, in place of all that was told before), or who came or left, or now
 * says something else of itself.
 */
export interface News {
  presence: {
    subject: string;
    online?: number;
    /** Null where they are too many to be named. */
    users?: string[] | null;
    /** What those of `users` say of themselves that say something. */
    states?: Record<string, any>;
    user?: string;
    state?: 'join' | 'leave' | 'update';
    /** What `user` says of itself; null for nothing any more. */
    data?: any;
  };
  id?: undefined;
  data?: undefined;
  gap?: undefined;
}

export type State = 'connecting' | 'open' | 'reconnecting' | 'closed';

/** What a connection brings: http.md 7.4, whatever carried it. */
/** The session goes on without these (http.md 21.9). */
export interface Ended {
  reason: string;
  subjects?: string[];
  presence?: string[];
  state?: boolean;
}

export interface Message {
  cursor?: string;
  id?: string;
  subject?: string;
  subjects?: string[];
  private?: true;
  at?: number;
  data?: unknown;
  gap?: Gap;
  presence?: News['presence'];
  end?: { reason: string };
  ended?: Ended;
  ref?: string | number;
  ok?: unknown;
  error?: { code: string; message?: string; retry_after_s?: number };
}

/** Why there is no connection any more. */
export interface Loss {
  code: string;
  message?: string | undefined;
  status?: number | undefined;
  /** The server has said when to come back. */
  retryAfterMs?: number | undefined;
  /** This transport doesn't work here; the next one may. */
  broken?: boolean;
  /** Nothing is wrong: the next connection may begin now. */
  atOnce?: boolean;
  /** The state stays what it is: the next connection differs in what it asks for. */
  quiet?: boolean;
}

/** Who is told what one connection does. After `lost` it says nothing more. */
export interface Listener {
  /** What came; nothing in it is a heartbeat. */
  message(message: Message): void;
  /** The connection itself looks after its silence from now on. */
  hold(): void;
  /** What the server asks to be waited before the next connection (http.md 13.3). */
  retry(ms: number): void;
  lost(loss: Loss): void;
}

export interface Connection {
  /** Ends it without a word to the listener. */
  drop(): void;
  /** What the client says; only where the transport has a way back. */
  send?(text: string): void;
  /** To the tab that leads, what this one wants by now. */
  hello?(): void;
}

export interface Place {
  /** `https://host/v1/`, with whatever path stands before `v1`. */
  base: string;
  user?: string | undefined;
  token?: string | null | undefined;
  cursor?: string | undefined;
  /** What the session is subscribed to from its beginning (http.md 21). */
  subjects: string[];
  /** So many of the newest events about each of these, where there is no cursor. */
  last?: number | undefined;
  /** What the user says of itself, as JSON (http.md 23). */
  said?: string | undefined;
  fetch: typeof fetch;
  WebSocket?: unknown;
}

/** Gives a token; null where nobody is signed in. */
export type Ask = () => Promise<string | null | undefined>;

export interface Transport {
  name: string;
  open(place: Place, listener: Listener): Connection;
}

/** The errors of Halley (http.md 5.3), and those of the client itself. */
export class HalleyError extends Error {
  declare readonly code: string;
  declare readonly status: number | undefined;
  declare readonly retryAfterMs: number | undefined;

  constructor({ code, message = code, status, retryAfterMs }: Loss) {
    super(message);
    Object.assign(this, { name: 'HalleyError', code, status, retryAfterMs });
  }
}
