// The simulator's network: `fetch` and `WebSocket` of a tab, over connections that take their time,
// keep the order of what they carry, and are cut or fall silent as the story wants.

const encoder = new TextEncoder();

class Wire {
  #arrivals = [0, 0];
  isCut = false;
  isStalled = false;

  constructor(network, tab) {
    Object.assign(this, { network, tab, clock: network.clock });
    network.wires.add(this);
  }

  #delay(way) {
    const { network: { chance, latencyMs }, clock } = this;
    const at = Math.max(clock.now + latencyMs * chance.next(), this.#arrivals[way]);
    this.#arrivals[way] = at;
    return at - clock.now;
  }

  /** To the server. */
  up(act) {
    this.clock.after(this.#delay(0), () => this.isStalled || act());
  }

  /** To the tab. */
  down(act) {
    if (!this.isStalled) this.tab.later(this.#delay(1), () => this.isStalled || act());
  }

  /** Both ends learn of it, each in its time. */
  cut() {
    if (this.isCut) return;
    this.isCut = true;
    this.network.wires.delete(this);
    this.onServerCut?.();
    if (!this.isStalled) this.tab.later(this.#delay(1), () => this.onCut());
  }

  /** The client wants no more of it. */
  leave() {
    this.isLeft = true;
    this.up(() => {
      this.isCut = true;
      this.network.wires.delete(this);
      this.onServerCut?.();
    });
  }
}

/** The network of `world`, for the tab whose turn it is. */
export function globals(world) {
  class WebSocket {
    constructor(url) {
      world.network.dial(world.browser.current, url, this);
    }

    send(text) {
      const { wire } = this;
      if (!this.isOpen) throw new DOMException('Still in CONNECTING state', 'InvalidStateError');
      wire.up(() => !wire.isCut && this.hear(text));
    }

    close() {
      this.wire.leave();
    }
  }
  return {
    WebSocket,
    fetch: (url, init = {}) => world.network.fetch(world.browser.current, url, init),
  };
}

/** Of a server's `request_line_bytes_max`. */
const ADDRESS_MAX = 8_192;

export class Network {
  wires = new Set();
  isOffline = false;

  constructor(clock, chance, server, latencyMs) {
    Object.assign(this, { clock, chance, server, latencyMs });
  }

  cutAll() {
    for (const wire of [...this.wires]) wire.cut();
  }

  /** A tab is gone, and what it had. */
  forget(tab) {
    for (const wire of this.wires) if (wire.tab === tab) wire.leave();
  }

  /** Nothing is there at the other end. */
  #isAway() {
    return this.isOffline || !this.server.isUp;
  }

  dial(tab, url, socket) {
    const wire = socket.wire = new Wire(this, tab);
    const { searchParams } = new URL(url);
    wire.onCut = () => socket.onclose({ reason: '' });
    const upgrade = () => wire.down(() => {
      socket.isOpen = true;
      socket.onopen();
    });
    const to = {
      accept: upgrade,
      refuse: () => wire.cut(),
      send: (message) => wire.down(() => socket.onmessage({ data: JSON.stringify(message) })),
      end: () => wire.cut(),
      isSocket: true,
    };
    socket.hear = (text) => this.server.told(wire.session, JSON.parse(text));
    wire.up(() => {
      if (wire.isCut) return;
      if (this.#isAway() || url.length > ADDRESS_MAX) return wire.cut();
      if (searchParams.get('open') !== 'message') return this.server.open(wire, searchParams, to);
      socket.hear = (text) => this.#begins(wire, socket, new URLSearchParams(text), to);
      upgrade();
    });
  }

  /** http.md 28.3: the first message has the parameters, and those behind it wait. */
  #begins(wire, socket, parameters, to) {
    const waiting = [];
    socket.hear = (text) => waiting.push(text);
    this.server.open(wire, parameters, {
      ...to,
      accept: (cursor) => {
        if (!cursor) to.send({});
        socket.hear = (text) => this.server.told(wire.session, JSON.parse(text));
        waiting.forEach(socket.hear);
      },
      refuse: (status, error) => {
        to.send({ error: { status, ...error } });
        wire.cut();
      },
    });
  }

  fetch(tab, url, { signal, method = 'GET', headers = {}, body }) {
    const wire = new Wire(this, tab);
    const { pathname, searchParams } = new URL(url);
    // http.md 28.2: a form is a part of the query.
    const isForm = body instanceof URLSearchParams;
    if (isForm) for (const [name, value] of body) searchParams.append(name, value);
    return new Promise((done, fail) => {
      let reading;
      wire.onCut = () => {
        fail(new TypeError('network error'));
        reading?.fail(new TypeError('network error'));
      };
      const leave = () => {
        wire.leave();
        fail(signal.reason);
        reading?.fail(signal.reason);
      };
      signal?.addEventListener('abort', leave);
      const answer = (status, json, more = {}) => wire.down(() => {
        signal?.removeEventListener('abort', leave);
        if (!wire.isLeft) {
          this.wires.delete(wire);
          done(response(status, { 'content-type': 'application/json', ...more },
            { json: async () => json }));
        }
      });
      const stream = () => {
        const type = headers.accept;
        const chunks = chunksOf();
        reading = chunks;
        const write = (text) => wire.down(() => chunks.push(encoder.encode(text)));
        return {
          accept: (cursor) => {
            wire.down(() => done(response(200, { 'content-type': type },
              { body: { getReader: () => chunks } })));
            write(type.endsWith('json') ? `${cursor ? JSON.stringify({ cursor }) : ''}\n`
              : `: welcome\nretry: 500\n${cursor ? `id: ${cursor}\n` : ''}\n`);
          },
          refuse: (status, error) => answer(status, { error }),
          send: (message) => write(encoded(type, message)),
          end: () => wire.cut(),
        };
      };
      wire.up(() => {
        if (wire.isCut) return;
        if (this.#isAway()) wire.cut();
        else if (url.length > ADDRESS_MAX) answer(414, { error: { code: 'too_long' } });
        else if (isForm && method !== 'POST') answer(405, { error: { code: 'method' } });
        else if (pathname === '/v1/stream') this.server.open(wire, searchParams, stream());
        else if (pathname === '/v1/poll') this.server.poll(wire, searchParams, answer);
        else this.server.asked(method, pathname, searchParams, body && JSON.parse(body), answer);
      });
    });
  }
}

const response = (status, headers, body) => ({
  status, ok: status < 300, headers: { get: (name) => headers[name] ?? null }, ...body,
});

function encoded(type, { cursor, ...rest }) {
  if (type.endsWith('json')) return `${JSON.stringify({ cursor, ...rest })}\n`;
  const data = Object.keys(rest).length ? `data: ${JSON.stringify(rest)}\n` : '';
  return `${cursor ? `id: ${cursor}\n` : ''}${data}\n`;
}

/** The reader of a body, and what fills it. */
function chunksOf() {
  const waiting = [];
  let wants, error;
  return {
    push(value) {
      if (!wants) return void waiting.push(value);
      wants.done({ done: false, value });
      wants = undefined;
    },
    fail(why) {
      error = why;
      wants?.fail(why);
    },
    async read() {
      if (waiting.length) return { done: false, value: waiting.shift() };
      if (error) throw error;
      return new Promise((done, fail) => { wants = { done, fail }; });
    },
  };
}
