// The others on the wall. Each is a user like any other, with a client and a live connection of its
// own: it follows people, posts, likes what it reads, and leaves for a while. Only one window of a
// browser plays them, whichever has the lock; to the others they are people on the same server.

import { connect } from './halley.min.js';

export const NAMES = ['ada', 'ben', 'cleo', 'dana', 'eli', 'finn', 'gwen'];

const POST_MS = [3_000, 6_500];
/** While somebody is away, so that there is something to miss; and at first, on an empty wall. */
const EAGER_MS = [500, 1_200];
const EAGER_POSTS = 5;
const AWAY_MS = [9_000, 15_000];
const AWAY_EVERY_MS = [14_000, 24_000];

const SAYINGS = [
  'Coffee is ready, second floor kitchen.', 'The build is green again.',
  'Does anybody have the slides from Tuesday?', 'Shipped. Thanks, everyone!',
  'Running late, start without me.', 'That sunset, though.', 'Lunch at noon?',
  'I moved the meeting to three.', 'New photos from the weekend are up.',
  'Can somebody look at my pull request?', 'The train is on time. I repeat: on time.',
  'Who left the whiteboard like this? It is beautiful.', 'Back from the dentist. All good.',
  'Twelve kilometres this morning, before breakfast.', 'We just passed a million rows.',
  'Anyone up for chess later?', 'The plant on my desk has a name now.', 'It is snowing up here.',
];
const REPLIES = ['nice!', 'saw it at once', 'congratulations!', 'same here', 'love it', 'ha!'];

const between = ([least, most]) => least + Math.random() * (most - least);
const oneOf = (list) => list[Math.floor(Math.random() * list.length)];

export class Cast {
  /** What was published, by whom, since somebody emptied it. */
  posts = [];
  isEager = false;
  #said = 0;
  #clients = new Map();
  #known = new Set();
  #mood;

  /** `mood` is `lively`, `still` (they are there and react), or `off`. */
  constructor(mood) {
    this.#mood = mood;
    this.onPost = () => {};
    SAYINGS.sort(() => Math.random() - 0.5);
  }

  /** Plays once no other window does. */
  start() {
    if (this.#mood === 'off') return;
    const play = () => {
      for (const name of NAMES) this.#enter(name);
      if (this.#mood === 'lively') {
        this.#talk();
        setTimeout(() => this.#leave(), between(AWAY_EVERY_MS));
      }
      return new Promise(() => {});
    };
    if (navigator.locks) navigator.locks.request('halley demo cast', play);
    else play();
  }

  /** Each follows whoever comes. */
  meet(name) {
    if (this.#known.has(name) || NAMES.includes(name)) return;
    this.#known.add(name);
    for (const client of this.#clients.values()) client.follow(name).catch(() => {});
  }

  #enter(name, cursor) {
    // A browser has six HTTP connections to a host for all its tabs; WebSockets don't count there.
    const client = connect(location.origin,
      { user: name, share: false, cursor, transports: ['websocket'] });
    this.#clients.set(name, client);
    client.follow('wall').catch(() => {});
    for (const other of this.#known) client.follow(other).catch(() => {});
    client.onEvent((event) => {
      if (!event.private && this.#known.has(event.subject)) this.#react(name, client, event);
    });
  }

  #react(name, client, { id, subject }) {
    if (Math.random() < 0.8) {
      setTimeout(() => client.publish([subject], { like: id, by: name }).catch(() => {}),
        between([300, 2_500]));
    } else if (Math.random() < 0.5 && this.#mood === 'lively') {
      setTimeout(() => this.#post(name, `@${subject} ${oneOf(REPLIES)}`), between([1_500, 4_000]));
    }
  }

  async #post(name, text) {
    try {
      const { id } = await this.#clients.get(name).publish(name, { text });
      this.posts.push({ id, name });
      this.onPost();
    } catch { /* it has left meanwhile */ }
  }

  #talk() {
    setTimeout(() => {
      const [name] = oneOf([...this.#clients]);
      this.#post(name, SAYINGS[this.#said % SAYINGS.length]);
      this.#said += 1;
      this.#talk();
    }, between(this.isEager || this.#said < EAGER_POSTS ? EAGER_MS : POST_MS));
  }

  #leave() {
    const [name, client] = oneOf([...this.#clients]);
    const { cursor } = client;
    client.close();
    this.#clients.delete(name);
    setTimeout(() => this.#enter(name, cursor), between(AWAY_MS));
    setTimeout(() => this.#leave(), between(AWAY_EVERY_MS));
  }
}
