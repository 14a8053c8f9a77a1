// The real proxies with the blocks of docs/guides/proxies.md, in front of a Halley: ports, folders
// and certificates are put in, nothing else is changed.

import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { until } from './wait.mjs';

const GUIDE = new URL('../../docs/guides/proxies.md', import.meta.url);
const run = promisify(execFile);

/** The guide's block for a proxy; each of the `changes` must be found in it. */
function block(language, changes) {
  const text = readFileSync(GUIDE, 'utf8');
  const [, found] = new RegExp(`\`\`\`${language}\n(.*?)\`\`\``, 's').exec(text);
  return changes.reduce((config, [from, to]) => {
    assert.ok(config.includes(from), `${language}: the guide has ${from}`);
    return config.replaceAll(from, to);
  }, found);
}

/** The program, or what to do. */
async function program(name) {
  for (const folder of ['/usr/sbin', '/usr/bin']) {
    try {
      await run(join(folder, name), ['-v']);
      return join(folder, name);
    } catch (error) {
      if (error.code !== 'ENOENT') return join(folder, name);
    }
  }
  throw new Error(`${name} is missing: tools/install.sh test installs it`);
}

const KINDS = {
  nginx: {
    language: 'nginx',
    changes: ({ port, upstream, certificate, key, folder }) => [
      ['127.0.0.1:8080', upstream], ['listen 443', `listen 127.0.0.1:${port}`],
      ['/etc/ssl/app.pem', certificate], ['/etc/ssl/app.key', key], ['/var/log/nginx', folder],
    ],
    write: (config, { folder }) => `daemon off; pid ${folder}/pid; error_log ${folder}/main.log;
      events {} http { client_body_temp_path ${folder}/body; proxy_temp_path ${folder}/proxy;
      fastcgi_temp_path ${folder}/f; uwsgi_temp_path ${folder}/u; scgi_temp_path ${folder}/s;
      ${config} }`,
    args: ({ file, folder }) => ['-p', folder, '-c', file],
    reload: ({ child }) => child.kill('SIGHUP'),
  },
  haproxy: {
    language: 'haproxy',
    changes: ({ port, upstream, both }) => [
      ['127.0.0.1:8080', upstream], ['bind :443', `bind 127.0.0.1:${port}`],
      ['/etc/ssl/app-with-key.pem', both],
    ],
    write: (config) => config,
    args: ({ file }) => ['-W', '-db', '-f', file],
    reload: ({ child }) => child.kill('SIGUSR2'),
  },
  caddy: {
    language: 'caddyfile',
    changes: ({ port, upstream, certificate, key, folder }) => [
      ['127.0.0.1:8080', upstream],
      ['app.example.org {', `https://localhost:${port} {\n  bind 127.0.0.1\n`
        + `  tls ${certificate} ${key}`],
      ['/var/log/caddy', folder],
    ],
    // No HTTP/3: the port's number of UDP is the test's claim to it (`freePort`).
    write: (config, { folder }) => `{\n  admin unix/${folder}/admin\n  auto_https disable_redirects
  skip_install_trust\n  servers {\n    protocols h1 h2\n  }\n}\n${config}`,
    args: ({ file }) => ['run', '--adapter', 'caddyfile', '--config', file],
    reload: ({ path, file, folder }) => run(path, ['reload', '--adapter', 'caddyfile', '--config',
      file, '--address', `unix/${folder}/admin`, '--force']),
  },
};

export const PROXIES = Object.keys(KINDS);

const isListening = (port) => new Promise((resolve) => {
  const socket = connect(port, '127.0.0.1', () => {
    socket.destroy();
    resolve(true);
  });
  socket.on('error', () => resolve(false));
});

/** Starts one; gives `{url, log(), reload(), stop()}`. */
export async function startProxy(name, { folder, port, upstream, certificates }) {
  const kind = KINDS[name];
  const place = join(folder, name);
  mkdirSync(place);
  const certificate = certificates.file('server.pem');
  const key = certificates.file('server.key');
  const both = join(place, 'both.pem');
  writeFileSync(both, readFileSync(certificate, 'utf8') + readFileSync(key, 'utf8'));
  const file = join(place, 'config');
  const here = { folder: place, file, port, upstream, certificate, key, both,
    path: await program(name) };
  writeFileSync(file, kind.write(block(kind.language, kind.changes(here)), here));
  const env = { ...process.env, HOME: place, XDG_DATA_HOME: place, XDG_CONFIG_HOME: place };
  const child = spawn(here.path, kind.args(here), { env, stdio: ['ignore', 'pipe', 'pipe'] });
  let output = '';
  for (const stream of [child.stdout, child.stderr]) {
    stream.on('data', (data) => { output += data; });
  }
  const ended = once(child, 'exit');
  await until(`${name} listens`, async () => {
    assert.equal(child.exitCode, null, `${name} has ended: ${output}`);
    return isListening(port);
  });
  const log = () => {
    try {
      return output + readFileSync(join(place, 'halley.log'), 'utf8');
    } catch {
      return output;
    }
  };
  return { url: `https://localhost:${port}`, log,
    reload: () => kind.reload({ ...here, child }),
    stop: async () => {
      child.kill('SIGTERM');
      setTimeout(() => child.kill('SIGKILL'), 5_000).unref();
      await ended;
    } };
}
