// TLS in a measurement: `--tls` lets the public listener speak it, and the clients as well.

import { join } from 'node:path';
import { Certificates } from '../../test/lib/certificates.mjs';

/** What Halley is started with. */
export function tlsSettings(plan, folder) {
  return plan.tls ? new Certificates(join(folder, 'certificates')).settings('PUBLIC') : {};
}

/** What `halley-load clients` is told of where to connect. */
export function address(halley, plan) {
  const certificate = halley.settings.HALLEY_PUBLIC_TLS_CERTIFICATE;
  if (certificate === undefined) return ['--url', halley.publicUrl];
  return ['--url', halley.publicUrl.replace('http:', 'https:'),
    '--ca', join(certificate, '..', 'ca.pem'),
    ...(plan.tls12 ? ['--tls12'] : []), ...(plan.resume ? ['--resume'] : [])];
}

/** How the table names it. */
export const spoken = (plan) => (plan.tls ? ` over TLS 1.${plan.tls12 ? 2 : 3}` : '');
