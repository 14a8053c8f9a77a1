// The client, as it is built for pages, driven by the commands of test/clients/README.md. Its
// argument is another built file: `halley-sse.min.js`, which only listens.

import { createInterface } from 'node:readline';
import ws from '../../../test/node_modules/ws/wrapper.mjs';

const { connect } = await import(`../dist/${process.argv[2] ?? 'halley.min.js'}`);

const tell = (line) => console.log(JSON.stringify(line));

let halley;
/** Who waits for a token, the oldest first. */
const asking = [];

function open(line) {
  const { url, user, cursor, token, tokens, transports, subjects, presence } = line;
  const { silence_ms: silenceMs } = line;
  const askToken = () => new Promise((give) => {
    asking.push(give);
    tell({ want: 'token' });
  });
  halley = connect(url, {
    WebSocket: ws, user, cursor, subjects, presence, token: tokens ? askToken : token,
    ...(transports && { transports }), ...(silenceMs && { silenceMs }),
  });
  halley.onState((state, why) => tell({ state, code: why?.code ?? null }));
  halley.onItem((item) => tell(item.id ? { event: item } : item));
}

/** Each event by itself; the answers in the order of the events. */
async function publishAll(events) {
  const results = await Promise.allSettled(events.map(({ subject, data, id, ack }) =>
    halley.publish(subject, data, { id, ack })));
  return results.map(({ value, reason }) => (value ? { id: value.id } : { error: reason.code }));
}

const operations = {
  publish: async ({ events }) => ({ results: await publishAll(events) }),
  follow: async ({ subject }) => ({ result: await halley.follow(subject) }),
  unfollow: async ({ subject }) => ({ result: await halley.unfollow(subject) }),
  subscribe: async ({ subject }) => ({ result: await halley.subscribe(subject) ?? true }),
  unsubscribe: async ({ subject }) => ({ result: await halley.unsubscribe(subject) ?? true }),
  watch: async ({ subject }) => ({ result: await halley.watch(subject) ?? true }),
  unwatch: async ({ subject }) => ({ result: await halley.unwatch(subject) ?? true }),
  say: async ({ data }) => ({ result: await halley.say(data) ?? true }),
  presence: async ({ user }) => ({ result: await halley.presence(user) }),
};

for await (const text of createInterface({ input: process.stdin })) {
  const line = JSON.parse(text);
  if (line.do === 'connect') open(line);
  else if (line.do === 'token') asking.shift()?.(line.token);
  else if (line.do === 'close') halley.close();
  else {
    operations[line.do](line).then(
      (done) => tell({ ref: line.ref, ...done }),
      (error) => tell({ ref: line.ref, error: error.code ?? error.message }),
    );
  }
}
process.exit();
