// Every way to log in to PostgreSQL (docs/guides/postgres.md), as an operator would do it: every
// method of pg_hba.conf, passwords with any letters by URL, file and environment, TLS with and
// without a certificate of Halley's own, sockets, and names beyond ASCII. And the messages when it
// doesn't work.

import assert from 'node:assert/strict';
import { chownSync, cpSync, mkdirSync, mkdtempSync, rmSync, statSync, writeFileSync }
  from 'node:fs';
import { tmpdir, userInfo } from 'node:os';
import { dirname, join } from 'node:path';
import { after, before } from 'node:test';
import { Postgres } from '../../examples/postgres/postgres.mjs';
import { api } from '../lib/client.mjs';
import { Certificates } from '../lib/certificates.mjs';
import { prepare, scratchFile, test } from '../lib/halley.mjs';
import { metric } from '../lib/metrics.mjs';
import { closeStreams, sse } from '../lib/streams.mjs';
import { until } from '../lib/wait.mjs';

const ALL_IS_THERE = 'PostgreSQL has all that is needed\n';
const OS_USER = userInfo().username;
const ODD = 'bœuf à l’ö';
// RFC 4013: Roman nine is IX, a no-break space is a space, a soft hyphen is nothing.
const PASSWORDS = ['simple', 'p@ss:w/rd?#[]%25', ' two  words ', "quote'\"\\$&+=,;", 'é', 'e\u0301',
  '\u2168\u00a0\u00adé', 'пароль', '密碼🔑', 'שלום1 e\u0301', '🔑e\u0301'];

let postgres;
let certificates;
let folder;

before(async () => {
  postgres = await Postgres.start(['max_wal_senders = 20', 'max_replication_slots = 20']);
  folder = mkdtempSync(join(tmpdir(), 'halley-login-'));
  certificates = new Certificates(join(folder, 'certificates'));
  certificates.sign('certified', 'ca');
  certificates.sign('somebody', 'ca');
  certificates.authority('other');
  const data = dirname(postgres.sql('SHOW config_file'));
  const { uid, gid } = statSync(data);
  for (const name of ['ca.pem', 'server.pem', 'server.key']) {
    cpSync(certificates.file(name), join(data, name));
    chownSync(join(data, name), uid, gid);
  }
  const socket = '127.0.0.1/32';
  writeFileSync(join(data, 'pg_hba.conf'), [
    'local all shop trust', 'local all peered peer map=os', 'local all all scram-sha-256',
    `host all shop,trusted ${socket} trust`, `host all scram ${socket} scram-sha-256`,
    `host all hashed ${socket} md5`, `host all clear ${socket} password`,
    `hostssl all tls ${socket} scram-sha-256`,
    `hostssl all twofold ${socket} scram-sha-256 clientcert=verify-full`,
    `hostssl all certified ${socket} cert`, `host all refused ${socket} reject`,
    `host all "${ODD}" ${socket} scram-sha-256`, ''].join('\n'));
  writeFileSync(join(data, 'pg_ident.conf'), `os "${OS_USER}" peered\n`);
  postgres.sql("ALTER SYSTEM SET ssl = on; ALTER SYSTEM SET ssl_ca_file = 'ca.pem'; "
    + "ALTER SYSTEM SET ssl_cert_file = 'server.pem'; "
    + "ALTER SYSTEM SET ssl_key_file = 'server.key'");
  postgres.sql('SELECT pg_reload_conf()');
  for (const role of ['trusted', 'scram', 'clear', 'tls', 'twofold', 'certified', 'refused',
    'peered', 'unlisted', `"${ODD}"`]) {
    postgres.sql(`CREATE ROLE ${role} LOGIN SUPERUSER PASSWORD 'simple'`);
  }
  postgres.sql('SET password_encryption = md5; '
    + "CREATE ROLE hashed LOGIN SUPERUSER PASSWORD 'simple'");
  postgres.sql(`CREATE DATABASE "${ODD}"`);
  await until('it has TLS', () => postgres.sql('SHOW ssl') === 'on');
  const halley = await prepare({ settings: environment({ URL: postgres.url }) });
  assert.equal((await halley.command('postgres', 'setup')).code, 0);
  halley.remove();
});

after(async () => {
  closeStreams();
  await postgres?.stop();
  if (folder !== undefined) rmSync(folder, { recursive: true });
});

/** `{URL: ...}` as HALLEY_POSTGRES_URL, beside what every case has. */
const environment = (keys) => ({
  HALLEY_POSTGRES_PUBLISH: 'on',
  ...Object.fromEntries(Object.entries(keys).map(([key, value]) =>
    [`HALLEY_POSTGRES_${key}`, String(value)])),
});

const url = (role, password, more = '') =>
  `postgres://${role}:${encodeURIComponent(password)}@127.0.0.1:${postgres.port}/postgres${more}`;

const keys = (role) => ({ HOST: '127.0.0.1', PORT: postgres.port, USER: role, TLS: 'off' });

const secure = (role) => ({ HOST: 'localhost', PORT: postgres.port, USER: role, TLS: 'on',
  TLS_CA: certificates.file('ca.pem') });

const own = (name) => ({ TLS_CERTIFICATE: certificates.file(`${name}.pem`),
  TLS_KEY: certificates.file(`${name}.key`) });

async function check(options) {
  const halley = await prepare(options);
  if (options.conf !== undefined) scratchFile(halley, 'halley.conf', options.conf);
  try {
    return await halley.command('postgres', 'check');
  } finally {
    halley.remove();
  }
}

async function works(what, options) {
  const said = await check(options);
  assert.deepEqual([what, said], [what, { code: 0, stdout: ALL_IS_THERE, stderr: '' }]);
}

/** One line on stderr, which no term and no password is in. */
async function fails(what, options, pattern) {
  const { code, stdout, stderr } = await check(options);
  assert.deepEqual([what, code, stdout], [what, 1, '']);
  assert.match(stderr, /^halley: [^\n]*\n$/, what);
  assert.match(stderr, pattern, what);
  assert.doesNotMatch(stderr, /do_boot|#Fun|\{|guess/, what);
}

/** SQL that makes it the role's password, whatever letters it has. */
function setPassword(role, password, encryption = 'scram-sha-256') {
  postgres.sql(`SET password_encryption = '${encryption}'; ALTER ROLE ${role} PASSWORD :'password'`,
    { password });
}

test('every method of pg_hba.conf, by URL, by keys and by a file', async () => {
  for (const role of ['scram', 'hashed', 'clear']) {
    await works(`${role} by URL`, { settings: environment({ URL: url(role, 'simple') }) });
    const file = join(folder, `password-${role}`);
    writeFileSync(file, 'simple\n');
    await works(`${role} by file`, {
      settings: environment({ ...keys(role), PASSWORD_FILE: file }) });
  }
  await works('trust', { settings: environment(keys('trusted')) });
  await works('trust, with a password that nobody asks for', {
    settings: environment({ URL: url('trusted', 'any') }) });
});

test('a password may have any letters', async () => {
  for (const password of PASSWORDS) {
    for (const [role, encryption] of [['scram', 'scram-sha-256'], ['hashed', 'md5']]) {
      setPassword(role, password, encryption);
    }
    const what = JSON.stringify(password);
    await works(`${what}, URL in the environment`, {
      settings: environment({ URL: url('scram', password) }) });
    await works(`${what}, URL in the file, md5`, {
      conf: `postgres.publish = on\npostgres.url = ${url('hashed', password)} # a comment\n`,
    });
    const file = join(folder, 'password-odd');
    writeFileSync(file, `${password}\r\n`);
    await works(`${what}, password file`, {
      settings: environment({ ...keys('scram'), PASSWORD_FILE: file }) });
  }
  setPassword('scram', 'é ü');
  // As psql takes it.
  await works('letters beyond ASCII in halley.conf as they are', { conf: 'postgres.publish = on\n'
    + `postgres.url = postgres://scram:é%20ü@127.0.0.1:${postgres.port}/postgres\n` });
  setPassword('scram', 'simple');
  setPassword('hashed', 'simple', 'md5');
});

test('TLS, with and without a certificate of its own', async () => {
  const file = join(folder, 'password-tls');
  writeFileSync(file, 'simple');
  await works('a password over TLS', {
    settings: environment({ ...secure('tls'), PASSWORD_FILE: file }) });
  await works('by sslmode', { settings: environment({ TLS_CA: certificates.file('ca.pem'),
    URL: url('tls', 'simple', '?sslmode=verify-full').replace('127.0.0.1', 'localhost') }) });
  await works('a certificate', {
    settings: environment({ ...secure('certified'), ...own('certified') }) });
  certificates.sign('twofold', 'ca');
  await works('a password and a certificate', {
    settings: environment({ ...secure('twofold'), ...own('twofold'), PASSWORD_FILE: file }) });

  const cases = [
    ['no certificate', { ...secure('certified') },
      /set postgres\.tls_certificate and postgres\.tls_key/],
    ['the certificate of somebody', { ...secure('certified'), ...own('somebody') },
      /postgres\.tls_certificate must have the name \(CN\) certified/],
    ['a key without its certificate', { ...secure('certified'), TLS_KEY: '/nowhere' },
      /postgres\.tls_key: set postgres\.tls_certificate, too/],
    ['a certificate that is not there', { ...secure('certified'), ...own('nowhere') },
      /postgres\.tls_certificate: .*nowhere\.pem cannot be read: no such file/],
    ['a certificate without TLS', { ...keys('certified'), ...own('certified') },
      /postgres\.tls_certificate: there is no TLS/],
    ['another CA', { ...secure('tls'), TLS_CA: certificates.file('other.pem') },
      /comes from no CA that is known here; postgres\.tls_ca/],
    ['a CA that is not there', { ...secure('tls'), TLS_CA: '/nowhere' },
      /postgres\.tls_ca: \/nowhere cannot be read: no such file/],
    ['TLS is asked for and off', { ...keys('tls'), PASSWORD_FILE: file },
      /no encryption; .*postgres\.tls must be on/],
  ];
  for (const [what, settings, pattern] of cases) {
    await fails(what, { settings: environment(settings) }, pattern);
  }
});

test('Unix sockets: peer, a password, and a folder with odd letters', async () => {
  const socket = postgres.sql('SHOW unix_socket_directories');
  const there = { HOST: socket, PORT: postgres.port };
  await works('peer', { settings: environment({ ...there, USER: 'peered' }) });
  await works('a password, by URL', { settings: environment({
    URL: `postgres://scram:simple@${encodeURIComponent(socket)}:${postgres.port}/postgres` }) });
  const odd = join(folder, 'sockët 密');
  mkdirSync(odd);
  const { uid, gid } = statSync(socket);
  chownSync(odd, uid, gid);
  chownSync(folder, uid, gid);
  postgres.sql(`ALTER SYSTEM SET unix_socket_directories = '${odd}'`);
  await postgres.end();
  await postgres.run();
  await works('a folder beyond ASCII', { settings: environment({
    URL: `postgres://scram:simple@${encodeURIComponent(odd)}:${postgres.port}/postgres` }) });
  await fails('no socket', { settings: environment({ ...there, USER: 'peered' }) },
    /no connection to the socket in .* \(postgres\.host\): no such file/);
  postgres.sql('ALTER SYSTEM RESET unix_socket_directories');
  await postgres.end();
  await postgres.run();
});

test('what is wrong with a login is one line with the key', async () => {
  const file = join(folder, 'password-wrong');
  writeFileSync(file, 'guess\n');
  const cases = [
    ...['scram', 'hashed', 'clear'].map((role) => [`${role}, wrong by URL`,
      { URL: url(role, 'guess') },
      /password authentication failed.* password than in postgres\.url/]),
    ['wrong in the file', { ...keys('scram'), PASSWORD_FILE: file },
      /password authentication failed.*in postgres\.password_file \(.*password-wrong\)/],
    ['none', keys('scram'), /asks for a password.*set postgres\.password_file/],
    ['no file', { ...keys('scram'), PASSWORD_FILE: '/nowhere' },
      /postgres\.password_file: \/nowhere cannot be read: no such file/],
    ['no line of pg_hba.conf', keys('unlisted'),
      /no pg_hba\.conf entry.*pg_hba\.conf needs a line/],
    ['rejected', keys('refused'), /pg_hba\.conf rejects connection/],
    ['no such role', { URL: url('nobody', 'guess') }, /no pg_hba\.conf entry/],
    ['no such database', { ...keys('trusted'), DATABASE: 'nowhere' },
      /database "nowhere" does not exist; .*postgres\.database/],
    ['nobody there', { ...keys('trusted'), PORT: 1 },
      /no connection to 127\.0\.0\.1:1 \(postgres\.host\): connection refused/],
    ['no such host', { ...keys('trusted'), HOST: 'nowhere.invalid' },
      /no connection to nowhere\.invalid:\d+ \(postgres\.host\): /],
    ['@ as it is', { URL: `postgres://scram:p@ss@127.0.0.1:${postgres.port}/postgres` },
      /postgres\.url: .*%40 for @/],
    ['half an escape', { URL: `postgres://scram:50%@127.0.0.1:${postgres.port}/postgres` },
      /postgres\.url: .*%25/],
    ['a NUL', { URL: `postgres://scram:a%00@127.0.0.1:${postgres.port}/postgres` },
      /postgres\.url: has %00/],
    ['no such port', { URL: 'postgres://scram@127.0.0.1:65536/postgres' },
      /postgres\.url: its port/],
  ];
  for (const [what, settings, pattern] of cases) {
    await fails(what, { settings: environment(settings) }, pattern);
  }
  const halley = await prepare({ settings: environment(keys('trusted')) });
  const setup = await halley.command('postgres', 'setup', url('scram', 'guess'));
  assert.deepEqual([setup.code, setup.stdout], [1, '']);
  assert.match(setup.stderr, /^halley: .*failed.* in the URL of setup\n$/);
  assert.deepEqual(await halley.command('postgres', 'setup', url('scram', 'simple')),
    { code: 0, stdout: ALL_IS_THERE, stderr: '' });
  halley.remove();
});

test('it streams and writes with a password, and takes a new one from its file', async () => {
  const [password, next] = ['p@ss e\u0301/密碼', 'new # one'];
  setPassword(`"${ODD}"`, password);
  const role = encodeURIComponent(ODD);
  const there = `postgres://shop@127.0.0.1:${postgres.port}/${role}`;
  const halley = await prepare({ settings: environment({
    URL: `postgres://${role}@127.0.0.1:${postgres.port}/${role}`, SLOT: 'odd',
    FOLLOWS: 'follows(a, b)' }) });
  halley.settings.HALLEY_STORE_BACKEND = 'postgres';
  halley.settings.HALLEY_POSTGRES_PASSWORD_FILE = scratchFile(halley, 'password', `${password}\n`);
  const sql = (script) => postgres.sql(`\\connect "${ODD}"\n${script}`);
  sql('CREATE TABLE follows (a text, b text, PRIMARY KEY (a, b)); '
    + "INSERT INTO follows VALUES ('ann', 'bob')");
  const setup = await halley.command('postgres', 'setup', there);
  assert.deepEqual([setup.code, setup.stderr], [0, '']);
  await halley.start();
  await until('it streams', async () => await metric(halley, 'halley_postgres_streaming') === 1);
  const reader = await sse(halley, 'ann');
  sql(`SELECT halley.publish('bob', '"é"')`);
  assert.equal((await reader.event()).data, 'é');
  const follow = () => api(halley, 'POST', '/v1/follows', 'ann eve\n',
    { 'content-type': 'text/plain' });
  assert.equal((await follow()).json.added, 1);
  assert.equal(sql('SELECT count(*) FROM follows'), '2');

  setPassword(`"${ODD}"`, next);
  postgres.sql('SELECT pg_terminate_backend(pid) FROM pg_stat_activity '
    + "WHERE application_name = 'halley'");
  await until('the log says so', () => /another password than in postgres\.password_file/
    .test(halley.log));
  assert.doesNotMatch(halley.log, /p@ss/);
  scratchFile(halley, 'password', next);
  await until('it streams again', async () =>
    await metric(halley, 'halley_postgres_streaming') === 1);
  sql("SELECT halley.publish('bob', '2')");
  assert.equal((await reader.event()).data, 2);
  await halley.stop();
  sql("SELECT pg_drop_replication_slot('odd')");
});
