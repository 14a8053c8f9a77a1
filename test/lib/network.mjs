// A network between the clients and a server of this machine: a TCP proxy that takes its time, and
// fails as networks do. It doesn't look at the bytes.
//
//   node test/lib/network.mjs --to PORT [--latency MS] [--jitter MS] [--bandwidth BYTES_A_SECOND]
//                             [--resets S] [--silences S] [--seed N]
//
// writes its port as the first line, does what lines on stdin say, answers each with a line `ok`,
// and ends when stdin does. The lines are the words of `COMMANDS`.
//
// Invariants:
// - Bytes of one direction arrive whole and in order, whatever the jitter.
// - At most `QUEUED_MAX` bytes of a direction, and one read more, are on their way.
// - What is drawn at random is drawn from the seed, for each connection in the order they open.

import { once } from 'node:events';
import { connect, createServer } from 'node:net';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { Random } from '../faults/lib/random.mjs';

const QUEUED_MAX = 256 * 1024;
/** Where bandwidth is short, bytes arrive in pieces as large as a packet of Ethernet carries. */
const PACKET = 1_460;

const CONDITIONS = {
  /** Each way. A connection also takes a round trip to open. */
  latencyMs: 0,
  /** So much more, at most. */
  jitterMs: 0,
  /** Each way; 0 is as fast as it goes. */
  bytesPerSecond: 0,
  /** A connection is reset after so many seconds on average; 0 is never. */
  resetsS: 0,
  /** It goes silent, by itself, after so many. */
  silencesS: 0,
};

/**
 * By an RST, but where the socket is being shut down: libuv refuses that then, and Node forgets the
 * handle without closing it, which keeps the process alive, or busy for ever.
 */
function reset(socket) {
  if (socket.writableEnded && !socket.writableFinished) socket.destroy();
  else socket.resetAndDestroy();
}

/** What comes from one end, on its way to the other. */
class Direction {
  #queue = [];
  #bytes = 0;
  /** When the line is free for the next packet, and when the last one arrives. */
  #freeAt;
  #lastAt = 0;
  #timer;

  constructor(connection, from, to, opensAt) {
    Object.assign(this, { connection, from, to });
    this.#freeAt = opensAt;
    from.on('data', (bytes) => this.#take(bytes));
    from.on('end', () => this.#put(0, () => to.end()));
    from.on('error', () => this.#put(0, () => reset(to)));
    to.on('drain', () => this.go());
    to.on('close', () => clearTimeout(this.#timer));
  }

  #take(bytes) {
    const size = this.connection.conditions.bytesPerSecond ? PACKET : bytes.length;
    for (let at = 0; at < bytes.length; at += size) {
      const packet = bytes.subarray(at, at + size);
      this.#put(packet.length, () => this.to.write(packet));
    }
    if (this.#bytes > QUEUED_MAX) this.from.pause();
  }

  #put(length, act) {
    const { conditions: { latencyMs, jitterMs, bytesPerSecond }, random } = this.connection;
    this.#freeAt = Math.max(performance.now(), this.#freeAt)
      + (bytesPerSecond ? (length / bytesPerSecond) * 1_000 : 0);
    this.#lastAt = Math.max(this.#lastAt, this.#freeAt + latencyMs + jitterMs * random.float());
    this.#queue.push({ at: this.#lastAt, length, act });
    this.#bytes += length;
    this.go();
  }

  /** Hands on what has arrived, and waits for the next. */
  go() {
    clearTimeout(this.#timer);
    if (this.connection.isSilent || this.to.destroyed) return;
    while (this.#queue.length && !this.to.writableNeedDrain) {
      const [{ at, length, act }] = this.#queue;
      const wait = at - performance.now();
      if (wait > 0) {
        this.#timer = setTimeout(() => this.go(), Math.ceil(wait));
        break;
      }
      this.#queue.shift();
      this.#bytes -= length;
      act();
    }
    if (this.#bytes < QUEUED_MAX) this.from.resume();
  }

  /** The sender's bytes stay in its kernel, as what nobody acknowledges does. */
  hold() {
    clearTimeout(this.#timer);
    this.from.pause();
  }
}

class Connection {
  isSilent = false;
  #directions;
  #fates = [];

  constructor(network, client, server) {
    const { conditions } = network;
    this.network = network;
    this.random = network.random.fork('connection');
    this.ends = [client, server];
    for (const end of this.ends) {
      end.setNoDelay(true);
      end.on('close', () => this.#closed());
    }
    const opensAt = performance.now() + 2 * conditions.latencyMs;
    this.#directions = [
      new Direction(this, client, server, opensAt), new Direction(this, server, client, 0),
    ];
    this.#fate(conditions.resetsS, () => this.reset());
    this.#fate(conditions.silencesS, () => this.silence());
    if (network.isStalled) this.silence();
  }

  get conditions() { return this.network.conditions; }

  #fate(seconds, act) {
    const after = -Math.log(1 - this.random.float()) * seconds * 1_000;
    if (seconds) this.#fates.push(setTimeout(act, after));
  }

  #closed() {
    if (!this.ends.every(({ destroyed }) => destroyed)) return;
    for (const fate of this.#fates) clearTimeout(fate);
    this.network.connections.delete(this);
  }

  silence() {
    this.isSilent = true;
    for (const direction of this.#directions) direction.hold();
  }

  go() {
    this.isSilent = false;
    for (const direction of this.#directions) direction.go();
  }

  reset() { for (const end of this.ends) reset(end); }

  cut() { for (const end of this.ends) end.destroy(); }
}

class Network {
  connections = new Set();
  isStalled = false;
  #isAway = false;
  #server = createServer({ allowHalfOpen: true }, (client) => this.#accept(client));

  constructor(to, seed, conditions) {
    this.to = to;
    this.random = new Random(seed);
    this.conditions = { ...CONDITIONS, ...conditions };
  }

  async open() {
    this.#server.listen(0, '127.0.0.1');
    await once(this.#server, 'listening');
    return this;
  }

  #accept(client) {
    if (this.#isAway) return void client.resetAndDestroy();
    const server = connect({ port: this.to, host: '127.0.0.1', allowHalfOpen: true });
    this.connections.add(new Connection(this, client, server));
  }

  get port() { return this.#server.address().port; }

  get url() { return `http://127.0.0.1:${this.port}`; }

  /** Changes conditions for what is sent from now on: `set({ latencyMs: 150 })`. */
  set(changes) { Object.assign(this.conditions, changes); }

  #each(act) { for (const connection of [...this.connections]) act(connection); }

  /** Half-open: nothing passes on the connections that there are, and no end is told so. */
  silence() { this.#each((connection) => connection.silence()); }

  /** Nothing passes on any connection, those that are opened later too. */
  stall() {
    this.isStalled = true;
    this.silence();
  }

  /** What was held passes, as of a cable that is plugged in again. */
  go() {
    this.isStalled = false;
    this.#each((connection) => connection.go());
  }

  /** Each end of each connection gets an RST. */
  reset() { this.#each((connection) => connection.reset()); }

  /** Each gets a FIN. */
  cut() { this.#each((connection) => connection.cut()); }

  /** No connection any more, and none is let in until `back`. */
  away() {
    this.#isAway = true;
    this.reset();
  }

  back() { this.#isAway = false; }

  close() {
    this.#server.close();
    this.reset();
    // A reset waits for what is still to be written, which may be taken by nobody.
    this.cut();
  }
}

/** A network in front of the port `to`; see `CONDITIONS`. */
export const network = ({ to, seed = 1, ...conditions }) =>
  new Network(to, seed, conditions).open();

const UNITS = {
  latency: 'latencyMs', jitter: 'jitterMs', bandwidth: 'bytesPerSecond',
  resets: 'resetsS', silences: 'silencesS',
};

/** The lines that the program takes; what one gives is written behind `ok`. */
const COMMANDS = {
  ...Object.fromEntries(['silence', 'stall', 'go', 'reset', 'cut', 'away', 'back']
    .map((name) => [name, (one) => one[name]()])),
  ...Object.fromEntries(Object.entries(UNITS)
    .map(([name, condition]) => [name, (one, value) => one.set({ [condition]: Number(value) })])),
  /** How many connections there are. */
  count: (one) => one.connections.size,
};

async function run() {
  const names = ['to', 'seed', ...Object.keys(UNITS)];
  const { values } = parseArgs({
    options: Object.fromEntries(names.map((name) => [name, { type: 'string' }])),
  });
  const numbers = Object.entries(values).map(([name, value]) =>
    [UNITS[name] ?? name, Number(value)]);
  if (!values.to || numbers.some(([, number]) => !(number >= 0))) {
    console.error('usage: node network.mjs --to PORT'
      + ' [--latency MS] [--jitter MS] [--bandwidth BYTES_A_SECOND]'
      + ' [--resets S] [--silences S] [--seed N]');
    process.exit(2);
  }
  const one = await network(Object.fromEntries(numbers));
  console.log(one.port);
  for await (const line of createInterface({ input: process.stdin })) {
    const [name, value] = line.trim().split(/\s+/);
    if (!Object.hasOwn(COMMANDS, name) || (name in UNITS && !(Number(value) >= 0))) {
      console.log(`bad: ${line}`);
      continue;
    }
    console.log(['ok', COMMANDS[name](one, value)].filter((part) => part !== undefined).join(' '));
  }
  one.close();
}

if (process.argv[1] === fileURLToPath(import.meta.url)) await run();
