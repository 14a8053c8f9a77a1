// Node's clients for `https:` and `wss:`: the CAs that they trust, and the certificates that they
// show.

import { request as plain } from 'node:http';
import { request as sealed } from 'node:https';

/** Options of node:tls for all requests of a test file. */
export const tls = {};

/** The `request` that a URL is for; its options take `tls` in. */
export function requestOf(url) {
  return url.startsWith('https:') ? (options, ...rest) => sealed({ ...tls, ...options }, ...rest)
    : plain;
}
