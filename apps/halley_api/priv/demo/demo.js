// The demo page: a wall with you and some others, what its connection carries, and three buttons.
//
// It does what a user's own browser may do, at this origin, with the client that any page would use
// (halley.min.js). Who is there is known by the subject `wall`: whoever comes says so about it.
// In the address: `?user=` says who you are, `?cast=still` keeps the others quiet, `off` away.

import { Fans, goOffline, killBrain } from './acts.js';
import { Cast, NAMES } from './cast.js';
import { connect } from './halley.min.js';
import { Feed, People } from './wall.js';
import { Wire, WireView } from './wire.js';

const GUESTS = ['mia', 'noa', 'otto', 'pia', 'rio', 'sam', 'tess', 'uma', 'vik', 'zoe'];
const FOLLOWED_AT_FIRST = ['ada', 'ben', 'cleo', 'eli'];
const PAST_MAX = 5;
const JOINS_MAX = 50;
const PRESENCE_MS = 2_000;
const COUNTS_MS = 500;

const byId = (id) => document.getElementById(id);
const query = new URLSearchParams(location.search);

function whoAmI() {
  const name = query.get('user') || sessionStorage.getItem('halley demo user')
    || GUESTS[Math.floor(Math.random() * GUESTS.length)];
  sessionStorage.setItem('halley demo user', name);
  return name;
}

const user = whoAmI();
const wireView = new WireView(byId('wire-list'), byId('wire-scroller'));
const wire = new Wire((line) => wireView.add(line));
const halley = connect(location.origin, {
  user, share: false, timeoutMs: 120_000, WebSocket: wire.WebSocket, fetch: wire.fetch,
});
const seen = new Map();
const follows = new Set([user]);
/** Who is there, as far as it was told. */
const there = new Set();
let past = null;
let isOffline = false;

const feed = new Feed(byId('feed'), byId('empty'), user, (author, id) =>
  halley.publish([author], { like: id, by: user }).catch(problem));
const people = new People(byId('people'), (name, isWanted) =>
  follow(name, isWanted).catch(problem));
const cast = new Cast(query.get('cast') ?? 'lively');
const fans = new Fans(user, byId('fans'), (followers, count, ms) =>
  say('celebrity', `${followers.toLocaleString('en')} followers. Your last post was with the `
    + `${count} of them who are online after ${ms} ms.`, 'good'));

function problem(error) {
  byId('problem').textContent = error.message;
  byId('problem').hidden = false;
}

function say(act, text, kind) {
  const result = byId(`${act}-result`);
  result.textContent = text;
  result.dataset.kind = kind;
}

// --- people and posts ---

async function follow(name, isWanted) {
  await (isWanted ? halley.follow(name) : halley.unfollow(name));
  if (isWanted) follows.add(name);
  else follows.delete(name);
  people.following(name, isWanted);
}

function meet(name) {
  people.add(name, name === user);
  if (there.has(name)) people.online(name, true);
  cast.meet(name);
}

function take(event) {
  if (event.subject === 'wall') return meet(event.data.join);
  if (event.private) return event.data.like && feed.like(event.data.like, event.data.by);
  seen.set(event.id, (seen.get(event.id) ?? 0) + 1);
  meet(event.subject);
  feed.add(event, event.at < past ? 'caught-up' : 'live');
}

async function before(subject, limit) {
  const response = await fetch(`/v1/me/subjects/${encodeURIComponent(subject)}/events`
    + `?limit=${limit}&user=${encodeURIComponent(user)}`);
  return response.ok ? (await response.json()).events : [];
}

async function post(text) {
  const key = Math.random().toString(36).slice(2);
  const card = feed.expect(key, text);
  try {
    await halley.publish(user, { text, key });
  } catch (error) {
    card.fail(error.message);
  }
}

function told({ users, user: name, state }) {
  if (users) {
    there.clear();
    for (const one of users) there.add(one);
    for (const one of people.names) people.online(one, there.has(one));
  } else if (name) {
    if (state === 'leave') there.delete(name);
    else there.add(name);
    people.online(name, there.has(name));
  }
}

/** Told where `presence.subjects` of the configuration has `wall`; else each is asked about. */
function watchWhoIsThere({ tells_presence: tells }) {
  if (tells) halley.watch('wall').catch(lookWhoIsThere);
  else lookWhoIsThere();
}

async function lookWhoIsThere() {
  await Promise.all(people.names.map(async (name) => {
    if (!wire.isOnline) return;
    const path = `/v1/me/presence/${encodeURIComponent(name)}?user=${encodeURIComponent(user)}`;
    const answer = await fetch(path).then((one) => one.json()).catch(() => ({}));
    if (answer.online !== undefined) people.online(name, answer.online);
  }));
  setTimeout(lookWhoIsThere, PRESENCE_MS);
}

// --- the panel ---

function showState(state) {
  const chip = byId('state');
  chip.dataset.state = state;
  chip.textContent = state === 'open' ? `open · ${halley.transport}` : state;
}

function showCounts() {
  const { counts: { in: received, out, bytes }, openedAt } = wire;
  const age = openedAt === null ? 'closed'
    : `open for ${Math.floor((Date.now() - openedAt) / 1_000)} s`;
  byId('counts').textContent =
    `${age} · ${received} received · ${out} sent · ${(bytes / 1_024).toFixed(1)} KB`;
  byId('cursor').textContent = halley.cursor ?? '';
}

// --- the three buttons ---

/** Runs `body` while the button is out of use; what goes wrong is said in its result's place. */
function button(act, body) {
  byId(act).addEventListener('click', async () => {
    byId(act).setAttribute('aria-disabled', 'true');
    try {
      await body();
    } catch (error) {
      say(act, error.message, 'bad');
    }
    byId(act).removeAttribute('aria-disabled');
  });
  byId(act).addEventListener('click', (event) => {
    if (byId(act).getAttribute('aria-disabled')) event.stopImmediatePropagation();
  }, true);
}

function setUpActs(config) {
  let { brain } = config;
  if (!config.may_kill) {
    byId('kill').disabled = true;
    say('kill', 'Only where ./halley foreground (or make run) has started it.', '');
  }
  button('kill', async () => {
    brain = await killBrain({ brain, openStreams: () => fans.open + Number(wire.openedAt !== null),
      say: (text, kind) => say('kill', text, kind) });
  });
  let comeBack;
  button('offline', async () => {
    isOffline = !isOffline;
    document.body.classList.toggle('is-offline', isOffline);
    byId('offline').textContent = isOffline ? 'Come back' : 'Go offline';
    if (isOffline) {
      comeBack = goOffline({ wire, cast, follows: (name) => follows.has(name),
        seen: (id) => seen.get(id) ?? 0, say: (text, kind) => say('offline', text, kind) });
    } else {
      past = Date.now();
      await comeBack();
    }
  });
  button('celebrity', async () => {
    say('celebrity', 'Ten thousand people hear of you …', 'busy');
    await fans.gather();
    await post('Hello to all of you!');
  });
}

// --- the start ---

function setUpForms() {
  byId('name').value = user;
  byId('who').addEventListener('submit', (event) => {
    event.preventDefault();
    query.set('user', byId('name').value);
    location.search = query;
  });
  byId('compose').addEventListener('submit', (event) => {
    event.preventDefault();
    const { value } = byId('text');
    byId('text').value = '';
    post(value);
  });
  byId('copy').addEventListener('click', async () => {
    try {
      await navigator.clipboard.writeText(byId('curl').textContent);
      byId('copy').textContent = 'Copied';
    } catch {
      getSelection().selectAllChildren(byId('curl'));
      byId('copy').textContent = 'Selected';
    }
    setTimeout(() => { byId('copy').textContent = 'Copy'; }, 1_500);
  });
}

function showCurl(port) {
  const event = JSON.stringify({ subject: user, data: { text: 'Hello from a terminal' } });
  const quoted = event.replaceAll("'", "'\\''");
  byId('curl').textContent = `curl -d '${quoted}' http://${location.hostname}:${port}/v1/events`;
}

/** Whom one followed before, else some of the others. */
async function followSome() {
  const { following } = await halley.following();
  const known = following.filter((name) => name !== user && name !== 'wall');
  const wanted = known.length > 0 ? known : FOLLOWED_AT_FIRST;
  await Promise.all(['wall', ...wanted].filter((name) => !following.includes(name))
    .map((name) => halley.follow(name)));
  for (const name of wanted) {
    meet(name);
    follows.add(name);
    people.following(name, true);
  }
}

async function start() {
  setUpForms();
  showState(halley.state);
  halley.onState((state, why) => {
    showState(state);
    if (state === 'closed' && why) problem(why);
  });
  halley.onItem((item) => {
    if (item.gap) feed.gap(item.gap);
    else if (item.presence) told(item.presence);
    else take(item);
  });
  meet(user);
  for (const name of NAMES) meet(name);
  const config = await fetch('/demo/config.json').then((one) => one.json());
  showCurl(config.api_port);
  setUpActs(config);
  await followSome();
  await halley.publish('wall', { join: user });
  for (const { data } of await before('wall', JOINS_MAX)) meet(data.join);
  const pages = await Promise.all([...follows].map((name) => before(name, PAST_MAX)));
  for (const event of pages.flat()) feed.add(event, 'past');
  cast.start();
  watchWhoIsThere(config);
  setInterval(showCounts, COUNTS_MS);
  document.body.dataset.ready = 'true';
}

const isWide = matchMedia('(min-width: 64rem)');
const openPanel = () => { byId('wire').open = isWide.matches; };
isWide.addEventListener('change', openPanel);
openPanel();
start().catch(problem);
