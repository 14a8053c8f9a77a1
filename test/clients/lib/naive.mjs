// An adapter of a client that does everything wrong: it comes back at once, wherever it was, shows
// what it gets, and knows server-sent events alone. The suite must see it (suite.test.mjs).

import { createInterface } from 'node:readline';

const tell = (line) => console.log(JSON.stringify(line));

async function stream(url) {
  const response = await fetch(`${url}/v1/stream?user=bob`);
  tell({ state: 'open', code: null });
  let rest = '';
  for await (const bytes of response.body) {
    const blocks = (rest + Buffer.from(bytes).toString()).split('\n\n');
    rest = blocks.pop();
    for (const block of blocks) {
      const data = /^data: (.*)$/m.exec(block)?.[1];
      if (data !== undefined && 'subject' in JSON.parse(data)) {
        const { id, subject, at, data: what } = JSON.parse(data);
        tell({ event: { id, subject, at, data: what } });
      }
    }
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  const command = JSON.parse(line);
  if (command.do === 'connect') {
    (async () => {
      for (;;) await stream(command.url).catch(() => {});
    })();
  }
}
process.exit();
