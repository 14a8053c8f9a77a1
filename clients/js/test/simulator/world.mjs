// A world for one test: the client in tabs that the test opens, in a time that it passes.

import { Browser, globals as ofBrowser } from './browser.mjs';
import { Clock, chanceOf } from './clock.mjs';
import { load } from './code.mjs';
import { Network, globals as ofNetwork } from './network.mjs';
import { Server } from './server.mjs';

const LATENCY_MS = 40;

/** `act` with a world, in a turn of its own: within a promise's the client's would have to wait. */
export const inWorld = (act, options = {}) => () => new Promise((done, fail) => {
  setImmediate(() => {
    try {
      act(worldOf(options));
      done();
    } catch (error) {
      fail(error);
    }
  });
});

function worldOf({ browser, server }) {
  const clock = new Clock();
  const chance = chanceOf(1);
  const world = { clock, chance, setMs: 0, browser: new Browser(clock, chance, browser) };
  world.server = new Server(clock, chance, server);
  world.network = new Network(clock, chance, world.server, LATENCY_MS);
  const network = ofNetwork(world);
  const { connect } = load({ ...ofBrowser(world), ...network });
  return Object.assign(world, {
    pass: (ms) => clock.runUntil(clock.now + ms),
    /** A tab with a client: what it shows, is told and asks for. Its locks may take `lockMs`. */
    open({ lockMs, ...options } = {}) {
      const { WebSocket } = network;
      const tab = Object.assign(world.browser.open(), { lockMs });
      const page = { tab, shown: [], states: [], asked: [] };
      const fetch = (url, init = {}) => {
        page.asked.push(`${init.method ?? 'GET'} ${new URL(url).pathname}`);
        return network.fetch(url, init);
      };
      tab.run(() => {
        page.halley = connect('https://halley', { user: 'me', WebSocket, fetch, ...options });
        page.halley.onEvent(({ data }) => page.shown.push(data));
        page.halley.onState((state, why) => page.states.push(why ? `${state} ${why.code}` : state));
      });
      return page;
    },
    /** How a promise ends that a page asks for: `done`, or a code. */
    ends(page, ask) {
      const one = {};
      page.tab.run(() => ask(page.halley).then(
        () => { one.is = 'done'; }, ({ code }) => { one.is = code; }));
      return one;
    },
  });
}
