// The two servers of the 2008 articles, written anew in bench/baseline: Erlang on mochiweb, and C
// on libevent. Both are compiled when they are started. And `apps/halley_mochiweb`, the first one's
// design on today's brain.

import { existsSync, readdirSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { join } from 'node:path';
import { freePort } from '../../test/lib/halley.mjs';
import { command, environment } from '../../test/lib/mochiweb.mjs';
import { post } from '../lib/groups.mjs';
import { follows } from './lib/channels.mjs';
import { file, packaged, program } from './lib/needs.mjs';
import { CONNECTIONS_SPARE, Program, prepare, scratch, url } from './lib/program.mjs';

const SOURCES = fileURLToPath(new URL('../baseline/', import.meta.url));
const MOCHIWEB = '/usr/lib/erlang/lib/mochiweb/ebin/mochiweb.beam';
const EVHTTP = '/usr/include/event2/http.h';

// https://www.erlang.org/docs/25/man/erl.html. No busy waiting, which would take the cores from the
// clients; the limits of ports and processes; Mnesia's two as the article sets them.
const emulator = (plan) => [
  '+sbwt', 'none', '+sbwtdcpu', 'none', '+sbwtdio', 'none', '+S', `${plan.workers}`,
  '+Q', `${Math.max(65_536, 2 * (plan.connections + CONNECTIONS_SPARE))}`, '+P', '1048576',
];

const flags = (plan, folder) => [
  ...emulator(plan), '-noinput', '-pa', folder,
  '-mnesia', 'dir', JSON.stringify(join(folder, 'mnesia')),
  '-mnesia', 'dump_log_write_threshold', '50000', '-mnesia', 'dc_dump_limit', '40',
];

const comet = (title, env) => ({
  title,
  needs: [file('erlang-mochiweb', MOCHIWEB), program('erlang-base', 'which', 'erl', 'erlc')],
  version: () => packaged('erlang-mochiweb'),
  async start(plan) {
    const [folder, port] = [scratch(), await freePort()];
    const modules = readdirSync(SOURCES).filter((name) => name.endsWith('.erl'));
    prepare('erlc', '-o', folder, ...modules.map((name) => join(SOURCES, name)));
    const server = new Program(folder, 'erl',
      [...flags(plan, folder), '-run', 'comet', 'start', `${port}`], env);
    await server.ready(port);
    return {
      follow: () => post(`${url(port)}/follows`, follows(plan.connections)),
      pids: () => server.pids(),
      clients: ['--speak', 'chunked', '--url', url(port), '--path', '/test/{user}'],
      publish: ['--speak', 'chunked', '--url', url(port)],
      stop: () => server.stop(),
    };
  },
});

export const mochiweb = comet("The article's Erlang on mochiweb (chunked)", {});
export const awake = comet("The article's Erlang on mochiweb, without hibernation",
  { COMET_AWAKE: '1' });

export const evhttp = {
  title: "The article's C on libevent (chunked)",
  needs: [file('libevent-dev', EVHTTP), program('gcc', 'gcc', '--version')],
  version: () => packaged('libevent-dev'),
  async start() {
    const [folder, port] = [scratch(), await freePort()];
    const binary = join(folder, 'httpd');
    prepare('gcc', '-O2', '-Wall', '-Wextra', '-o', binary, join(SOURCES, 'httpd.c'), '-levent');
    const server = new Program(folder, binary, [`${port}`]);
    await server.ready(port);
    return {
      pids: () => server.pids(),
      clients: ['--speak', 'chunked', '--url', url(port), '--path', '/test/{user}/{channel}'],
      publish: ['--speak', 'chunked', '--url', url(port)],
      stop: () => server.stop(),
    };
  },
};

export const halleyMochiweb = {
  title: 'Halley on mochiweb (SSE)',
  needs: [file('erlang-mochiweb', MOCHIWEB), {
    what: 'apps/halley_mochiweb: rebar3 compile',
    is: () => existsSync(join(environment.ERL_LIBS, 'halley_mochiweb')),
  }],
  version: () => packaged('erlang-mochiweb'),
  async start(plan) {
    const [folder, publicPort, apiPort] = [scratch(), await freePort(), await freePort()];
    const [erl, ...words] = command({ folder, publicPort, apiPort,
      settings: { HALLEY_DATA_DIR: join(folder, 'data') } });
    const server = new Program(folder, erl, [...emulator(plan), ...words], environment);
    await server.ready(publicPort, apiPort);
    return {
      follow: () => post(`${url(apiPort)}/v1/follows`, follows(plan.connections)),
      pids: () => server.pids(),
      clients: ['--speak', 'halley', '--url', url(publicPort), '--transport', 'sse'],
      publish: ['--speak', 'halley', '--url', url(apiPort)],
      stop: () => server.stop(),
    };
  },
};
