// Shared by the console's tests: a server with something going on, the browser's pages, axe.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { statSync } from 'node:fs';
import { connect } from 'node:net';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { api, follow, publish } from './client.mjs';
import { pictureAt } from './images.mjs';
import { ndjson, sse, ws } from './streams.mjs';
import { sleep, until } from './wait.mjs';

export { serious, unseen } from './pages.mjs';

const LAUNCHER = process.env.LAUNCHER ?? fileURLToPath(new URL('../../halley', import.meta.url));
const IMAGE_BYTES_MAX = 150 * 1024;
const run = promisify(execFile);

export const WIDE = { width: 1280, height: 860 };
export const PHONE = { width: 360, height: 740 };

const PEOPLE = ['ann', 'ben', 'cleo', 'dora', 'eli', 'fay', 'gus', 'hana', 'ivo', 'june'];
const ROOMS = ['room/7', 'room/12', 'room/lobby', 'team/night-shift', 'order/1042', 'order/1043',
  'match/finals', 'weather/oslo', 'stock/HLY', 'news'];
/** How often an event is about each room, and how many follow it. */
const OFTEN = [9, 5, 4, 3, 2, 2, 2, 1, 1, 1];
const FOLLOWERS = [4, 3, 6, 2, 1, 1, 10, 5, 4, 10];
const TEXTS = ['Good morning!', 'On my way', 'Who has the key?', 'Shipped', 'Lunch at twelve',
  '2:1 in the 83rd minute', 'Rain until four'];
const TURN_MS = 50;

/** What is counted of work that was done, and of changes that are as they should be. */
const WORK = new RegExp(`^halley_(events_(published|private|repeated|joint)|deliveries|group_.*
  |history_(events|bytes)_written|history_commits|users_forgotten|replays|replayed_events
  |catchups|catchup_events|past_.*|token_keys_changes|ids_freed|postgres_(changes|events|copies
  |tables_altered|writes|pool_(taken|waited|opened|closed))|hooks_(sent|requests)|connect_asked
  |remote_(events|requests|messages_sent
  |messages_received)
  |edge_(accepted|requests|requests_passed_on|tokens|tokens_renewed|streams|delivered
  |written_.*|replayed|polls|group_.*|presence_(told|narrowed)|stale_deliveries|writes
  |blocked_writes|heartbeats|messages|operations|deflate.*|inflate.*|tls_handshakes|tls_resumed
  |certificates_read|link_handshakes|brain_away_waits))_total$`.replaceAll(/\s/g, ''));

/** The counters of docs/reference/metrics.md, which is made from the tables in the code. */
export const countersOf = (text) =>
  [...text.matchAll(/^\| `([^`]+)` \| counter \|/gm)].map(([, name]) => name);
export const isWork = (name) => WORK.test(name);

/** A browser page that notes what it complains about, and what the CSP refuses. */
export async function openPage(browser, options = {}) {
  const context = await browser.newContext({ viewport: WIDE, locale: 'en-GB',
    timezoneId: 'UTC', reducedMotion: 'reduce', ...options });
  const page = await context.newPage();
  const complaints = [];
  page.on('pageerror', (error) => complaints.push(error.message));
  page.on('console', (message) => {
    // A refused request is an error to the browser; tests look at what the page makes of it.
    const told = message.text();
    if (message.type() === 'error' && !/Failed to load resource/.test(told)) complaints.push(told);
  });
  page.setDefaultTimeout(30_000);
  return { page, complaints };
}

/** Ten people with streams of several kinds, who follow rooms; then events, until `stop`. */
export async function goOn(halley) {
  const pairs = ROOMS.flatMap((room, index) =>
    PEOPLE.slice(0, FOLLOWERS[index]).map((person) => [person, room]));
  await follow(halley, ...pairs, ['ben', 'ann'], ['cleo', 'ann']);
  const kinds = [sse, ws, ndjson];
  const streams = [];
  for (const [index, person] of PEOPLE.entries()) {
    const stream = await kinds[index % kinds.length](halley, person);
    streams.push(stream);
  }
  const names = ROOMS.flatMap((room, index) => Array(OFTEN[index]).fill(room));
  let [going, turn] = [true, 0];
  const done = (async () => {
    while (going) {
      turn += 1;
      const size = 4 + Math.round(3 * Math.sin(turn / 40));
      const lines = Array.from({ length: size }, (_, n) => JSON.stringify({
        subject: names[(turn * 7 + n * 3) % names.length],
        data: { from: PEOPLE[(turn + n) % PEOPLE.length], text: TEXTS[(turn + n) % TEXTS.length] },
      }));
      await api(halley, 'POST', '/v1/events', `${lines.join('\n')}\n`,
        { 'content-type': 'application/x-ndjson', ...halley.consoleHeaders });
      await sleep(TURN_MS);
    }
  })();
  return { streams, stop: async () => { going = false; await done; } };
}

/** A client that reads nothing, until it is closed for it. It follows something: a user that
 * doesn't is forgotten soon after it has left. */
export async function beSlow(halley, user) {
  await follow(halley, [user, 'news']);
  const socket = connect(halley.publicPort, '127.0.0.1');
  socket.on('error', () => {});
  socket.pause();
  socket.write(`GET /v1/stream?user=${user} HTTP/1.1\r\nHost: halley\r\n\r\n`);
  await until(`${user} is there`, async () =>
    (await api(halley, 'GET', `/v1/users/${user}`)).json.online);
  const data = 'x'.repeat(60_000);
  await until(`${user} was too slow`, async () => {
    await publish(halley, user, data);
    const { ended } = (await api(halley, 'GET', '/v1/ended?reason=slow_consumer')).json;
    return ended.some((one) => one.user === user);
  });
  socket.destroy();
}

/** `./halley key …`: gives the key that it printed. */
export async function makeKey(halley, name, scopes) {
  const { stdout } = await run(LAUNCHER, ['key', 'create', name, '--scope', scopes],
    { cwd: halley.folder, env: { ...process.env, ...halley.settings }, timeout: 60_000 });
  return stdout.trim();
}

/** A picture of the page. */
export async function picture(page, halley, name, options = {}) {
  const path = pictureAt(`console-${name}.png`, halley.folder);
  await page.screenshot({ path, animations: 'disabled', caret: 'hide', ...options });
  assert.ok(statSync(path).size < IMAGE_BYTES_MAX, `${name} has ${statSync(path).size} bytes`);
}
