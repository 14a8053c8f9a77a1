// The client is loaded once; each story has a world of its own.

import { globals as ofBrowser } from './browser.mjs';
import { load } from './code.mjs';
import { globals as ofNetwork } from './network.mjs';
import { Story } from './story.mjs';

/**
 * Gives what tells the story of a seed: `{ story, faults }`. `changes` are planted in the client,
 * `lies` in the server.
 */
export function tellOf({ changes, lies, saysMore } = {}) {
  const world = {};
  const network = ofNetwork(world);
  const { WebSocket } = network;
  const { connect } = load({ ...ofBrowser(world), ...network }, changes);
  const rejections = [];
  process.on('unhandledRejection', (error) => rejections.push(`unhandled: ${error?.stack}`));
  return async (seed) => {
    const story = new Story(seed, { connect, WebSocket, world, lies, saysMore });
    let faults;
    // In a turn of its own: within a promise's, those of the client would have to wait.
    await new Promise((done) => {
      setImmediate(() => {
        try {
          faults = story.run();
        } catch (error) {
          faults = [error.message];
        }
        done();
      });
    });
    // A rejection that nobody handles is told in the next turn.
    await new Promise((done) => { setImmediate(done); });
    return { story, faults: [...faults, ...rejections.splice(0)] };
  };
}
