// The servers that are compared, by the name that `--only` knows. Each has
//
//     title        what the table calls it
//     needs        what must be there, and what to call it: lib/needs.mjs
//     version()    which one it is; null if the commit says it
//     start(plan)  starts it and gives
//                    pids()    the ids of all its processes
//                    parts()   of these, by name, what is worth a figure of its own
//                    clients   the options by which `halley-load clients` reaches it
//                    publish   the same for `halley-load publish`
//                    most      its further options to publish as much as goes through
//                    follow()  has it learn who follows what, where connecting doesn't tell it
//                    stop()

import { evhttp, halleyMochiweb, mochiweb } from './article.mjs';
import { posts, sse, ws } from './halley.mjs';
import { nats } from './nats.mjs';
import { nchan } from './nchan.mjs';
import { clustered, single } from './socketio.mjs';

export const RIVALS = {
  halley: sse,
  'halley-ws': ws,
  'halley-posts': posts,
  nchan,
  nats,
  socketio: single,
  'socketio-cluster': clustered,
  evhttp,
  mochiweb,
  'halley-mochiweb': halleyMochiweb,
};
