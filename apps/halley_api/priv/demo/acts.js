// The three buttons: kill the brain, go offline and come back, become a celebrity. Each says what
// it has seen itself, not what is promised.

const FANS_ONLINE = 100;
const BRAIN_AWAY_MS_MAX = 60_000;
const LOOK_MS = 250;
const FAN_BACK_MS = [1_000, 3_000];
/** After the last post that somebody was to get: by then it is here, or it is missing. */
const CATCH_UP_MS = 10_000;

const sleep = (ms) => new Promise((done) => { setTimeout(done, ms); });
const seconds = (ms) => `${(ms / 1_000).toFixed(1)} s`;

/** What only the demo page may ask of the server (`halley_api_demo_act_h`). */
async function act(name, query = '') {
  const response = await fetch(`/demo/acts/${name}${query}`,
    { method: 'POST', headers: { 'x-halley-demo': 'act' } });
  const answer = await response.json();
  if (!response.ok) throw new Error(answer.error.message);
  return answer;
}

/** Kills the brain with SIGKILL and waits for the next one, watching what stays open meanwhile. */
export async function killBrain({ brain, openStreams, say }) {
  const before = openStreams();
  await act('kill-brain');
  const since = Date.now();
  say(`kill -9 ${brain}: no brain. ${before} streams are open, and stay so.`, 'busy');
  let [least, next] = [before, null];
  while (next === null && Date.now() - since < BRAIN_AWAY_MS_MAX) {
    await sleep(LOOK_MS);
    least = Math.min(least, openStreams());
    const answer = await fetch('/demo/config.json').then((one) => one.json()).catch(() => ({}));
    if (answer.brain !== undefined && answer.brain !== brain) next = answer.brain;
  }
  if (next === null) throw new Error('no brain has come back; look at the terminal');
  least = Math.min(least, openStreams());
  say(`Brain ${brain} was killed, ${next} took over after ${seconds(Date.now() - since)}. `
    + `${least} of ${before} streams stayed open.`, least === before ? 'good' : 'bad');
  return next;
}

/** Cuts the network of this page; gives what mends it and tells what has come. */
export function goOffline({ wire, cast, follows, seen, say }) {
  const since = Date.now();
  cast.posts = [];
  cast.isEager = true;
  const missed = () => cast.posts.filter(({ name }) => follows(name));
  const tell = () => say(`You are offline. ${missed().length} posts for you meanwhile. `
    + 'What you post yourself waits.', 'busy');
  wire.cut();
  cast.onPost = tell;
  tell();
  return async () => {
    const ids = missed().map(({ id }) => id);
    Object.assign(cast, { isEager: false, onPost: () => {} });
    wire.mend();
    const end = Date.now() + CATCH_UP_MS;
    const here = () => ids.filter((id) => seen(id) === 1).length;
    while (here() < ids.length && Date.now() < end) await sleep(50);
    const [twice, lost] = [ids.filter((id) => seen(id) > 1).length, ids.length - here()];
    say(`Back after ${seconds(Date.now() - since)}. ${here()} of ${ids.length} posts that you `
      + `missed are here${twice === 0 && lost === 0 ? ': none missing, none twice' : ''}.`,
    twice === 0 && lost === 0 ? 'good' : 'bad');
  };
}

/** Ten thousand followers, a hundred of them on connections of this page, each with its dot. */
export class Fans {
  #user;
  #grid;
  #dots = [];
  #open = new Set();
  #arrivals = new Map();
  #followers = 0;
  #onPost;

  /** `onPost` is told of each post: of how many followers how many have it, after which time. */
  constructor(user, grid, onPost) {
    this.#user = user;
    this.#grid = grid;
    this.#onPost = onPost;
  }

  get open() {
    return this.#open.size;
  }

  async gather() {
    const { followers } = await act('celebrity', `?user=${encodeURIComponent(this.#user)}`);
    this.#followers = followers;
    if (this.#dots.length === 0) {
      this.#dots = Array.from({ length: FANS_ONLINE }, () => document.createElement('i'));
      this.#grid.append(...this.#dots);
      this.#grid.hidden = false;
      for (let n = 0; n < FANS_ONLINE; n += 1) this.#connect(n);
    }
    const end = Date.now() + CATCH_UP_MS;
    while (this.open < FANS_ONLINE && Date.now() < end) await sleep(20);
  }

  #connect(n) {
    const dot = this.#dots[n];
    const address = `${location.origin.replace(/^http/, 'ws')}/v1/ws?user=fan-${n + 1}`;
    const socket = new WebSocket(address);
    socket.onopen = () => { this.#open.add(n); dot.className = 'open'; };
    socket.onmessage = ({ data }) => {
      const { id, subject, at } = JSON.parse(data);
      if (subject === this.#user) this.#arrived(n, id, at);
    };
    socket.onclose = () => {
      this.#open.delete(n);
      dot.className = '';
      const [least, most] = FAN_BACK_MS;
      setTimeout(() => this.#connect(n), least + Math.random() * (most - least));
    };
  }

  #arrived(n, id, at) {
    const dot = this.#dots[n];
    dot.classList.remove('lit');
    // So that its light begins anew.
    requestAnimationFrame(() => dot.classList.add('lit'));
    const count = (this.#arrivals.get(id) ?? 0) + 1;
    this.#arrivals.set(id, count);
    this.#onPost(this.#followers, count, Math.max(Date.now() - at, 0));
  }
}
