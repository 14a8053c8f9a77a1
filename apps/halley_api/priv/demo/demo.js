// The demo page: two people, each with a live stream, a list of whom they follow, and forms.
// It does what a user's own browser may do, all at this origin; the commands that it shows are for
// the API listener, on another port, and do what an application's server does.
// Whatever came from outside enters the page as text, never as markup.
//
// Nothing is lost while someone is away: the page keeps the cursor of the last event it has seen
// and comes back with it. What a resume brings twice has the same id and is shown once.

const FEED_EVENTS_MAX = 50;
const SEEN_IDS_MAX = 1000;
const RECONNECT_MS = 2000;
const FOLLOWING_MAX = 100;

const byId = (id) => document.getElementById(id);

function clone(template) {
  const root = byId(template).content.firstElementChild.cloneNode(true);
  const parts = {};
  for (const part of root.querySelectorAll('[data-part]')) parts[part.dataset.part] = part;
  return { root, parts };
}

function problem(text) {
  byId('problem').textContent = text;
  byId('problem').hidden = text === '';
}

/** What users do themselves. Without tokens whoever asks is whom `?user=` names. */
async function ask(user, method, path, body) {
  let response;
  try {
    const headers = body === undefined ? {} : { 'content-type': 'application/json' };
    const mark = path.includes('?') ? '&' : '?';
    const url = `/v1/me/${path}${mark}user=${encodeURIComponent(user)}`;
    response = await fetch(url, { method, headers, body: JSON.stringify(body) });
  } catch {
    throw new Error('Halley can\'t be reached.');
  }
  const answer = await response.json().catch(() => ({}));
  if (response.ok) return answer;
  throw new Error(answer.error?.message ?? `Halley answered ${response.status}.`);
}

const own = {
  follow: (user, subject) => ask(user, 'PUT', `follows/${encodeURIComponent(subject)}`),
  unfollow: (user, subject) => ask(user, 'DELETE', `follows/${encodeURIComponent(subject)}`),
  following: (user) => ask(user, 'GET', `follows?limit=${FOLLOWING_MAX}`),
  publish: (user, subject, data) => ask(user, 'POST', 'events', { subject, data }),
};

// For a POSIX shell, in single quotes.
const quote = (text) => `'${text.replaceAll("'", "'\\''")}'`;

const streamPath = (user, cursor = '') =>
  `/v1/stream?user=${encodeURIComponent(user)}${cursor === '' ? '' : `&cursor=${cursor}`}`;

/** Where a stream that has seen nothing yet would go on; empty if nobody says. */
async function cursorNow(user) {
  try {
    const answer = await fetch(`/v1/poll?user=${encodeURIComponent(user)}&timeout=0`);
    return answer.ok ? (await answer.json()).cursor : '';
  } catch {
    return '';
  }
}

const curl = {
  listen: (user) => `curl -N ${quote(location.origin + streamPath(user))}`,
  follow: (base, user, subject) =>
    `curl --data ${quote(JSON.stringify({ user, subject }))} ${base}/v1/follows`,
  publish: (base, subject, data) =>
    `curl --data ${quote(JSON.stringify({ subject, data }))} ${base}/v1/events`,
};

function addCopyButtons(root) {
  for (const box of root.querySelectorAll('.curl')) {
    const code = box.querySelector('code');
    const button = document.createElement('button');
    button.type = 'button';
    button.textContent = 'Copy';
    button.dataset.testid = code.dataset.testid.replace('curl-', 'copy-');
    button.setAttribute('aria-label', `Copy the ${code.dataset.part.replace('curl-', '')} command`);
    button.addEventListener('click', async () => {
      try {
        await navigator.clipboard.writeText(code.textContent);
        button.textContent = 'Copied';
      } catch {
        getSelection().selectAllChildren(code);
        button.textContent = 'Selected';
      }
      setTimeout(() => { button.textContent = 'Copy'; }, 1500);
    });
    box.append(button);
  }
}

class Person {
  constructor(base, index, name, other) {
    this.base = base;
    this.name = name;
    this.source = null;
    this.cursor = '';
    this.seen = new Set();
    this.looks = 0;
    const { root, parts } = clone('person');
    this.root = root;
    this.parts = parts;
    root.dataset.testid = `person-${index}`;
    root.setAttribute('aria-label', `Person ${index}`);
    parts.name.value = name;
    parts['follow-subject'].value = other;
    parts['publish-subject'].value = name;
    parts['publish-text'].value = `Hello from ${name}`;
    addCopyButtons(root);
    root.addEventListener('input', () => this.showCommands());
    this.onSubmit(parts.who, () => this.become(parts.name.value));
    this.onSubmit(parts.follow, () => this.follow(parts['follow-subject'].value));
    this.onSubmit(parts.publish, () => this.publish());
    parts.away.addEventListener('click', () => this.leaveOrReturn());
  }

  onSubmit(form, action) {
    form.addEventListener('submit', (event) => {
      event.preventDefault();
      this.attempt(action);
    });
  }

  async attempt(action) {
    try {
      await action();
    } catch (error) {
      this.say(error.message, 'bad');
    }
  }

  say(text, kind = 'good') {
    this.parts.result.textContent = text;
    this.parts.result.dataset.kind = kind;
  }

  become(name) {
    const about = this.parts['publish-subject'];
    if (about.value === this.name) about.value = name;
    this.name = name;
    this.say('');
    this.parts.feed.replaceChildren();
    this.parts.empty.hidden = false;
    this.showCommands();
    this.startAfresh(name);
    return this.showFollowing();
  }

  // --- the stream ---

  async startAfresh(name) {
    this.source?.close();
    this.source = null;
    this.seen.clear();
    this.showState('connecting');
    const cursor = await cursorNow(name);
    if (this.name !== name || this.source !== null) return;
    this.cursor = cursor;
    this.connect();
  }

  connect(cursor = '') {
    this.source?.close();
    const source = new EventSource(streamPath(this.name, cursor));
    this.source = source;
    this.parts.away.textContent = 'Go away';
    this.showState('connecting');
    source.onopen = () => this.showState('connected');
    source.onmessage = (message) => {
      this.cursor = message.lastEventId;
      this.receive(JSON.parse(message.data));
    };
    source.addEventListener('gap', (message) => {
      this.cursor = message.lastEventId;
      this.showGap(JSON.parse(message.data).gap);
    });
    source.onerror = () => {
      // The browser tries again by itself, with the cursor it has; not after an answer that was no
      // stream.
      const isOver = source.readyState === EventSource.CLOSED;
      this.showState(isOver ? 'offline' : 'connecting');
      if (!isOver) return;
      source.close();
      const again = () => { if (this.source === source) this.connect(this.cursor); };
      setTimeout(again, RECONNECT_MS * (0.5 + Math.random()));
    };
  }

  leaveOrReturn() {
    if (this.source === null) {
      this.connect(this.cursor);
      this.say(`${this.name} is back, and gets what was missed.`);
      return;
    }
    this.source.close();
    this.source = null;
    this.parts.away.textContent = 'Come back';
    this.showState('away');
    this.say(`${this.name} is away. What is published now is not lost.`);
  }

  showState(state) {
    if (this.parts.state.dataset.state === state) return;
    this.parts.state.dataset.state = state;
    this.parts.state.textContent = state;
  }

  isNew(id) {
    if (this.seen.has(id)) return false;
    this.seen.add(id);
    if (this.seen.size > SEEN_IDS_MAX) this.seen.delete(this.seen.values().next().value);
    return true;
  }

  receive(event) {
    if (!this.isNew(event.id)) return;
    const { data } = event;
    const text = typeof data === 'string' ? data : JSON.stringify(data);
    this.show(event.at, event.subject, text, `id ${event.id}`);
  }

  showGap({ from, to, reason }) {
    const time = (at) => (at === null ? 'some time' : new Date(at).toLocaleTimeString());
    const text = `Something from ${time(from)} to ${time(to)} may be missing.`;
    const why = reason.replaceAll('_', ' ');
    const shown = this.show(to ?? Date.now(), 'gap', text, why);
    shown.classList.add('gap');
    shown.dataset.testid = 'gap';
  }

  show(time, about, text, title) {
    const { root, parts } = clone('event');
    const { feed, empty } = this.parts;
    const at = new Date(time);
    parts.time.dateTime = at.toISOString();
    parts.time.textContent = at.toLocaleTimeString();
    parts.time.title = title;
    parts.subject.textContent = about;
    parts.data.textContent = text;
    feed.prepend(root);
    empty.hidden = true;
    while (feed.childElementCount > FEED_EVENTS_MAX) feed.lastElementChild.remove();
    return root;
  }

  // --- follows and events ---

  async follow(subject) {
    await own.follow(this.name, subject);
    this.say(`${this.name} follows ${subject}.`);
    await this.showFollowing();
  }

  async unfollow(subject) {
    await own.unfollow(this.name, subject);
    this.say(`${this.name} no longer follows ${subject}.`);
    await this.showFollowing();
    this.parts['follow-subject'].focus();
  }

  async publish() {
    const subject = this.parts['publish-subject'].value;
    await own.publish(this.name, subject, this.parts['publish-text'].value);
    this.say(`Published: whoever follows ${subject} has it, or gets it on return.`);
  }

  async showFollowing() {
    const { name } = this;
    this.looks += 1;
    const look = this.looks;
    const { following, next } = await own.following(name);
    // Answers may come in another order than they were asked for.
    if (look !== this.looks) return;
    const items = following.map((subject) => this.followed(subject));
    const self = document.createElement('li');
    self.className = 'self';
    self.textContent = `${name} (oneself, always)`;
    const more = document.createElement('li');
    more.textContent = 'and more';
    this.parts.following.replaceChildren(self, ...items, ...(next === null ? [] : [more]));
  }

  followed(subject) {
    const item = document.createElement('li');
    const button = document.createElement('button');
    button.type = 'button';
    button.textContent = '×';
    button.setAttribute('aria-label', `Unfollow ${subject}`);
    button.dataset.testid = 'unfollow';
    button.addEventListener('click', () => this.attempt(() => this.unfollow(subject)));
    const label = document.createElement('span');
    label.textContent = subject;
    label.dataset.testid = 'followed';
    item.append(label, button);
    return item;
  }

  showCommands() {
    const { parts, name, base } = this;
    const about = parts['publish-subject'].value;
    const followed = parts['follow-subject'].value;
    parts['curl-listen'].textContent = curl.listen(name);
    parts['curl-follow'].textContent = curl.follow(base, name, followed);
    parts['curl-publish'].textContent = curl.publish(base, about, parts['publish-text'].value);
  }
}

async function start() {
  let config;
  try {
    config = await (await fetch('/demo/config.json')).json();
  } catch {
    problem('The page could not learn where the API is; reload it when Halley runs.');
    return;
  }
  const base = `http://${location.hostname}:${config.api_port}`;
  const people = [new Person(base, 1, 'alice', 'bob'), new Person(base, 2, 'bob', 'alice')];
  byId('people').replaceChildren(...people.map((person) => person.root));
  for (const person of people) person.attempt(() => person.become(person.name));
}

start();
