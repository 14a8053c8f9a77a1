// What goes over the wire: a WebSocket and a `fetch` that tell of every message, and the list that
// shows them. Both can be cut off, which is what a network that is away looks like to the client.
//
// Whatever came from outside enters the page as text, never as markup.

const LINES_MAX = 150;
const TEXT_MAX = 600;
/** They are long, and the data behind them is what one looks for. */
const NAMES = /"(ref|cursor|id)":"([^"]{5})[^"]{2,}"/g;

export class Wire {
  isOnline = true;
  /** How many messages and bytes went each way, and since when the connection is open. */
  counts = { in: 0, out: 0, bytes: 0 };
  openedAt = null;
  #tell;
  #sockets = new Set();

  constructor(tell) {
    this.#tell = tell;
  }

  /** For the client's options: looks like the browser's own. */
  get WebSocket() {
    const wire = this;
    return function WatchedWebSocket(url) {
      return wire.isOnline ? wire.#socket(url) : deadSocket();
    };
  }

  fetch = async (url, init = {}) => {
    const { pathname } = new URL(url, location.href);
    const what = `${init.method ?? 'GET'} ${pathname}`;
    if (!this.isOnline) throw new TypeError('this page is offline');
    this.#say('out', 'request', `${what}${init.body ? ` ${init.body}` : ''}`);
    const response = await fetch(url, init);
    this.#say('in', 'answer', `${response.status} to ${what}`);
    return response;
  };

  /** The network is gone: without a word to the server's end, and nothing new gets through. */
  cut() {
    this.isOnline = false;
    this.#tell({ way: 'note', kind: 'cut', text: 'the network of this page is cut' });
    for (const socket of this.#sockets) {
      const { onclose } = socket;
      Object.assign(socket, { onmessage: null, onclose: null });
      socket.close();
      onclose?.({ reason: '' });
    }
    this.#sockets.clear();
  }

  mend() {
    this.isOnline = true;
    this.#tell({ way: 'note', kind: 'mended', text: 'the network is back' });
    dispatchEvent(new Event('online'));
  }

  #socket(url) {
    const socket = new WebSocket(url);
    const send = socket.send.bind(socket);
    this.#sockets.add(socket);
    this.#say('out', 'connect', new URL(url).pathname + new URL(url).search);
    socket.send = (text) => {
      this.#say('out', JSON.parse(text).op, text);
      send(text);
    };
    socket.addEventListener('open', () => { this.openedAt = Date.now(); });
    socket.addEventListener('message', ({ data }) =>
      this.#say('in', kindOf(JSON.parse(data)), data));
    socket.addEventListener('close', () => {
      this.#sockets.delete(socket);
      if (this.#sockets.size === 0) this.openedAt = null;
    });
    return socket;
  }

  #say(way, kind, text) {
    this.counts[way] += 1;
    this.counts.bytes += text.length;
    this.#tell({ way, kind, text });
  }
}

/** One that never opens, as without a network. */
function deadSocket() {
  const socket = { send() {}, close() {} };
  setTimeout(() => socket.onclose?.({ reason: '' }));
  return socket;
}

function kindOf(message) {
  if (message.gap) return 'gap';
  if (message.private) return 'private';
  if (message.id) return 'event';
  if (message.error) return 'error';
  if ('ok' in message) return 'answer';
  return message.end ? 'end' : 'cursor';
}

const ARROWS = { in: ['↓', 'received'], out: ['↑', 'sent'], note: ['·', 'note'] };

/**
 * Adds lines to a list, the newest at its end, which stays in view unless somebody scrolled. A long
 * one is cut; a click shows it whole, and Enter all of them.
 */
export class WireView {
  #list;
  #scroller;

  constructor(list, scroller) {
    this.#list = list;
    this.#scroller = scroller;
    list.addEventListener('click', ({ target }) => {
      if (getSelection().isCollapsed) target.closest('li')?.classList.toggle('whole');
    });
    scroller.addEventListener('keydown', ({ key }) => {
      if (key === 'Enter') list.classList.toggle('whole');
    });
  }

  add({ way, kind, text }) {
    const scroller = this.#scroller;
    const isAtEnd = scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < 40;
    const [sign, name] = ARROWS[way];
    const line = element('li', way);
    const arrow = element('span', 'way', sign);
    arrow.title = name;
    const said = element('span', 'said');
    said.append(element('b', 'kind', kind),
      element('code', 'short', text.slice(0, TEXT_MAX).replace(NAMES, '"$1":"$2…"')),
      element('code', 'long', text.length > TEXT_MAX ? `${text.slice(0, TEXT_MAX)}…` : text));
    line.append(arrow, said);
    line.dataset.testid = `wire-${kind}`;
    this.#list.append(line);
    while (this.#list.childElementCount > LINES_MAX) this.#list.firstElementChild.remove();
    if (isAtEnd) scroller.scrollTop = scroller.scrollHeight;
  }
}

export function element(tag, className, text) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}
