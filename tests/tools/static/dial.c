/* What a static program of ours finds and whom it trusts: dial HOST:PORT CA_FILE. Prints "open NAME
 * ADDRESS" and ends with 0, or why it was closed, and ends with 1. */
#include "api/base/loop/loop.h"
#include "api/base/net/tls.h"

#include <stdio.h>

#define PATIENCE_MS 30000

struct dial {
    struct loop *loop;
    bool open;
};

static void on_open(struct stream *s, void *arg)
{
    struct dial *d = arg;

    d->open = true;
    printf("open %s\n", stream_peer(s)->name);
    stream_close(s);
}

static void on_closed(struct stream *s, const struct err *why, void *arg)
{
    struct dial *d = arg;

    (void)s;
    if (!d->open)
        printf("closed: %s\n", why->text);
    loop_stop(d->loop);
}

int main(int argc, char **argv)
{
    static const struct stream_events events = {.open = on_open, .closed = on_closed};
    struct dial d = {0};
    struct tls_config *tls = NULL;
    struct stream *s;
    struct err err = {0};

    if (argc != 3)
        return 2;
    const struct tls_config_spec spec = {.ca_file = argv[2]};
    if (!(d.loop = loop_uv_create(&err)) || tls_config_create(&spec, false, &tls, &err) < 0 ||
        stream_connect(d.loop, argv[1], tls, ALPN_HTTP, PATIENCE_MS, &events, &d, &s, &err) < 0) {
        printf("failed: %s\n", err.text);
        return 2;
    }
    loop_uv_run(d.loop);
    return !d.open;
}
