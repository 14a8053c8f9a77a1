// The price of an open console for the server, and how soon it shows something.
//
// The console does what its busiest page does: it follows the status, which has each second's
// sample, and asks for the busiest subjects every two seconds. One of them costs less than windows
// of the same load differ from each other, so many are there at once, without and with them in
// turns, and the difference is divided by how many they are. The shards' counting while there are
// readers doesn't grow with their number: that is measured by itself (bench/console.escript) and
// added. The first view is timed in Chromium, from the address to numbers on the page, each time as
// for a new visitor.

import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { request } from 'node:http';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { openBrowser } from '../../test/lib/browser.mjs';
import { http } from '../../test/lib/client.mjs';
import { sleep } from '../../test/lib/wait.mjs';
import { FOLLOWERS } from './crowd.mjs';
import { EVENTS_PER_S, post, window } from './groups.mjs';
import { Clients, load } from './load.mjs';
import { cpuDuring } from './process.mjs';
import { say } from './say.mjs';
import { fixed, latencies, median, whole } from './words.mjs';

const QUIET_S = 4;
const TOP_MS = 2_000;
const VIEWS = 5;
const CONSOLES = 32;
/** Until each has the samples of the last minutes, and is sent new ones alone. */
const BEGUN_MS = 2_000;
/** The shards show once a second what they have counted. */
const SHARDS = 8;
const ROOT = fileURLToPath(new URL('../..', import.meta.url));

/** What the page does, until `stop`: it follows the status, and asks for the busiest subjects. */
class Console {
  #ended = false;
  #stream;

  constructor(halley) {
    this.#stream = request(`${halley.apiUrl}/v1/status/stream`, (answer) => {
      if (answer.statusCode !== 200) throw new Error(`the status: ${answer.statusCode}`);
      answer.on('error', () => {}).resume();
    });
    this.#stream.on('error', (error) => {
      if (!this.#ended) throw error;
    });
    this.#stream.end();
    this.#top(halley);
  }

  async #top(halley) {
    while (!this.#ended) {
      await http('GET', `${halley.apiUrl}/v1/top`);
      await sleep(TOP_MS);
    }
  }

  stop() {
    this.#ended = true;
    this.#stream.destroy();
  }
}

/** The same without and with many consoles, in turns; who goes first changes with the round. */
async function inTurns(halley, round, measure) {
  const open = async () => {
    const consoles = Array.from({ length: CONSOLES }, () => new Console(halley));
    await sleep(BEGUN_MS);
    const measured = await measure();
    for (const one of consoles) one.stop();
    return measured;
  };
  if (round % 2 === 1) return { without: await measure(), beside: await open() };
  const beside = await open();
  return { beside, without: await measure() };
}

/** Processor seconds that the shards need in a second to count, at the rate of the load. */
function counting(subjects) {
  const told = JSON.parse(execFileSync('escript', [join(ROOT, 'bench/console.escript'),
    `${EVENTS_PER_S}`, `${subjects}`, `${FOLLOWERS}`], { encoding: 'utf8',
    env: { ...process.env, ERL_LIBS: join(ROOT, '_build/default/lib') } }));
  const perEvent = told.with_us - told.without_us;
  return (perEvent * EVENTS_PER_S + told.show_us * SHARDS) / 1e6;
}

async function firstViews(halley) {
  const browser = await openBrowser();
  const times = [];
  for (let view = 0; view < VIEWS; view += 1) {
    const context = await browser.newContext();
    const page = await context.newPage();
    const began = performance.now();
    await page.goto(`${halley.apiUrl}/console`);
    await page.locator('.tile-value').filter({ hasText: /\d/ }).first().waitFor();
    await page.locator('.chart canvas').first().waitFor();
    times.push(performance.now() - began);
    await context.close();
  }
  await browser.close();
  return times;
}

export async function consoleOpen(halley, plan, folder) {
  const count = Math.ceil(plan.connections / FOLLOWERS);
  const file = join(folder, 'groups.txt');
  await load('graph', '--groups', `${count}`, '--size', `${FOLLOWERS}`, '--out', file);
  await post(`${halley.apiUrl}/v1/follows`, readFileSync(file));
  say(`console: first view, ${VIEWS} times`);
  const views = await firstViews(halley);
  const clients = new Clients('--url', halley.publicUrl, '--connections', `${plan.connections}`);
  const connected = await clients.ask('ready');
  const seconds = Math.max(2, Math.round(plan.seconds / plan.rounds));
  const publish = () => load('publish', '--url', halley.apiUrl, '--subjects', `groups:${count}`,
    '--rate', `${EVENTS_PER_S}`, '--seconds', `${seconds}`);
  const [quiet, loaded] = [[], []];
  for (let round = 1; round <= plan.rounds; round += 1) {
    say(`console: round ${round} of ${plan.rounds}`);
    quiet.push(await inTurns(halley, round,
      async () => (await cpuDuring(halley, () => sleep(1000 * QUIET_S))).cpu));
    loaded.push(await inTurns(halley, round, () => window(halley, clients, publish)));
  }
  await clients.quit();
  say('console: what counting costs the shards');
  // A window of `window` is a second longer than its publishing.
  return { connected, views, seconds: { quiet: QUIET_S, loaded: seconds + 1 }, quiet, loaded,
    counting: counting(count) };
}

export function consoleRows(plan, { connected, views, seconds, quiet, loaded, counting: shards }) {
  const both = (cpu) => cpu.brain + cpu.edge;
  const percent = (share) => `${fixed(100 * share)} %`;
  const costs = (windows, of, s) => {
    const [without, beside] = ['without', 'beside'].map((name) =>
      windows.map((window) => both(of(window[name])) / s));
    const each = beside.map((share, n) => (share - without[n]) / CONSOLES);
    return { shares: `${percent(median(without))}, ${percent(median(beside))}`, each };
  };
  const [atRest, atRate] = [costs(quiet, (w) => w, seconds.quiet),
    costs(loaded, (w) => w.cpu, seconds.loaded)];
  const latency = (name) => latencies(loaded.map((w) => w[name].received.latency_ms));
  const between = (each) => `${percent(median(each))} (${percent(Math.min(...each))} to `
    + `${percent(Math.max(...each))} by round)`;
  return [
    ['first view, median and most', `${whole(median(views))} ms, ${whole(Math.max(...views))} ms`,
      'at most 1,000 ms'],
    ['connections, deliveries/s', `${whole(connected.connected)}, `
      + `${whole(EVENTS_PER_S * FOLLOWERS)}`, ''],
    [`brain and edge at rest, without and with ${CONSOLES} consoles, of a core`, atRest.shares, ''],
    ['for one of them', between(atRest.each), 'at most 1 %'],
    [`at that rate, without and with ${CONSOLES}`, atRate.shares, ''],
    ['for one of them', between(atRate.each), ''],
    ['the shards count, at that rate', percent(shards), ''],
    ['one console at that rate, with the counting', percent(median(atRate.each) + shards),
      'at most 1 %'],
    ['latency p50 / p99, without', latency('without'), ''],
    [`with ${CONSOLES}`, latency('beside'), ''],
  ];
}
