// The example tokens of RFCs, with their keys. None is a login: they have no `sub`, or no claims at
// all, so the reason of the refusal shows that the signature held.

const JOE = 'eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb2'
  + '90Ijp0cnVlfQ';
const JOE_EXPIRES = 1300819380;

const A1 = {
  set: { keys: [{ kty: 'oct', alg: 'HS256', k: 'AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS'
    + '0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow' }] },
  keys: 'rfc7515-a1',
  token: `eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9.${JOE}.`
    + 'dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk',
};

const A2 = {
  set: { keys: [{ kty: 'RSA', alg: 'RS256', e: 'AQAB',
    n: 'ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddxHmfHQp-Vaw-4qPCJrcS2mJPMEzP1Pt'
      + '0Bm4d4QlL-yRT-SFd2lZS-pCgNMsD1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-bSf63kpaSHSX'
      + 'ndS5z5rexMdbBYUsLA9e-KXBdQOS-UTo7WTBEMa2R2CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6_I5'
      + 'IhlJH7aGhyxXFvUK-DWNmoudF8NAco9_h9iaGNj8q2ethFkMLs91kzk2PAcDTW9gb54h4FRWyuXpoQ' }] },
  keys: 'rfc7515-a2',
  token: `eyJhbGciOiJSUzI1NiJ9.${JOE}.`
    + 'cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_O8W'
    + '2Fp5jujGbds9uJdbF9CUAr7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkS'
    + 'jtQBMHlb1L07Qe7K0GarZRmB_eSN9383LcOLn6_dO--xi12jzDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnv'
    + 'Wh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs98rqVt5AXLIhWkWywlVmtVrBp0igcN_IoypGlUPQGe77Rw',
};

const A3 = {
  set: { keys: [{ kty: 'EC', alg: 'ES256', crv: 'P-256',
    x: 'f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU',
    y: 'x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0' }] },
  keys: 'rfc7515-a3',
  token: `eyJhbGciOiJFUzI1NiJ9.${JOE}.`
    + 'DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q',
};

const A4 = {
  set: { keys: [{ kty: 'OKP', alg: 'EdDSA', crv: 'Ed25519',
    x: '11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo' }] },
  keys: 'rfc8037-a4',
  token: 'eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc.'
    + 'hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg',
};

const UNSIGNED = `eyJhbGciOiJub25lIn0.${JOE}.`;

const refused = (refusal) => ({ refusal });
const joe = (name, example) => [
  { name: `${name}: it has no sub`, ...example, now: JOE_EXPIRES - 1,
    expect: refused('token_subject') },
  { name: `${name}: it has expired`, ...example, expect: refused('token_expired') },
  { name: `${name}, a letter changed`, ...example,
    token: example.token.replace('.eyJpc3Mi', '.eyJpc3Nj'), expect: refused('token_signature') },
];

export const examples = [
  ...joe('RFC 7515, A.1 (HS256)', A1),
  ...joe('RFC 7515, A.2 (RS256)', A2),
  ...joe('RFC 7515, A.3 (ES256)', A3),
  { name: 'RFC 7515, A.5 (none)', ...A1, token: UNSIGNED, expect: refused('token_algorithm') },
  { name: 'RFC 8037, A.4 (EdDSA): it has no claims', ...A4, expect: refused('token_claims') },
  { name: 'RFC 8037, A.4 (EdDSA), a letter changed', ...A4,
    token: A4.token.replace('.RXhh', '.RXhi'), expect: refused('token_signature') },
];
