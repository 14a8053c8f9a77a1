// The wall: people with their presence, and the feed of those whom one follows. It shows what it is
// told and tells what was pressed; it asks nobody.

import { element } from './wire.js';

const POSTS_MAX = 60;

/** Names that differ little get colours that differ much. */
const hueOf = (name) =>
  [...name].reduce((sum, char) => (sum * 5 + char.codePointAt(0)) % 100_003, 0) * 99.3 % 360;

function avatar(name) {
  const made = element('span', 'avatar', [...name][0].toUpperCase());
  made.style.setProperty('--hue', hueOf(name));
  made.setAttribute('aria-hidden', 'true');
  return made;
}

const clock = (at) => new Date(at).toLocaleTimeString([], { hour12: false });

export class People {
  #list;
  #rows = new Map();
  #onFollow;

  constructor(list, onFollow) {
    this.#list = list;
    this.#onFollow = onFollow;
    const look = () => list.classList.toggle('has-more',
      list.scrollWidth - list.scrollLeft - list.clientWidth > 1);
    list.addEventListener('scroll', look);
    new ResizeObserver(look).observe(list);
    new MutationObserver(look).observe(list, { childList: true });
  }

  get names() {
    return [...this.#rows.keys()];
  }

  /** A row for somebody; `isSelf` has no button. */
  add(name, isSelf = false) {
    if (this.#rows.has(name)) return;
    const root = element('li', isSelf ? 'person self' : 'person');
    root.dataset.testid = `person-${name}`;
    const face = element('span', 'face');
    const dot = element('span', 'dot');
    face.append(avatar(name), dot);
    const label = element('span', 'name', name);
    const state = element('span', 'visually-hidden', 'offline');
    const row = { root, state, button: null };
    root.append(face, label, state);
    if (isSelf) {
      root.append(element('span', 'you', 'you'));
    } else {
      row.button = element('button', 'follow', 'Follow');
      row.button.type = 'button';
      row.button.setAttribute('aria-label', `Follow ${name}`);
      row.button.addEventListener('click', () =>
        this.#onFollow(name, !row.button.classList.contains('on')));
      root.append(row.button);
    }
    this.#rows.set(name, row);
    this.#list.append(root);
  }

  online(name, isOnline) {
    const row = this.#rows.get(name);
    row?.root.classList.toggle('online', isOnline);
    if (row) row.state.textContent = isOnline ? 'online' : 'offline';
  }

  following(name, isFollowed) {
    const { button } = this.#rows.get(name) ?? {};
    if (!button) return;
    button.classList.toggle('on', isFollowed);
    button.textContent = isFollowed ? 'Following' : 'Follow';
    button.setAttribute('aria-label', `${button.textContent} ${name}`);
  }
}

export class Feed {
  #list;
  #empty;
  #user;
  #posts = new Map();
  #pending = new Map();
  #onLike;

  constructor(list, empty, user, onLike) {
    this.#list = list;
    this.#empty = empty;
    this.#user = user;
    this.#onLike = onLike;
  }

  /** What somebody is about to publish, until it is there under its `key`. */
  expect(key, text) {
    const { root, meta } = this.#card(this.#user, text);
    root.classList.add('pending');
    meta.textContent = 'sending…';
    this.#pending.set(key, root);
    this.#put(root);
    return { fail: (why) => { meta.textContent = why; root.classList.add('failed'); } };
  }

  /** An event; `how` is `live`, `past` (from before), or `caught-up`. Gives false for a double. */
  add({ id, subject, at, data }, how) {
    if (this.#posts.has(id)) return false;
    this.#pending.get(data?.key)?.remove();
    this.#pending.delete(data?.key);
    const text = typeof data === 'string' ? data : data?.text ?? JSON.stringify(data);
    const { root, meta, likes } = this.#card(subject, text, id);
    const ms = Math.max(Date.now() - at, 0);
    meta.textContent = how === 'live' ? `${clock(at)} · ${ms} ms` : clock(at);
    meta.title = how === 'live' ? 'from its publisher to this page' : '';
    if (how === 'caught-up') meta.textContent += ' · while you were away';
    if (how !== 'past') root.classList.add(how);
    root.dataset.testid = 'post';
    root.dataset.at = at;
    this.#posts.set(id, { root, likes, from: [] });
    this.#put(root, at);
    return true;
  }

  like(id, by) {
    const post = this.#posts.get(id);
    if (!post || post.from.includes(by)) return;
    post.from.push(by);
    post.likes.textContent = `♥ ${post.from.join(', ')}`;
  }

  gap({ from, to, reason }) {
    const time = (at) => (at === null ? 'some time' : clock(at));
    const root = element('li', 'gap',
      `Something from ${time(from)} to ${time(to)} may be missing: ${reason}.`);
    root.dataset.testid = 'gap';
    this.#put(root);
  }

  #card(name, text, id) {
    const root = element('li', 'post');
    const body = element('div', 'body');
    const head = element('p', 'head');
    const meta = element('span', 'meta');
    const likes = element('span', 'likes');
    head.append(element('b', 'name', name), meta);
    const foot = element('p', 'foot');
    if (id !== undefined && name !== this.#user) {
      const button = element('button', 'like', '♡ Like');
      button.type = 'button';
      button.setAttribute('aria-label', `Like what ${name} said: ${text.slice(0, 60)}`);
      button.addEventListener('click', () => {
        button.disabled = true;
        button.textContent = '♥ Liked';
        this.#onLike(name, id);
      });
      foot.append(button);
    }
    foot.append(likes);
    body.append(head, element('p', 'text', text), foot);
    root.append(avatar(name), body);
    return { root, meta, likes };
  }

  /** In the order of their times, the newest on top. */
  #put(root, at = Date.now()) {
    this.#empty.hidden = true;
    const older = [...this.#list.children].find((one) => Number(one.dataset.at ?? Infinity) < at);
    this.#list.insertBefore(root, older ?? null);
    if (this.#list.childElementCount > POSTS_MAX) this.#list.lastElementChild.remove();
  }
}
