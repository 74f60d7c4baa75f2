/* Version, health, the front page and metrics. */
#include "api/server/server_internal.h"

void show_version(struct call *c)
{
    AUTO_BUF b = {0};

    buf_init(&b, 1 << 16);
    buf_str(&b, "{\"major\":\"1\",\"minor\":\"36\",");
    buf_printf(&b, "\"gitVersion\":\"v1.36.0+hanse-%s\",", c->api->cfg.version);
    json_pair(&b, "gitCommit", c->api->cfg.git_commit ? c->api->cfg.git_commit : "", true);
    buf_str(&b, "\"gitTreeState\":\"clean\",\"buildDate\":\"1970-01-01T00:00:00Z\",\"goVersion\":"
                "\"none\",\"compiler\":\"gcc\","
                "\"platform\":\"linux/amd64\",");
    json_pair(&b, "hanse", c->api->cfg.version, true);
    json_pair(&b, "member", c->api->cfg.member_name ? c->api->cfg.member_name : "", false);
    buf_str(&b, "}\n");
    call_reply_buf(c, 200, &b);
}

void show_health(struct call *c)
{
    call_reply(c, 200, "text/plain", "ok\n", 3);
}

void show_ready(struct call *c)
{
    AUTO_BUF why = {0};

    buf_init(&why, 1 << 16);
    bool ready = !c->api->ops->ready || c->api->ops->ready(c->api->b, &why);
    AUTO_BUF text = {0};
    buf_init(&text, 1 << 17);
    buf_str(&text, ready ? "ok\n" : why.n ? "" : "not ready\n");
    buf_add(&text, why.p, why.n); /* what is wrong is told also by who is ready */
    call_reply(c, ready ? 200 : 503, "text/plain", text.p, text.n);
}

void show_index(struct call *c)
{
    size_t n;
    const struct route *r = route_table(&n);
    AUTO_BUF b = {0};
    bool first = true;

    buf_init(&b, 1 << 16);
    buf_str(&b, "{\"paths\":[");
    for (size_t i = 0; i < n; i++)
        if (!*r[i].domain && !strchr(r[i].pattern, '{')) {
            buf_printf(&b, "%s\"/%s\"", first ? "" : ",", r[i].pattern);
            first = false;
        }
    buf_str(&b, ",\"/apis/hanse.dev\",\"/apis/hanse.dev/v1alpha1\"]}\n");
    call_reply_buf(c, 200, &b);
}

void show_metrics(struct call *c)
{
    const struct api *a = c->api;
    AUTO_BUF b = {0};

    buf_init(&b, 16 << 20);
    buf_str(&b, "# TYPE hanse_api_requests_total counter\n");
    for (unsigned i = 2; i < 6; i++)
        buf_printf(&b, "hanse_api_requests_total{code=\"%uxx\"} %llu\n", i,
                   (unsigned long long)a->counters.by_class[i]);
    buf_printf(&b, "# TYPE hanse_api_requests_open gauge\nhanse_api_requests_open %llu\n",
               (unsigned long long)a->calls);
    buf_printf(&b, "# TYPE hanse_api_watches gauge\nhanse_api_watches %llu\n",
               (unsigned long long)hub_watches(a->hub));
    buf_printf(&b,
               "# TYPE hanse_api_watch_events_total counter\nhanse_api_watch_events_total %llu\n",
               (unsigned long long)a->counters.watch_events);
    buf_printf(
        &b,
        "# TYPE hanse_api_watch_overflows_total counter\nhanse_api_watch_overflows_total %llu\n",
        (unsigned long long)a->counters.watch_overflows);
    buf_printf(&b, "# TYPE hanse_api_writes_total counter\nhanse_api_writes_total %llu\n",
               (unsigned long long)a->counters.writes);
    buf_printf(
        &b,
        "# TYPE hanse_api_write_conflicts_total counter\nhanse_api_write_conflicts_total %llu\n",
        (unsigned long long)a->counters.conflicts);
    fair_metrics(a->fair, &b);
    if (a->ops->metrics)
        a->ops->metrics(a->b, &b);
    call_reply(c, 200, "text/plain; version=0.0.4; charset=utf-8", b.p, b.n);
}
