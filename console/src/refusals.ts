// Whatever Halley refuses, closes, drops or fails to do, by the metric that counts it: what it
// means, and what to do about it. `docs/reference/metrics.md` has the metrics; the console's tests
// ask for a row here for each counter that isn't one of work done.

export interface Refusal { metric: string; title: string; means: string; todo: string }
export interface Group { title: string; refusals: Refusal[] }

const edge = (name: string): string => `halley_edge_${name}_total`;
const labelled = (family: string, label: string, value: string): string =>
  `halley_${family}_total{${label}="${value}"}`;
const request = (reason: string): string => labelled('requests_refused', 'reason', reason);
const event = (reason: string): string => labelled('events_refused', 'reason', reason);
const follow = (reason: string): string => labelled('follows_refused', 'reason', reason);
const brain = (name: string): string => `halley_${name}_total`;

const SLOW: Group = { title: 'Slow clients', refusals: [
  { metric: edge('slow_consumers'), title: 'Closed: too slow',
    means: 'A client took its events so slowly that its outbox was full, or stood still for too '
      + 'long. It was closed, and comes back with its cursor.',
    todo: 'Look who it is under Users. Many at once are a network that was away; always the same '
      + 'few are clients that work in their handler. If events may be skipped, '
      + 'public.slow_consumer = latest_per_subject keeps such clients connected.' },
  { metric: edge('outboxes_full'), title: 'Closed: all outboxes together were full',
    means: 'So much waited for slow clients that a worker closed those with the most.',
    todo: 'Raise limits.outboxes_bytes_max if there is memory, or find out why so many are slow.' },
  { metric: edge('events_dropped'), title: 'Events dropped for slow clients',
    means: 'public.slow_consumer = drop_oldest dropped them; each client was told by a gap.',
    todo: 'As above. Events are still in the history, for clients that ask there.' },
  { metric: edge('events_conflated'), title: 'Events replaced by newer ones',
    means: 'public.slow_consumer = latest_per_subject kept the newest of each subject.',
    todo: 'Nothing, if that is what your clients want.' },
  { metric: edge('vanished'), title: 'Clients that vanished',
    means: 'Connections that ended in an error, or whose machine stopped answering.',
    todo: 'Phones do that all day. A sudden rise is a network or a proxy between.' },
  { metric: brain('links_behind'), title: 'A worker was behind',
    means: 'The queue to a worker was full; what came then it gets from the history.',
    todo: 'Look at Workers. If it is always the same, its core is busy with something else.' },
  { metric: edge('trunk_left_behind'), title: 'A worker left what came for it',
    means: 'It stood still, or did not take its share of what the workers have in common; it gets '
      + 'that from the history.',
    todo: 'The same.' },
  { metric: brain('presence_owed'), title: 'News of presence that came later',
    means: 'A worker’s queue was half full, so changes of presence waited, and the state was told '
      + 'in their place.',
    todo: 'Nothing, if the worker is well again.' },
] };

const DOOR: Group = { title: 'At the door', refusals: [
  { metric: edge('refused_connections'), title: 'No place for another connection',
    means: 'edge.connections_max is reached. Clients get 503 and come back later.',
    todo: 'Raise edge.connections_max, or the limit of descriptors if that is what bounds it.' },
  { metric: edge('refused_by_address'), title: 'Too many connections of one address',
    means: 'limits.connections_per_address_max is reached by an address.',
    todo: 'A proxy in front counts as one client: name it in proxy.trusted. Your own machines go '
      + 'into limits.exempt.' },
  { metric: edge('rate_by_address'), title: 'Too many requests of one address',
    means: 'limits.requests_per_address_per_s_max. Clients get 429 with Retry-After.',
    todo: 'The same as above; otherwise somebody is trying something.' },
  { metric: edge('rate_by_user'), title: 'Too many requests of one user',
    means: 'limits.requests_per_user_per_s_max, counted at the edge.',
    todo: 'Usually a client that retries without a pause. The JavaScript client waits.' },
  { metric: edge('busy'), title: 'Told to come back: too many at once',
    means: 'More clients came than are admitted in a second; each was told when to try again.',
    todo: 'Nothing after a restart: they all come back. If it goes on, raise admission.rate.' },
  { metric: edge('memory_low'), title: 'Too little memory',
    means: 'The machine, or the control group, is short of memory: new streams have to wait.',
    todo: 'Give it more memory, or fewer clients. What is open stays open.' },
  { metric: edge('pending_connections_dropped'), title: 'Silent connections closed',
    means: 'Connections that had sent no request made room for others.',
    todo: 'Slow clients in great number, or an attack. Nothing else is needed.' },
  { metric: edge('timeouts'), title: 'Requests that took too long',
    means: 'A head, a body or a keep-alive connection passed its deadline.',
    todo: 'Nothing, as long as it is a small share.' },
  { metric: edge('slow_bodies'), title: 'Uploads that were too slow',
    means: 'A body came more slowly than limits.pace_bytes_per_s_min.',
    todo: 'If these are your own servers, look at the network between.' },
  { metric: edge('slow_readers'), title: 'Answers that were taken too slowly',
    means: 'A client took its answer more slowly than limits.pace_bytes_per_s_min.',
    todo: 'The same; ask for smaller pages.' },
  { metric: edge('origins_refused'), title: 'Web pages from elsewhere',
    means: 'A page of another origin asked for something.',
    todo: 'If it is yours, add its origin to cors.origins. The log names each origin once.' },
  { metric: edge('proxy_errors'), title: 'No PROXY header',
    means: 'The listener expects the PROXY protocol, and a connection came without.',
    todo: 'Let only the proxy reach this port, or switch the protocol on there.' },
  { metric: edge('bad_requests'), title: 'Bad requests',
    means: 'Requests that the edge answered with 4xx by itself.',
    todo: 'Look at what your clients send; the answer to each says what is wrong.' },
  { metric: edge('operations_refused'), title: 'Messages of WebSockets refused',
    means: 'A client said something over its WebSocket that is no operation, or too many at once.',
    todo: 'The answer to each has the code.' },
  { metric: edge('websocket_errors'), title: 'WebSockets that broke the protocol',
    means: 'RFC 6455 asks that such a connection is closed.',
    todo: 'Which client is it? Those of browsers do not; a proxy that changes frames might.' },
  { metric: edge('unavailable'), title: 'Answered 503 or 504',
    means: 'There was no brain, or it took too long, or too many requests waited.',
    todo: 'Expected for a moment while the brain restarts. Otherwise the log says more.' },
] };

const TLS: Group = { title: 'TLS', refusals: [
  { metric: edge('tls_handshakes_late'), title: 'Handshakes that took too long',
    means: 'limits.tls_handshake_ms_max, or half of it before their first turn.',
    todo: 'Slow networks, an attack, or more new connections than this machine can shake hands '
      + 'with.' },
  { metric: edge('tls_incompatible'), title: 'Nothing in common',
    means: 'A client knows no version, cipher or protocol of those that Halley speaks.',
    todo: 'Very old clients, or a scanner. TLS 1.2 and 1.3 are spoken.' },
  { metric: edge('tls_clients_refused'), title: 'No good certificate of a client',
    means: 'api.tls.client_ca asks for one, and it was missing or of another CA.',
    todo: 'Give that server a certificate of this CA.' },
  { metric: edge('tls_clients_version_1'), title: 'Of these, certificates of version 1',
    means: 'A client’s certificate must be one of X.509 version 3.',
    todo: 'Make it anew with extensions: openssl x509 -req … -extfile.' },
  { metric: edge('tls_alerts'), title: 'Ended by the client',
    means: 'A client ended TLS with an alert, such as one that does not trust the certificate.',
    todo: 'Is the chain in public.tls.certificate complete, and the name the right one?' },
  { metric: edge('tls_broken'), title: 'Broken TLS',
    means: 'What came is no TLS, or was damaged on the way.',
    todo: 'Scanners do that. Else look at what stands between.' },
  { metric: edge('https_expected'), title: 'Plain HTTP where TLS is spoken',
    means: 'A client came by http:// and was told so.', todo: 'Give it the https:// address.' },
  { metric: edge('tls_unexpected'), title: 'TLS where plain HTTP is spoken',
    means: 'A client came by https:// to a listener without a certificate.',
    todo: 'Set public.tls.certificate and key, or give it the http:// address.' },
  { metric: edge('certificates_unusable'), title: 'Certificates that can’t be used',
    means: 'A file changed and could not be put in force; the one before still is.',
    todo: 'The log says what is wrong with it. Mend it before the old one expires.' },
] };

const TOKENS: Group = { title: 'Tokens of users', refusals: [
  { metric: edge('tokens_missing'), title: 'No token',
    means: 'A client came without a token, or with two.',
    todo: 'Send it as Authorization: Bearer, or as ?token= where headers can’t be set.' },
  { metric: edge('tokens_out_of_time'), title: 'Expired, or not valid yet',
    means: 'The time in exp has passed, or that in nbf is to come.',
    todo: 'Clients renew in time if they have a token callback. If all are refused at once, '
      + 'compare the clocks of both machines.' },
  { metric: edge('tokens_unsigned'), title: 'Not signed by a known key',
    means: 'The signature, its algorithm or its key isn’t one of auth.keys.',
    todo: 'After a change of keys: is the new public key in auth.keys?' },
  { metric: edge('tokens_of_others'), title: 'For somebody else',
    means: 'iss, aud, sub or halley is wrong, or ?user= names another user.',
    todo: 'Compare auth.issuer and auth.audience with what your tokens say.' },
  { metric: edge('tokens_malformed'), title: 'Not readable as tokens',
    means: 'They aren’t signed JWTs, or they are too long.',
    todo: 'Look at the first refused one: its answer names the reason.' },
  { metric: edge('tokens_no_keys'), title: 'No key to check with',
    means: 'auth.keys has no key that can be used: everybody is refused.',
    todo: 'Repair auth.keys; the log says what is wrong with it.' },
  { metric: edge('sessions_expired'), title: 'Streams ended with their token',
    means: 'A token expired while its stream was open. The client comes back with a new one.',
    todo: 'Nothing, if clients renew. Over a WebSocket they can do so without an interruption.' },
  { metric: brain('token_keys_errors'), title: 'auth.keys could not be read',
    means: 'The file changed and could not be used; the keys before are still in force.',
    todo: 'The log says what is wrong with it.' },
  { metric: brain('connect_refused'), title: 'Not let in by your server',
    means: 'auth.connect_url answered that this user may not open a session.',
    todo: 'Nothing, if your server means it.' },
  { metric: brain('connect_failures'), title: 'Your server gave no judgement',
    means: 'auth.connect_url did not answer as it should, or too many users waited for it.',
    todo: 'Look at that server. limits.connect_in_flight_max users are asked about at once.' },
] };

const SERVERS: Group = { title: 'Server keys, and rights of users', refusals: [
  { metric: request('key_missing'), title: 'No server key',
    means: 'A request to the API came without a key.',
    todo: './halley key create makes one; send it as Authorization: Bearer.' },
  { metric: request('key_unknown'), title: 'Unknown server key',
    means: 'The key was revoked, or isn’t complete.',
    todo: './halley key list shows those in force.' },
  { metric: request('scope_missing'), title: 'A scope is missing',
    means: 'The key is good, but not for this request. The answer names the scope.',
    todo: 'Make a key with that scope, if its server should have it.' },
  { metric: request('key_too_often'), title: 'A server asks too often',
    means: 'limits.requests_per_s_per_key_max is reached.',
    todo: 'Send many events in one request, as NDJSON.' },
  { metric: request('right_missing'), title: 'A user lacks a right',
    means: 'The claim halley of the token doesn’t allow it.',
    todo: 'Add the subject to the claim, if the user should be allowed.' },
  { metric: request('user_too_often'), title: 'A user sends too much',
    means: 'limits.requests_per_user_per_s_max or bytes_per_user_per_s_max is reached.',
    todo: 'Usually a loop in a client.' },
  { metric: labelled('sessions_over_limit', 'done', 'refused'), title: 'Too many sessions: refused',
    means: 'A user had as many sessions as it may, and one more came.',
    todo: 'One shared connection for all tabs: the JavaScript client has it.' },
  { metric: labelled('sessions_over_limit', 'done', 'replaced'),
    title: 'Too many sessions: the oldest replaced',
    means: 'A user had as many sessions as it may; the oldest had to go.',
    todo: 'The same.' },
  { metric: brain('users_refused'), title: 'No number for another user',
    means: 'limits.ids_max has no room for users that nobody has heard of.',
    todo: 'Raise limits.ids_max; look for somebody who makes up names.' },
  { metric: brain('sessions_gone'), title: 'Just forgotten',
    means: 'A user came back in the moment in which its number was given back, and got 503.',
    todo: 'Nothing: its client comes again.' },
  { metric: brain('server_keys_errors'), title: 'The server keys could not be read',
    means: 'Their file could not be used; the keys before are still in force.',
    todo: 'The log says what is wrong with it.' },
  { metric: brain('subscriptions_refused'), title: 'Subscriptions refused',
    means: 'limits.subscriptions_per_session_max, or limits.subscriptions_max of all together.',
    todo: 'Raise them; or let users follow what they want for long.' },
  { metric: brain('session_states_refused'), title: 'States that are too large',
    means: 'What a session says of itself has more than limits.session_state_bytes_max.',
    todo: 'Say less there: it is told to all who see the user.' },
] };

const EVENTS: Group = { title: 'Events and follows', refusals: [
  { metric: event('history'), title: 'The history takes no event',
    means: 'Its disk is full or can’t be written. Publishers get 503 and come again.',
    todo: 'Make room on the disk of data.dir. Server → History says how it is.' },
  { metric: event('overloaded'), title: 'Overloaded',
    means: 'More was published than can be written or sent. Publishers get 503.',
    todo: 'Publish in batches; look at Workers for queues.' },
  { metric: event('unavailable'), title: 'Unavailable',
    means: 'A part was just restarting, and it isn’t known whether the event went out.',
    todo: 'Publish again under the same id: nothing comes twice then.' },
  { metric: event('data_too_large'), title: 'Data too large',
    means: 'limits.event_data_bytes_max.',
    todo: 'Send a link to what is large.' },
  { metric: event('bad_id'), title: 'Bad subject or id',
    means: 'Ids are 1 to 255 bytes of UTF-8 without control characters.',
    todo: 'The answer to the publisher says which one.' },
  { metric: event('bad_data'), title: 'Data that is no JSON',
    means: 'Or JSON that goes too deep.', todo: 'The answer says at which byte.' },
  { metric: event('bad_option'), title: 'Bad option',
    means: 'A member of the event that isn’t known.', todo: 'The answer names it.' },
  { metric: event('kept'), title: 'No room for a kept value',
    means: 'limits.kept_bytes_max, or an eighth of history.bytes, is reached.',
    todo: 'Clear some by "keep":true with "data":null, or raise both.' },
  { metric: brain('forgets_refused'), title: 'Users that were not deleted',
    means: 'limits.forgotten_users_max still have traces in the history.',
    todo: 'Wait until history.retention has taken some, or raise it.' },
  { metric: brain('status_refused'), title: 'Too many look at the console',
    means: 'limits.status_readers_max follow the status, or wait for the next sample.',
    todo: 'Raise it.' },
  { metric: follow('too_many_follows'), title: 'A user follows too much',
    means: 'limits.follows_per_user_max.', todo: 'Raise it, or let users unfollow.' },
  { metric: follow('too_many_ids'), title: 'No room for new ids',
    means: 'Follows named ids that nobody used before, and limits.ids_max has no room.',
    todo: 'Raise limits.ids_max.' },
  { metric: follow('too_many_new_ids'), title: 'A user names too many new ids',
    means: 'limits.new_ids_per_user_max.', todo: 'Usually somebody who makes up names.' },
  { metric: follow('store'), title: 'The store takes no follow',
    means: 'Its disk is full or can’t be written.', todo: 'Make room on the disk of data.dir.' },
] };

const DISK: Group = { title: 'History and disk', refusals: [
  { metric: labelled('gaps', 'reason', 'too_old'), title: 'Gaps: away for too long',
    means: 'Clients came back after history.retention, and were told what they may have missed.',
    todo: 'If that is too often, keep more: history.retention and history.bytes.' },
  { metric: labelled('gaps', 'reason', 'damaged'), title: 'Gaps: damaged history',
    means: 'A part of the history can’t be read back.',
    todo: 'Look at the disk; the log names it.' },
  { metric: labelled('gaps', 'reason', 'other_store'), title: 'Gaps: cursors of another store',
    means: 'Clients came with cursors of another data.dir, and were told so.',
    todo: 'Expected after a new data.dir or an old backup; else somebody mixes servers up.' },
  { metric: labelled('gaps', 'reason', 'malformed'), title: 'Gaps: cursors that are none',
    means: 'Clients came with something that Halley never gave as a cursor.',
    todo: 'Which client is it? A cursor goes back as it came.' },
  { metric: brain('history_errors'), title: 'Events that could not be written',
    means: 'The disk of data.dir refused; the publishers were told 503.',
    todo: 'Is it full or failing? Server → History says how it is now.' },
  { metric: brain('history_moved'), title: 'data.dir was taken away',
    means: 'It was moved, removed or replaced while Halley ran, so nothing is written there.',
    todo: 'Put it back, or restart Halley with the right one.' },
  { metric: brain('history_damaged_records'), title: 'Damaged records of the history',
    means: 'They could not be read back; who should have them is told a gap.',
    todo: 'Look at the disk; docs/guides/backup.md says what else.' },
  { metric: brain('history_descriptor_waits'), title: 'Waits for a descriptor',
    means: 'Too many files were open to read the history at once; readers waited 100 ms each.',
    todo: 'Raise the limit of descriptors (ulimit -n) if it goes on.' },
  { metric: brain('position_errors'), title: 'Notes that could not be written',
    means: 'Of how far the files had come. The next start looks through more of them.',
    todo: 'Make room on the disk of data.dir.' },
  { metric: brain('store_checkpoint_failures'), title: 'Checkpoints that failed',
    means: 'Of follows and ids. Nothing is lost: the journal has everything, and grows.',
    todo: 'Make room on the disk of data.dir.' },
] };

const linkBroken = (reason: string): string => labelled('links_broken', 'reason', reason);

const LINKS: Group = { title: 'Between brain and edge', refusals: [
  { metric: linkBroken('silence'), title: 'A worker was silent',
    means: 'It said nothing for too long, and its link was closed. It links again by itself.',
    todo: 'Is the machine out of memory or of processor time? Look at Workers.' },
  { metric: linkBroken('overloaded'), title: 'A link was overloaded',
    means: 'A worker asked for more than the brain answers at once.',
    todo: 'If it goes on, publish in batches, and look at what is sent to the API.' },
  ...['bad_frame', 'version', 'handshake', 'flow_control'].map((reason) => ({
    metric: linkBroken(reason), title: `A link was closed: ${reason.replaceAll('_', ' ')}`,
    means: 'What a worker sent breaks the protocol between edge and brain.',
    todo: 'Are brain and edge of one release? If they are, it is a fault of Halley’s: the log has '
      + 'what to report.' })),
  { metric: edge('link_errors'), title: 'The edge closed a link',
    means: 'The brain was silent for too long, or broke the protocol.',
    todo: 'Expected when the brain stands still or is killed; the edge links again.' },
  { metric: brain('metric_lists_refused'), title: 'Metrics of a worker not shown',
    means: 'Edges of more releases than are remembered were linked.',
    todo: 'Run edges of one release.' },
] };

const OTHERS: Group = { title: 'PostgreSQL, hooks, back ends', refusals: [
  { metric: brain('postgres_failures'), title: 'The stream from PostgreSQL ended',
    means: 'Or it couldn’t begin. It is tried again; what was committed comes then.',
    todo: './halley postgres check says what is wrong.' },
  { metric: brain('postgres_losses'), title: 'PostgreSQL’s slot had lost changes',
    means: 'The tables were copied anew. What was published meanwhile may be missing.',
    todo: 'Raise max_slot_wal_keep_size there.' },
  { metric: brain('postgres_rejected'), title: 'Messages that are no events',
    means: 'Messages or rows of the outbox that are no events.',
    todo: 'The log names the first ones.' },
  { metric: brain('postgres_follows_refused'), title: 'Rows that are no follows',
    means: 'Or one too many for their user (limits.follows_per_user_max).',
    todo: 'The log names the first ones.' },
  ...Object.entries({ away: 'is away', late: 'is late', unknown: 'did not say' })
    .map(([reason, how]) => ({
      metric: labelled('postgres_writes_failed', 'reason', reason),
      title: `Follows not changed: PostgreSQL ${how}`,
      means: 'Changes of follows that were answered with 503.',
      todo: 'Ask again. ./halley postgres check says how it is.' })),
  { metric: brain('postgres_writes_refused'), title: 'Follows that the table can’t have',
    means: 'A rule of the table refuses them.', todo: 'The answer says which one.' },
  { metric: brain('hooks_failures'), title: 'Hooks not taken',
    means: 'hooks.url gave no answer 2xx. They wait on disk and are sent again.',
    todo: './halley hooks check says what your server answers.' },
  { metric: brain('hooks_gaps'), title: 'Hooks that are missing',
    means: 'Retention or damage took what hooks.url hadn’t been told; it was told a gap.',
    todo: 'Your server was away for longer than history.retention: keep more.' },
  { metric: brain('hooks_write_errors'), title: 'Hooks that could not be written',
    means: 'Their queue on disk refused; they are made again from the history.',
    todo: 'Make room on the disk of data.dir.' },
  { metric: brain('remote_requests_refused'), title: 'Requests of back ends refused',
    means: 'limits.remote_requests_max at the same time, or they couldn’t be read.',
    todo: 'Publish several events in one request.' },
  { metric: brain('remote_messages_refused'), title: 'Messages of back ends not taken',
    means: 'They are for nobody who takes them, or have an atom that this node doesn’t know.',
    todo: 'Are both of one release? docs/internals/remote.md has what may be sent.' },
  { metric: brain('remote_busy'), title: 'Messages to back ends that waited',
    means: 'The back end takes them more slowly than they come. They were tried again.',
    todo: 'Is it overloaded, or the way to it slow?' },
  { metric: brain('remote_logins_refused'), title: 'Sessions of back ends refused',
    means: 'limits.remote_sessions_max, or limits.sessions_per_user_max of that user.',
    todo: 'Raise them, or let fewer processes log in.' },
] };

export const GROUPS: Group[] = [SLOW, DOOR, TLS, TOKENS, SERVERS, EVENTS, DISK, LINKS, OTHERS];

type Counted = Record<string, [total: number, lately: number]>;

/** What has a label of its own for each back end, all together. */
function sum(counted: Counted, metric: string): [number, number] {
  return Object.entries(counted).filter(([name]) => name.startsWith(`${metric}{`))
    .reduce(([total, lately], [, one]) => [total + one[0], lately + one[1]], [0, 0]);
}

/** In all, and lately, of what is counted. */
export function told(counted: Counted = {}): { refusal: Refusal; total: number; lately: number }[] {
  return GROUPS.flatMap((group) => group.refusals).map((refusal) => {
    const [total, lately] = counted[refusal.metric] ?? sum(counted, refusal.metric);
    return { refusal, total, lately };
  });
}
