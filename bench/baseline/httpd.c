/*
 * The libevent server of "A Million-user Comet Application with Mochiweb, Part 3" (2008), written
 * anew on libevent 2.1: a C process that holds the connections and knows nothing else.
 *
 *     GET  /test/USER/CHANNEL   chunked text/html without an end: a welcome, a line per message
 *     POST /publish/CHANNEL     the body to every stream of CHANNEL: {"sessions":N}
 *
 * As there: one thread, one event loop, one evhttp request per connection that never ends, one
 * chunk per message. What differs: messages come over HTTP, where the article's came from an
 * Erlang node, and are for a channel, where the article's router had looked the users up already.
 * So it is the pool of connections without a router beside it, which is to its advantage.
 *
 * Settings: an epoll change list, which libevent's manual (event2/event.h,
 * EVENT_BASE_FLAG_EPOLL_USE_CHANGELIST) offers for fewer system calls; TCP_NODELAY; no timeout
 * that would end a quiet stream. All memory is bounded by the connections, of which the limit of
 * descriptors allows so many.
 */
#include <err.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include <event2/buffer.h>
#include <event2/event.h>
#include <event2/http.h>
#include <event2/listener.h>

enum {
    BACKLOG = 1024,
    BUCKETS = 65536, /* a power of two */
    NAME_BYTES_MAX = 255,
    MESSAGE_BYTES_MAX = 65536,
    STREAM_SECONDS_MAX = 864000 /* the article's ten days */
};

struct channel;

struct stream {
    struct evhttp_request *request;
    struct channel *channel;
    LIST_ENTRY(stream) others;
};

/* A channel exists as long as it has a stream. */
struct channel {
    LIST_HEAD(, stream) streams;
    LIST_ENTRY(channel) others;
    char name[];
};

static LIST_HEAD(bucket, channel) channels[BUCKETS];

static void *allocate(size_t bytes)
{
    void *memory = malloc(bytes);
    if (memory == NULL)
        err(1, "%zu bytes", bytes);
    return memory;
}

/* FNV-1a. */
static struct bucket *bucket_of(const char *name)
{
    uint32_t hash = 2166136261u;
    for (; *name != '\0'; name++)
        hash = (hash ^ (unsigned char)*name) * 16777619u;
    return &channels[hash & (BUCKETS - 1)];
}

static struct channel *find(const char *name)
{
    struct channel *channel;
    LIST_FOREACH(channel, bucket_of(name), others) {
        if (strcmp(channel->name, name) == 0)
            return channel;
    }
    return NULL;
}

static struct channel *find_or_make(const char *name)
{
    struct channel *channel = find(name);
    if (channel == NULL) {
        channel = allocate(sizeof *channel + strlen(name) + 1);
        strcpy(channel->name, name);
        LIST_INIT(&channel->streams);
        LIST_INSERT_HEAD(bucket_of(name), channel, others);
    }
    return channel;
}

/* What `path` has after `prefix`, if that is a name. */
static const char *name_after(const char *path, const char *prefix)
{
    size_t length = strlen(prefix);
    if (strncmp(path, prefix, length) != 0)
        return NULL;
    const char *name = path + length;
    size_t bytes = strlen(name);
    return bytes > 0 && bytes <= NAME_BYTES_MAX && strchr(name, '/') == NULL ? name : NULL;
}

static void gone(struct evhttp_connection *connection, void *argument)
{
    struct stream *stream = argument;
    struct channel *channel = stream->channel;
    (void)connection;
    LIST_REMOVE(stream, others);
    free(stream);
    if (LIST_EMPTY(&channel->streams)) {
        LIST_REMOVE(channel, others);
        free(channel);
    }
}

static void send_line(struct evhttp_request *request, const void *text, size_t bytes)
{
    struct evbuffer *line = evbuffer_new();
    if (line == NULL || evbuffer_expand(line, bytes + 1) != 0)
        err(1, "a line");
    evbuffer_add(line, text, bytes);
    evbuffer_add(line, "\n", 1);
    evhttp_send_reply_chunk(request, line);
    evbuffer_free(line);
}

static void open_stream(struct evhttp_request *request, const char *name)
{
    struct evhttp_connection *connection = evhttp_request_get_connection(request);
    struct stream *stream = allocate(sizeof *stream);
    stream->request = request;
    stream->channel = find_or_make(name);
    LIST_INSERT_HEAD(&stream->channel->streams, stream, others);
    evhttp_connection_set_closecb(connection, gone, stream);
    evhttp_add_header(evhttp_request_get_output_headers(request), "Content-Type",
                      "text/html; charset=utf-8");
    evhttp_send_reply_start(request, HTTP_OK, "OK");
    send_line(request, "welcome", strlen("welcome"));
}

static void answer(struct evhttp_request *request, int status, const char *reason, size_t sessions)
{
    struct evbuffer *body = evbuffer_new();
    if (body == NULL)
        err(1, "an answer");
    if (status == HTTP_OK)
        evbuffer_add_printf(body, "{\"sessions\":%zu}", sessions);
    evhttp_send_reply(request, status, reason, body);
    evbuffer_free(body);
}

static void publish(struct evhttp_request *request, const char *name)
{
    struct evbuffer *body = evhttp_request_get_input_buffer(request);
    struct channel *channel = find(name);
    size_t bytes = evbuffer_get_length(body), sessions = 0;
    if (channel != NULL) {
        const void *message = evbuffer_pullup(body, -1);
        struct stream *stream;
        LIST_FOREACH(stream, &channel->streams, others) {
            send_line(stream->request, message, bytes);
            sessions++;
        }
    }
    answer(request, HTTP_OK, "OK", sessions);
}

static void handle(struct evhttp_request *request, void *argument)
{
    const char *path = evhttp_uri_get_path(evhttp_request_get_evhttp_uri(request));
    enum evhttp_cmd_type method = evhttp_request_get_command(request);
    const char *slash = strrchr(path, '/');
    const char *name;
    (void)argument;

    if (method == EVHTTP_REQ_POST && (name = name_after(path, "/publish/")) != NULL)
        publish(request, name);
    else if (method == EVHTTP_REQ_GET && strncmp(path, "/test/", 6) == 0 && slash > path + 6
             && (name = name_after(slash, "/")) != NULL)
        open_stream(request, name);
    else
        answer(request, HTTP_NOTFOUND, "GET /test/USER/CHANNEL, POST /publish/CHANNEL", 0);
}

static void stop(evutil_socket_t signal, short what, void *base)
{
    (void)signal;
    (void)what;
    event_base_loopbreak(base);
}

static struct evconnlistener *listen_on(struct event_base *base, const char *port)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET,
        .sin_port = htons((uint16_t)atoi(port)),
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
    };
    struct evconnlistener *listener = evconnlistener_new_bind(
        base, NULL, NULL, LEV_OPT_REUSEABLE | LEV_OPT_CLOSE_ON_FREE, BACKLOG,
        (struct sockaddr *)&address, sizeof address);
    int on = 1;
    if (listener == NULL)
        err(1, "can't listen on port %s", port);
    /* Linux hands the option on to what is accepted. */
    setsockopt(evconnlistener_get_fd(listener), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return listener;
}

int main(int count, char **words)
{
    if (count != 2)
        errx(2, "usage: httpd PORT");
    struct event_config *config = event_config_new();
    if (config == NULL || event_config_set_flag(config, EVENT_BASE_FLAG_EPOLL_USE_CHANGELIST) != 0)
        errx(1, "libevent can't be configured");
    struct event_base *base = event_base_new_with_config(config);
    event_config_free(config);
    struct evhttp *server = base == NULL ? NULL : evhttp_new(base);
    if (server == NULL || evhttp_bind_listener(server, listen_on(base, words[1])) == NULL)
        errx(1, "libevent has no event loop for a server here");
    evhttp_set_timeout(server, STREAM_SECONDS_MAX);
    evhttp_set_max_body_size(server, MESSAGE_BYTES_MAX);
    evhttp_set_gencb(server, handle, NULL);
    struct event *ended = evsignal_new(base, SIGTERM, stop, base);
    if (ended == NULL || event_add(ended, NULL) != 0)
        errx(1, "can't wait for SIGTERM");
    event_base_dispatch(base);
    event_free(ended);
    evhttp_free(server);
    event_base_free(base);
    return 0;
}
