// The shop: a page, orders, and follows. It talks to its database alone; it knows of Halley only
// the address that its page uses.

import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';

const file = (name) => readFileSync(new URL(name, import.meta.url), 'utf8');
const BODY_BYTES_MAX = 10_000;

async function json(request) {
  let text = '';
  for await (const part of request) {
    text += part;
    if (text.length > BODY_BYTES_MAX) throw new Error('the request is too long');
  }
  return JSON.parse(text);
}

/** `halley`: where the page finds it. Gives the server, which listens on a free port. */
export function openShop(postgres, halley) {
  const routes = {
    'GET /': () => ['text/html', file('index.html').replace('HALLEY', halley)],
    'POST /orders': (body) => ['text/plain', postgres.sql(file('order.sql'), body)],
    'POST /follows': (body) => ['text/plain', postgres.sql(
      "INSERT INTO follows VALUES (:'customer', :'product') ON CONFLICT DO NOTHING", body)],
  };
  const server = createServer(async (request, response) => {
    const route = routes[`${request.method} ${request.url.split('?')[0]}`];
    try {
      if (!route) throw new Error('there is no such page');
      const { customer, product } = request.method === 'POST' ? await json(request) : {};
      const [type, text] = route({ customer: String(customer), product: String(product) });
      response.writeHead(200, { 'content-type': `${type}; charset=utf-8` }).end(text);
    } catch (error) {
      response.writeHead(400, { 'content-type': 'text/plain' }).end(error.message);
    }
  });
  return new Promise((open) => {
    server.listen(Number(process.env.PORT ?? 0), '127.0.0.1', () => open(server));
  });
}
