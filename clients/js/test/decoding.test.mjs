// Behind nginx with a path in `proxy_pass`, which decodes `%2F` in paths: ids with a slash, and
// more subjects than an address holds, on every transport (protocol/http.md 28).

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before } from 'node:test';
import { http, publish } from '../../../test/lib/client.mjs';
import { freePort, start, test } from '../../../test/lib/halley.mjs';
import { until } from '../../../test/lib/wait.mjs';
import { client, reaches } from './lib/world.mjs';

const LONG_MS = 10_000;
const MANY = Array.from({ length: 100 }, (_, n) => `${n}`.padStart(100, 'room/'));

let halley;
let nginx;
let url;
before(async () => {
  halley = await start();
  const port = await freePort();
  const folder = join(halley.folder, 'nginx');
  mkdirSync(folder);
  const temporary = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi']
    .map((what) => `${what}_temp_path ${folder}/${what};`).join(' ');
  writeFileSync(join(folder, 'config'), `daemon off; master_process off;
    pid ${folder}/pid; error_log ${folder}/log;
    events {} http { access_log off; ${temporary} server { listen 127.0.0.1:${port};
      location /push/ {
        proxy_pass http://127.0.0.1:${halley.publicPort}/;
        proxy_http_version 1.1;
        proxy_set_header Upgrade $http_upgrade;
        proxy_set_header Connection upgrade;
      } } }`);
  nginx = spawn('/usr/sbin/nginx', ['-p', folder, '-c', join(folder, 'config')],
    { stdio: 'ignore' });
  url = `http://127.0.0.1:${port}/push`;
  await until('nginx listens', () => http('GET', `${url}/v1/poll?timeout=0&user=u`)
    .then(({ status }) => status === 200, () => false));
});
after(async () => {
  const ended = nginx && once(nginx, 'exit');
  nginx?.kill('SIGTERM');
  await ended;
  await halley?.stop();
});

test('this proxy makes two segments of an id with a slash', async () => {
  assert.equal((await http('PUT', `${url}/v1/me/follows/room%2F7?user=u`)).status, 404);
  assert.equal((await http('PUT', `${url}/v1/me/follows?subject=room%2F7&user=u`)).status, 200);
});

for (const name of ['websocket', 'sse', 'ndjson', 'poll']) {
  test(`${name}: ids with a slash, and a hundred subjects of a hundred bytes`, async () => {
    const one = client(url, { user: `u/${name}`, transports: [name] });
    await reaches(one, 'open');
    assert.deepEqual(await one.halley.follow(`room/${name}`), { added: 1, already: 0 });
    assert.equal((await one.halley.presence(`u/${name}`)).user, `u/${name}`);
    await publish(halley, `room/${name}`, 'followed');
    assert.equal((await one.items.next()).data, 'followed');
    assert.deepEqual(await one.halley.unfollow(`room/${name}`), { removed: 1, absent: 0 });
    one.halley.close();

    const many = client(url, { user: `m/${name}`, transports: [name], subjects: MANY });
    await reaches(many, 'open');
    const datas = [];
    for (const n of [0, 50, 99]) datas.push(await said(MANY[n], `${name} ${n}`));
    const items = await many.items.take(3, 'events', LONG_MS);
    assert.deepEqual(items.map(({ data }) => data), datas);
    many.halley.close();
  });
}

/** Publishes `data`, and gives it back. */
async function said(subject, data) {
  await publish(halley, subject, data);
  return data;
}

test('websocket: a hundred subjects in band', async () => {
  const one = client(url, { user: 'in-band' });
  await reaches(one, 'open');
  assert.equal(one.halley.transport, 'websocket');
  await Promise.all(MANY.map((subject) => one.halley.subscribe(subject)));
  await said(MANY[99], 'the last');
  assert.equal((await one.items.next()).data, 'the last');
  assert.equal(one.halley.transport, 'websocket');
  one.halley.close();
});
