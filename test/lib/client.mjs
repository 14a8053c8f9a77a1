// Real clients: curl as a process for what a person would type, Node's own HTTP client for the
// many small requests around it.

import { spawn } from 'node:child_process';
import { requestOf } from './trust.mjs';
import { Queue, within } from './wait.mjs';

const HTTP_MS_MAX = 30_000;
const CURL_S_MAX = 60;

/** One HTTP request; gives `{status, headers, body, json}`, `json` undefined if it is none. */
export function http(method, url, { body, headers = {}, agent } = {}) {
  // Node gives a DELETE no length by itself, and its body would be read as the next request.
  const length = body === undefined ? {} : { 'content-length': Buffer.byteLength(body) };
  // The path goes as it is: a URL object would resolve `..`, which is an id like any other.
  const { hostname, port, origin } = new URL(url);
  const path = url.slice(origin.length);
  const options = { hostname, port, path, method, headers: { ...length, ...headers }, agent };
  const answer = new Promise((resolve, reject) => {
    const outgoing = requestOf(url)(options, (incoming) => {
      const chunks = [];
      incoming.on('data', (chunk) => chunks.push(chunk));
      incoming.on('error', reject);
      incoming.on('end', () => {
        const text = Buffer.concat(chunks).toString();
        resolve({ status: incoming.statusCode, headers: incoming.headers, body: text,
          json: parseJson(text) });
      });
    });
    outgoing.on('error', reject);
    outgoing.end(body);
  });
  return within(`${method} ${url}`, answer, HTTP_MS_MAX);
}

export function parseJson(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** A request to the API listener; an object as body is sent as JSON. */
export function api(halley, method, path, body, headers = {}) {
  const text = typeof body === 'object' && !Buffer.isBuffer(body) ? JSON.stringify(body) : body;
  const type = text === undefined ? {} : { 'content-type': 'application/json' };
  return http(method, halley.apiUrl + path, { body: text, headers: { ...type, ...headers } });
}

/** Publishes and insists that it was accepted. */
export async function publish(halley, subject, data, more = {}) {
  const answer = await api(halley, 'POST', '/v1/events', { subject, data, ...more });
  if (answer.status !== 200) throw new Error(`publish: ${answer.status} ${answer.body}`);
  return answer.json;
}

const asLines = (pairs) =>
  pairs.map(([user, subject]) => `${JSON.stringify({ user, subject })}\n`).join('');
const ndjson = { 'content-type': 'application/x-ndjson' };

/** `follow(halley, [user, subject], ...)`; gives the API's answer. */
export async function follow(halley, ...pairs) {
  const answer = await api(halley, 'POST', '/v1/follows', asLines(pairs), ndjson);
  if (answer.status !== 200) throw new Error(`follow: ${answer.status} ${answer.body}`);
  return answer.json;
}

export async function unfollow(halley, ...pairs) {
  const answer = await api(halley, 'DELETE', '/v1/follows', asLines(pairs), ndjson);
  if (answer.status !== 200) throw new Error(`unfollow: ${answer.status} ${answer.body}`);
  return answer.json;
}

/** How many sessions the user has, by presence. */
export async function sessionsOf(halley, user) {
  return (await api(halley, 'GET', `/v1/users/${encodeURIComponent(user)}`)).json?.sessions;
}

/** Runs curl to its end; gives `{code, status, headers, body, json, stderr}`. */
export async function curl(args, input) {
  const child = spawn('curl', ['-sS', '-i', '--max-time', `${CURL_S_MAX}`, ...args], {
    stdio: ['pipe', 'pipe', 'pipe'],
  });
  const out = [];
  let stderr = '';
  child.stdout.on('data', (data) => out.push(data));
  child.stderr.on('data', (data) => { stderr += data; });
  child.stdin.on('error', () => {});
  child.stdin.end(input);
  const closed = new Promise((resolve, reject) => {
    child.once('error', reject);
    child.once('close', resolve);
  });
  const code = await within(`curl ${args.join(' ')}`, closed, 1_000 * CURL_S_MAX + 10_000);
  return { code, stderr, ...splitAnswer(Buffer.concat(out).toString()) };
}

/** Splits what `curl -i` prints; an interim `100 Continue` head is kept in `interim`. */
function splitAnswer(text) {
  const interim = [];
  let rest = text;
  for (;;) {
    const end = rest.indexOf('\r\n\r\n');
    if (end < 0) return { interim, status: 0, headers: {}, body: rest };
    const lines = rest.slice(0, end).split('\r\n');
    rest = rest.slice(end + 4);
    const status = Number(lines[0].split(' ')[1]);
    if (status >= 100 && status < 200) {
      interim.push(status);
      continue;
    }
    const headers = {};
    for (const line of lines.slice(1)) {
      const colon = line.indexOf(':');
      headers[line.slice(0, colon).toLowerCase()] = line.slice(colon + 1).trim();
    }
    return { interim, version: lines[0].split(' ')[0], status, headers, body: rest,
      json: parseJson(rest) };
  }
}

/** A stream held open by `curl -N`; `lines` is a queue of what it prints. */
export class CurlStream {
  constructor(url, args = []) {
    this.lines = new Queue();
    this.child = spawn('curl', ['-sS', '-N', '--max-time', `${CURL_S_MAX}`, ...args, url], {
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    let rest = '';
    this.child.stdout.on('data', (data) => {
      const parts = (rest + data).split('\n');
      rest = parts.pop();
      for (const part of parts) this.lines.push(part);
    });
    this.child.once('close', (code) => this.lines.end(`curl exited with ${code}`));
  }

  close() {
    this.child.kill('SIGKILL');
  }
}
