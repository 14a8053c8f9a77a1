// Certificates for tests and measurements, by `openssl`: a CA, and what it has signed.

import { execFileSync } from 'node:child_process';
import { mkdirSync, renameSync } from 'node:fs';
import { join } from 'node:path';

const KEY = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-days', '30'];
const LEAF = ['-addext', 'basicConstraints=critical,CA:FALSE',
  '-addext', 'subjectAltName=DNS:localhost,IP:127.0.0.1'];

/** A folder with `<name>.pem` and `<name>.key`: a CA `ca`, and by it `server` for this machine. */
export class Certificates {
  constructor(folder) {
    this.folder = folder;
    mkdirSync(folder, { recursive: true });
    this.authority('ca');
    this.sign('server', 'ca');
  }

  file(name) {
    return join(this.folder, name);
  }

  #request(name, ...args) {
    execFileSync('openssl', ['req', '-x509', ...KEY, '-subj', `/CN=${name}`, ...args,
      '-keyout', 'new.key', '-out', 'new.pem'], { cwd: this.folder, stdio: 'ignore' });
    // A server that looks at its files meanwhile should see the old pair or the new one.
    for (const kind of ['key', 'pem']) {
      renameSync(this.file(`new.${kind}`), this.file(`${name}.${kind}`));
    }
  }

  authority(name) {
    this.#request(name);
  }

  /** A certificate, new if there was one of that name. */
  sign(name, by) {
    this.#request(name, '-CA', `${by}.pem`, '-CAkey', `${by}.key`, ...LEAF);
  }

  /** Environment of a Halley whose listener, `PUBLIC` or `API`, speaks TLS. */
  settings(listener) {
    return { [`HALLEY_${listener}_TLS_CERTIFICATE`]: this.file('server.pem'),
      [`HALLEY_${listener}_TLS_KEY`]: this.file('server.key') };
  }
}
