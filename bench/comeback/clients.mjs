// Some of the clients of `run`: as many clients of clients/js as its parent says, in one process.
//
// It notes when each tried, when each was open, and which numbers each was shown. It judges
// nothing.

import ws from '../../test/node_modules/ws/wrapper.mjs';
import { connect } from '../../clients/js/dist/halley.min.js';

const attempts = { websocket: [], stream: [] };
const clients = [];

class Counted extends ws {
  constructor(url) {
    attempts.websocket.push(Date.now());
    super(url);
  }
}

function countedFetch(url, init) {
  if (String(url).includes('/v1/stream')) attempts.stream.push(Date.now());
  return fetch(url, init);
}

function open(url, user) {
  const one = { numbers: [], opened: [], gaps: 0 };
  one.halley = connect(url, { user, WebSocket: Counted, fetch: countedFetch });
  one.halley.onState((state) => { if (state === 'open') one.opened.push(Date.now()); });
  one.halley.on('news', ({ data }) => one.numbers.push(data));
  one.halley.onGap(() => { one.gaps += 1; });
  clients.push(one);
}

const isOpen = ({ halley }) => halley.state === 'open';

process.on('message', ({ say, url, users, last }) => {
  if (say === 'connect') for (const user of users) open(url, user);
  else if (say === 'state') {
    process.send({
      open: clients.filter(isOpen).length,
      whole: clients.filter(({ numbers }) => numbers.at(-1) === last).length,
      transports: clients.map(({ halley }) => halley.transport),
    });
  } else if (say === 'report') {
    process.send({
      attempts, opened: clients.flatMap(({ opened }) => opened.slice(1)),
      seen: clients.map(({ numbers }) => numbers), gaps: clients.map(({ gaps }) => gaps),
    });
  } else process.exit();
});
