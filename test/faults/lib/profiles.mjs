// A round's Halley: its settings, what they promise (`policy`, `retentionMs`, for the verdict), and
// which faults make sense there. The round of each kind comes as often as its weight.

const SHORT = {
  HALLEY_STREAM_HEARTBEAT: '2s',
  HALLEY_STREAM_RETRY: '100ms',
  HALLEY_DRAIN_TIME: '500ms',
  HALLEY_LOG_LEVEL: 'notice',
};

// A stalled client has to be noticed while the fault lasts.
const IMPATIENT = {
  ...SHORT,
  HALLEY_LIMITS_OUTBOX_BYTES_MAX: '131072',
  HALLEY_LIMITS_OUTBOX_MS_MAX: '1500',
};

const MB = 1024 * 1024;

// The graph is what these look at: fewer clients and events, and what reads everything afterwards,
// with one key.
const GRAPH = { ...SHORT, HALLEY_LIMITS_REQUESTS_PER_S_PER_KEY_MAX: '1000000' };
const LIGHT = { hasGraph: true, hasKeys: true, users: 18, subjects: 8, publishRestMs: 400 };
const OTHERS = ['disk-full', 'clock-step', 'stall-and-flood', 'cut-tail', 'flip-bits',
  'garbage-tail', 'freeze-brain-long'];

// Harm to the history is a gap in the hooks as well: hooks have cases of their own for that.
const HARM = ['cut-tail', 'flip-bits', 'garbage-tail'];
const TOLD = { settings: SHORT, users: 12, subjects: 6, publishRestMs: 400 };

export const PROFILES = [
  {
    name: 'all', weight: 6, settings: SHORT, promise: { policy: 'disconnect' },
    without: ['disk-full', 'clock-step', 'stall-and-flood'],
  },
  {
    name: 'drop-oldest', weight: 1, promise: { policy: 'drop_oldest' },
    settings: { ...IMPATIENT, HALLEY_PUBLIC_SLOW_CONSUMER: 'drop_oldest' },
    without: ['disk-full', 'clock-step'],
  },
  {
    name: 'latest', weight: 1, promise: { policy: 'latest_per_subject' },
    settings: { ...IMPATIENT, HALLEY_PUBLIC_SLOW_CONSUMER: 'latest_per_subject' },
    without: ['disk-full', 'clock-step'],
  },
  {
    name: 'slow', weight: 1, promise: { policy: 'disconnect' }, settings: IMPATIENT,
    without: ['disk-full', 'clock-step'],
  },
  {
    name: 'retention', weight: 1, promise: { policy: 'disconnect', retentionMs: 3_000 },
    settings: {
      ...SHORT, HALLEY_HISTORY_RETENTION: '3s', HALLEY_LIMITS_HISTORY_SEGMENT_BYTES: '65536',
    },
    without: ['disk-full', 'clock-step', 'stall-and-flood'],
  },
  {
    // Some subjects have ages of their own, a longer and a shorter one.
    name: 'ages', weight: 1,
    promise: {
      policy: 'disconnect', retentionMs: 6_000,
      ages: [['s*', 3_600_000], ['s1*', 3_000], ['s12', 3_600_000], ['t*', 2_000]],
    },
    settings: {
      ...SHORT, HALLEY_HISTORY_RETENTION: '6s', HALLEY_LIMITS_HISTORY_SEGMENT_BYTES: '65536',
      HALLEY_HISTORY_RETENTION_OF: 's* 1h, s1* 3s, s12 1h, t* 2s',
    },
    without: ['disk-full', 'clock-step', 'stall-and-flood'],
  },
  {
    // Of most subjects the past shows so many of the newest, and `last=` no more than these.
    name: 'counts', weight: 1,
    promise: {
      policy: 'disconnect', counts: [['s*', 8], ['s1*', 3], ['s12', 40], ['t*', 2], ['c*', 20]],
    },
    settings: { ...SHORT, HALLEY_HISTORY_RETENTION_OF: 's* 8, s1* 3, s12 40, t* 2, c* 20' },
    without: ['disk-full', 'clock-step', 'stall-and-flood'],
  },
  {
    // The operator's server is asked who may connect, and refuses some, or doesn't answer. What a
    // start of the brain leads to shows only where it is left alone for a while.
    name: 'door', weight: 2, door: { ttlMs: 1_000, timeoutMs: 2_000 },
    promise: { policy: 'disconnect', connectTtlMs: 1_000 }, settings: SHORT, has: ['door'],
    rests: { server: [2_500, 6_000] },
    without: ['disk-full', 'clock-step', 'stall-and-flood', 'cut-link', 'freeze-edge', 'drain'],
  },
  {
    // Users and half of the visitors show tokens, which expire; the other visitors are anonymous.
    name: 'tokens', weight: 1, promise: { policy: 'disconnect' }, hasTokens: true,
    settings: {
      ...SHORT, HALLEY_AUTH_MODE: 'jwt', HALLEY_AUTH_ANONYMOUS: '*', HALLEY_AUTH_LEEWAY: '1s',
    },
    without: ['disk-full', 'clock-step', 'stall-and-flood'],
  },
  {
    name: 'small-disk', weight: 1, promise: { policy: 'disconnect' }, settings: SHORT,
    disk: { kind: 'tmpfs', bytes: 24 * 1024 * 1024 }, without: ['clock-step', 'stall-and-flood'],
  },
  {
    name: 'clock', weight: 1, promise: { policy: 'disconnect', clockSlackMs: 7_200_000 },
    settings: SHORT, fakesClock: true, without: ['disk-full', 'stall-and-flood'],
  },
  {
    // Every subject with two followers is a group, and becomes one while the faults go on.
    name: 'groups', weight: 3, promise: { policy: 'disconnect' },
    settings: {
      ...SHORT, HALLEY_LIMITS_GROUP_FOLLOWERS_MIN: '2', HALLEY_LIMITS_GROUP_FOLLOWERS_LOW: '1',
    },
    without: ['disk-full', 'clock-step', 'stall-and-flood'],
  },
  {
    // Few bytes may wait for a worker of a trunk, of which one stands still now and then. Half of
    // the subjects are groups, and become and cease to be some.
    name: 'trunk', weight: 3, promise: { policy: 'disconnect' },
    settings: {
      ...SHORT, HALLEY_EDGE_WORKERS: '5',
      HALLEY_LIMITS_TRUNK_WINDOW_BYTES: '524288', HALLEY_LIMITS_LINK_QUEUE_BYTES_MAX: '4194304',
      HALLEY_LIMITS_LINK_QUEUE_REFUSE_BYTES: '3145728',
      HALLEY_LIMITS_GROUP_FOLLOWERS_MIN: '9', HALLEY_LIMITS_GROUP_FOLLOWERS_LOW: '6',
    },
    // A link that is cut ends the places: other rounds have that, and here it would come too early.
    has: ['threads'], without: ['disk-full', 'clock-step', 'stall-and-flood', 'cut-link'],
  },
  {
    // An edge of one worker, whose thread has the trunk as well.
    name: 'alone', weight: 2, promise: { policy: 'disconnect' },
    settings: { ...SHORT, HALLEY_EDGE_WORKERS: '1' },
    has: ['threads'], without: ['disk-full', 'clock-step', 'stall-and-flood', 'hold-trunk'],
  },
  {
    // Follows, ids and keys, as they are written and read again.
    name: 'store', weight: 2, promise: { policy: 'disconnect' }, settings: GRAPH, ...LIGHT,
    has: ['graph', 'folder'], without: OTHERS,
  },
  {
    name: 'full', weight: 2, promise: { policy: 'disconnect' }, settings: GRAPH, ...LIGHT,
    disk: { kind: 'ext4', bytes: 40 * MB }, has: ['graph', 'small', 'ext4'], without: OTHERS,
  },
  {
    name: 'power', weight: 4, promise: { policy: 'disconnect' }, settings: GRAPH, ...LIGHT,
    disk: { kind: 'power', bytes: 128 * MB }, has: ['graph', 'power'], without: OTHERS,
  },
  {
    // What no journal of the file system has seen for long: young folders, and a lazy kernel.
    name: 'power-young', weight: 2, promise: { policy: 'disconnect' }, settings: GRAPH, ...LIGHT,
    disk: { kind: 'power', bytes: 96 * MB, commitS: 2 }, has: ['graph', 'power', 'young'],
    without: [...OTHERS, 'power-cut'], secondsMax: 12,
  },
  {
    // Who is there, and hooks to an endpoint with faults of its own; the disk is full at times.
    name: 'told', weight: 2, promise: { policy: 'disconnect' }, ...TOLD, hooks: { tls: false },
    disk: { kind: 'tmpfs', bytes: 24 * MB }, has: ['hooks'],
    without: ['clock-step', 'stall-and-flood', ...HARM],
  },
  {
    // The same, where a brain settles between two faults: then it can be told what hooks owe.
    name: 'owed', weight: 1, promise: { policy: 'disconnect' }, ...TOLD, hooks: { tls: false },
    disk: { kind: 'tmpfs', bytes: 24 * MB }, has: ['hooks'],
    rests: { server: [9_000, 15_000], link: [15_000, 25_000], hooks: [1_000, 6_000] },
    without: ['clock-step', 'stall-and-flood', ...HARM],
  },
  {
    name: 'told-https', weight: 1, promise: { policy: 'disconnect' }, ...TOLD, hooks: { tls: true },
    has: ['hooks'], without: ['disk-full', 'clock-step', 'stall-and-flood', ...HARM],
  },
];
