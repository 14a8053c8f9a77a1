// docs/guides/proxies.md: the blocks that it shows, run by the real proxies. Everything that a
// client does works with them, and their logs have no token.

import assert from 'node:assert/strict';
import { connect } from 'node:http2';
import { join } from 'node:path';
import { before } from 'node:test';
import { api, http } from '../lib/client.mjs';
import { Certificates } from '../lib/certificates.mjs';
import { freePort, test } from '../lib/halley.mjs';
import { PROXIES, startProxy } from '../lib/proxies.mjs';
import { ask, ndjson, poll, sse, ws } from '../lib/streams.mjs';
import { bearer, makeKey, mint } from '../lib/token.mjs';
import { tls } from '../lib/trust.mjs';
import { until } from '../lib/wait.mjs';
import { endAfter, startWithTokens } from '../lib/world.mjs';

const CONNECTIONS_MAX = 3;
const key = makeKey('EdDSA', 'a');
const token = mint(key, { sub: 'ann', halley: { publish: ['*'], subscribe: ['*'] } });
const proxies = {};
let halley;
before(async () => {
  halley = await startWithTokens(key, {
    HALLEY_PROXY_TRUSTED: '127.0.0.1', HALLEY_PROXY_FORWARDED_FOR: 'on',
    HALLEY_LIMITS_CONNECTIONS_PER_ADDRESS_MAX: `${CONNECTIONS_MAX}`,
    HALLEY_LIMITS_SESSIONS_PER_USER_MAX: '100',
  });
  const certificates = new Certificates(join(halley.folder, 'certificates'));
  Object.assign(tls, { rejectUnauthorized: false });
  for (const name of PROXIES) {
    proxies[name] = await startProxy(name, { folder: halley.folder, port: await freePort(),
      upstream: `127.0.0.1:${halley.publicPort}`, certificates });
  }
});
endAfter(() => [...Object.values(proxies), halley]);

/** What `sse` and the others take for a Halley: the one behind the proxy. */
const behind = (name) => ({ publicUrl: proxies[name].url });
const publish = async (data) => {
  const answer = await api(halley, 'POST', '/v1/events', { subject: 'ann', data });
  assert.equal(answer.status, 200, answer.body);
};

for (const name of PROXIES) {
  const query = { token };

  test(`${name}: streams as they come, on every transport`, async () => {
    for (const opening of [sse, ndjson, ws]) {
      const stream = await opening(behind(name), query);
      for (const n of [1, 2]) {
        await publish(n);
        assert.equal((await stream.event(`${opening.name} ${n}`)).data, n);
      }
      stream.close();
    }
    const { cursor } = await poll(behind(name), query, { timeout: 0 });
    const waiting = poll(behind(name), query, { cursor, timeout: 25 });
    await publish('polled');
    assert.deepEqual((await waiting).events.map(({ data }) => data), ['polled']);
  });

  test(`${name}: many streams over one connection of HTTP/2`, async () => {
    const session = connect(proxies[name].url, { rejectUnauthorized: false });
    const streams = [1, 2, 3].map(() => session.request({ ':path': `/v1/stream?token=${token}` }));
    const texts = streams.map((stream) => {
      const read = { text: '' };
      stream.setEncoding('utf8').on('data', (text) => { read.text += text; });
      return read;
    });
    const all = (wanted) => until(wanted, () => texts.every(({ text }) => text.includes(wanted)));
    await all(': welcome');
    await publish('over HTTP/2');
    await all('over HTTP/2');
    session.destroy();
  });

  test(`${name}: operations and requests`, async () => {
    const stream = await ws(behind(name), query);
    const { ok } = await ask(stream, { op: 'publish', subject: 'ann', data: 'op' });
    assert.ok(ok.id);
    assert.equal((await stream.event()).data, 'op');
    const body = JSON.stringify({ subject: 'ann', data: 'posted' });
    const headers = { ...bearer(token), 'content-type': 'application/json' };
    const answer = await http('POST', `${proxies[name].url}/v1/me/events`, { body, headers });
    assert.equal(answer.status, 200, answer.body);
    assert.equal((await stream.event()).data, 'posted');
    stream.close();
  });

  test(`${name}: a page of the same origin is no foreign one`, async () => {
    const { url } = proxies[name];
    const stream = await ws(behind(name), query, { origin: url });
    stream.close();
    const foreign = ws(behind(name), query, { origin: 'https://evil.example.org' });
    await assert.rejects(foreign, /403/);
  });

  test(`${name}: the client's address is its own, whatever it says`, async () => {
    const from = (address, says) => ws(behind(name), query, { localAddress: address,
      headers: says ? { 'x-forwarded-for': says } : {} });
    const open = [];
    for (let n = 0; n < CONNECTIONS_MAX; n += 1) open.push(await from('127.0.0.2'));
    await assert.rejects(from('127.0.0.2'), /429/);
    await assert.rejects(from('127.0.0.2', '9.9.9.9'), /429/);
    open.push(await from('127.0.0.3'));
    open.forEach((stream) => stream.close());
    await until('the places are free again', async () => {
      const next = await from('127.0.0.2').catch(() => undefined);
      next?.close();
      return next;
    });
  });

  test(`${name}: a reload loses nothing`, async () => {
    for (const opening of [sse, ws]) {
      const stream = await opening(behind(name), query);
      await stream.place();
      await proxies[name].reload();
      await publish('during');
      const next = await until('it serves', () =>
        opening(behind(name), query, {}, stream.cursors[0]).catch(() => undefined));
      assert.equal((await next.event('behind a reload')).data, 'during');
      stream.close();
      next.close();
    }
  });

  test(`${name}: no token in its log`, async () => {
    await until('the log has the requests', () => proxies[name].log().includes('/v1/me/events'));
    const log = proxies[name].log();
    assert.ok(!log.includes(token.slice(-40)), log.slice(0, 2_000));
  });
}
