// Uploads in chunks of one byte: what do other publishers notice of twenty of them? Events are
// published at a fixed rate, without the uploads and with them in turns.

import { connect } from 'node:net';
import { sleep } from '../../test/lib/wait.mjs';
import { load } from './load.mjs';
import { cpuDuring } from './process.mjs';
import { say } from './say.mjs';
import { fixed, latencies, median, whole } from './words.mjs';

const UPLOADS = 20;
/** A line of so many bytes: 360 kB on the wire. It is no event, as what an event of that size costs
 *  has nothing to do with chunks. */
const LINE_BYTES = 60_000;
/** Between two bodies of a connection. */
const PAUSE_MS = 500;
const EVENTS_PER_S = 500;
const SUBJECTS = 1_000;
const SETTLE_MS = 1_000;

const CHUNK = (byte) => `1\r\n${byte}\r\n`;
const LINE = `${'x'.repeat(LINE_BYTES)}\n`;
const REQUEST = Buffer.from('POST /v1/events HTTP/1.1\r\nHost: bench\r\n'
  + 'Content-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n\r\n'
  + `${[...LINE].map(CHUNK).join('')}0\r\n\r\n`);

/** Connections that send one such body after the other, until `stop`. */
class Uploads {
  #ended = false;
  #sockets;
  answered = 0;
  refused = 0;

  constructor(halley) {
    const { hostname, port } = new URL(halley.apiUrl);
    this.#sockets = Array.from({ length: UPLOADS }, () => this.#open(hostname, port));
  }

  #open(host, port) {
    const socket = connect({ host, port: Number(port) }, () => socket.write(REQUEST));
    socket.on('error', () => {});
    socket.on('data', (data) => {
      if (!data.toString('latin1').startsWith('HTTP/1.1 ')) return;
      this.answered += 1;
      if (!data.toString('latin1').startsWith('HTTP/1.1 200')) this.refused += 1;
      setTimeout(() => this.#ended || socket.write(REQUEST), PAUSE_MS);
    });
    return socket;
  }

  stop() {
    this.#ended = true;
    for (const socket of this.#sockets) socket.destroy();
  }
}

export async function bodies(halley, plan) {
  const seconds = Math.max(2, Math.round(plan.seconds / plan.rounds));
  const window = async () => {
    await sleep(SETTLE_MS);
    return cpuDuring(halley, () => load('publish', '--url', halley.apiUrl,
      '--subjects', `groups:${SUBJECTS}`, '--rate', `${EVENTS_PER_S}`, '--seconds', `${seconds}`));
  };
  const [without, beside, uploads] = [[], [], []];
  for (let round = 1; round <= plan.rounds; round += 1) {
    say(`bodies: round ${round} of ${plan.rounds}`);
    // Whoever goes first has another Halley than who comes second: they change places.
    if (round % 2 === 1) without.push(await window());
    const slow = new Uploads(halley);
    beside.push(await window());
    slow.stop();
    uploads.push({ answered: slow.answered, refused: slow.refused });
    if (round % 2 === 0) without.push(await window());
  }
  return { seconds, without, beside, uploads };
}

export function bodiesRows(plan, { seconds, without, beside, uploads }) {
  const latency = (windows) => latencies(windows.map(({ result }) => result.latency_ms));
  const ratio = (name) => fixed(median(beside.map(({ result }, round) =>
    result.latency_ms[name] / without[round].result.latency_ms[name])));
  const cpu = (windows, part) => fixed(100 * median(windows.map((w) => w.cpu[part] / seconds)), 1);
  return [
    ['publishes/s, connections beside them that send bodies in chunks of one byte',
      `${whole(EVENTS_PER_S)}, ${UPLOADS}`, ''],
    ['bodies of a window, refused of them',
      `${whole(median(uploads.map(({ answered }) => answered)))}, `
      + `${whole(median(uploads.map(({ refused }) => refused)))}`, ''],
    ['request to answer p50 / p99, without them', latency(without), ''],
    ['beside them', latency(beside), ''],
    ['p99 beside them to p99 without, median of the rounds', ratio('p99'), 'at most 2'],
    ['p50', ratio('p50'), ''],
    ['the brain, processors without and beside them',
      `${cpu(without, 'brain')} %, ${cpu(beside, 'brain')} %`, ''],
    ['the edge', `${cpu(without, 'edge')} %, ${cpu(beside, 'edge')} %`, ''],
  ];
}
