// One conversation of bytes with a live Halley, and what it amounts to: how many requests were
// taken, or what the first refusal was.
//
// A request is taken when it gets an answer that isn't about HTTP itself: the corpora ask for paths
// that no Halley has, so 404 says that the request was understood.

import { parseAnswers, Raw } from '../../lib/raw.mjs';
import { sleep } from '../../lib/wait.mjs';

/** Without another byte for so long, nothing more is on its way. */
const QUIET_MS = 250;
const TALK_MS_MAX = 5_000;
const SIDE_BY_SIDE = 16;
/** Statuses by which a request is refused for what it is as HTTP (http.md 1 to 3). */
const REFUSALS = new Set([400, 411, 413, 414, 415, 417, 426, 431, 501, 505]);

/** Sends the bytes; gives all answers, and whether the server closed by itself. */
async function talk(port, bytes, heads) {
  const raw = await Raw.open(port);
  raw.send(bytes);
  const end = Date.now() + TALK_MS_MAX;
  let [length, quietAt] = [0, Date.now() + QUIET_MS];
  while (!raw.isClosed && Date.now() < Math.min(end, quietAt)) {
    await sleep(10);
    if (raw.bytes.length > length) {
      [length, quietAt] = [raw.bytes.length, Date.now() + QUIET_MS];
    }
  }
  const closed = raw.isClosed;
  raw.close();
  // An interim answer is followed by another.
  return { answers: parseAnswers(raw.bytes, heads).filter(({ status }) => status >= 200), closed };
}

/**
 * `taken 2`; `refused 400 bad_host`; `taken 0` while the rest of a request is waited for. An answer
 * may come before the end of its request, so anything up to `most` is what was wanted.
 */
async function outcome(port, { bytes, heads, want, most }) {
  const { answers, closed } = await talk(port, bytes, heads);
  const refusal = answers.find(({ status }) => REFUSALS.has(status));
  if (refusal) return `refused ${refusal.status} ${refusal.json?.error?.code ?? 'to HEAD'}`;
  if (answers.length === 0 && closed) return 'refused, closed';
  const got = `taken ${answers.length}`;
  return most !== undefined && got > want && answers.length <= most ? want : got;
}

const HEAD_WITHOUT_HOST =
  /^([!-~]+ (?:https?:\/\/([^/?# ]*))?[^\r\n]* HTTP\/1\.1\r\n)(?!(?:[^\r\n]+\r\n)*host:)/gim;
const withHost = (bytes) => Buffer.from(bytes.toString('latin1')
  .replace(HEAD_WITHOUT_HOST, (_, line, host) => `${line}Host: ${host ?? 'h'}\r\n`), 'latin1');

/**
 * What became of each conversation, as cases. Most of the corpora are older than the rule that
 * HTTP/1.1 has a Host (RFC 9112 3.2): one that lacks nothing else is held a second time with it.
 */
export async function converse(port, conversations) {
  const [cases, rest] = [[], [...conversations.entries()]];
  let hosts = 0;
  await Promise.all(Array.from({ length: SIDE_BY_SIDE }, async () => {
    for (let next = rest.shift(); next; next = rest.shift()) {
      const [n, one] = next;
      let got = await outcome(port, one);
      const hosted = withHost(one.bytes);
      if (/^refused 400 (bad_host|to HEAD)$/.test(got) && !hosted.equals(one.bytes)) {
        hosts += 1;
        got = await outcome(port, { ...one, bytes: hosted });
      }
      cases[n] = { name: one.name, want: one.want, got, about: one.about };
    }
  }));
  return { cases, notes: [`${hosts} of ${cases.length} without the Host that HTTP/1.1 needs got `
    + '400 bad_host, and were said again with it'] };
}
