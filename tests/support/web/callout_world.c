/* See callout_world.h. Written from the protocol's README, not from the driver. */
#include "tests/support/web/callout_world.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct callout_world callout_world;
#define W callout_world
static bool bad; /* the fault is for what is asked now */

static void hex(const unsigned char *p, char out[65])
{
    for (unsigned i = 0; i < 32; i++)
        (void)snprintf(out + 2 * i, 3, "%02x", p[i]);
}

static void digest(const void *p, size_t n, char out[65])
{
    unsigned char d[32];

    INV(EVP_Digest(p, n, d, NULL, EVP_sha256(), NULL) == 1);
    hex(d, out);
}

static void mac(const char *text, char out[65])
{
    unsigned char d[32];
    unsigned n = 32;

    INV(HMAC(EVP_sha256(), W.key, (int)strlen(W.key), (const unsigned char *)text, strlen(text), d,
             &n));
    hex(d, out);
}

/* ---- runs ---- */
struct callout_world_run *callout_world_run(const struct run_key *k)
{
    for (size_t i = 0; i < W.n_runs; i++)
        if (!strcmp(W.runs[i].key.uid, k->uid) && W.runs[i].key.epoch == k->epoch &&
            W.runs[i].key.try_ == k->try_)
            return &W.runs[i];
    return NULL;
}

static struct callout_world_run *run_add(const struct run_key *k, enum run_state state)
{
    struct callout_world_run *r = &W.runs[W.n_runs++];

    INV(W.n_runs <= CALLOUT_WORLD_RUNS);
    *r = (struct callout_world_run){.key = *k, .state = state, .changed = ++W.changes};
    return r;
}

static bool superseded(const struct run_key *k)
{
    for (size_t i = 0; i < W.n_runs; i++) {
        const struct run_key *o = &W.runs[i].key;
        if (!strcmp(o->uid, k->uid) &&
            (o->epoch > k->epoch || (o->epoch == k->epoch && o->try_ > k->try_)))
            return true;
    }
    return false;
}

void callout_world_end_run(struct callout_world_run *r, int exit_code)
{
    if (r->state != RUN_RUNNING)
        return;
    r->state = RUN_ENDED;
    r->exit_code = exit_code;
    r->changed = ++W.changes;
}

void callout_world_seat_run(struct callout_world_run *r, const char *node)
{
    r->node = node;
    r->state = RUN_RUNNING;
    r->changed = ++W.changes;
}

static void print_run(const struct callout_world_run *r, struct buf *b)
{
    static const char *const states[] = {[RUN_ABSENT] = "absent",
                                         [RUN_PENDING] = "pending",
                                         [RUN_RUNNING] = "running",
                                         [RUN_ENDED] = "ended"};
    enum callout_fault f = bad ? W.fault : FAULT_NO;
    bool lies = f == FAULT_NO_PROOF || f == FAULT_LEASE || f == FAULT_RANGE;
    char key[RUN_KEY_MAX];

    run_key_print(&r->key, key);
    buf_printf(b, "{\"key\":\"%s\",\"state\":\"%s\"", f == FAULT_OTHER ? "x.1.1" : key,
               lies ? "ended" : states[r->state]);
    if (f == FAULT_LEASE)
        buf_str(b, ",\"proof\":\"LeaseExpired\"");
    else if (f == FAULT_RANGE)
        buf_str(b, ",\"proof\":\"AccountingEnd\",\"signal\":99999999");
    else if (!lies && r->state == RUN_ABSENT)
        buf_str(b, ",\"proof\":\"NeverStarted\"");
    else if (!lies && r->state == RUN_ENDED)
        buf_printf(b, ",\"proof\":\"%s\",\"exitCode\":%d,\"signal\":%d",
                   r->searched ? "ProcessTreeSearched" : "AccountingEnd", r->exit_code,
                   r->term_signal);
    if (r->reports)
        buf_printf(b, ",\"reports\":%s", r->reports);
    if (r->node)
        buf_printf(b, ",\"workers\":[{\"rank\":0,\"node\":\"%s\",\"gpus\":[3]}]", r->node);
    else if (!lies && r->state == RUN_ENDED)
        buf_printf(b,
                   ",\"workers\":[{\"rank\":0,\"exitCode\":%d,\"startedAt\":1000,\"endedAt\":2000,"
                   "\"reason\":\"CheckpointTorn\",\"id\":\"pod/7\"}%s%s],\"clock\":2500",
                   r->exit_code, r->workers ? "," : "", r->workers ? r->workers : "");
    else if (r->workers)
        buf_printf(b, ",\"workers\":[%s]", r->workers);
    buf_str(b, ",\"somethingNew\":{\"a\":[1]}}");
}

/* ---- requests ---- */
static int64_t number_of(const char *url, const char *name)
{
    const char *at = strstr(url, name);

    return at ? strtoll(at + strlen(name), NULL, 10) : -1;
}

static void changes(const char *url, struct buf *b, struct script_reply *ret)
{
    int64_t after = number_of(url, "after=");
    bool first = true;

    W.polls++;
    if ((uint64_t)after == W.changes)
        ret->after_ms = 100; /* it holds the question a little, and has nothing */
    buf_printf(b, "{\"instance\":\"i%u\",\"next\":%llu,\"revision\":\"r%llu\",\"runs\":[",
               W.instance, (unsigned long long)W.changes, (unsigned long long)W.revision);
    for (size_t i = 0; i < W.n_runs; i++) {
        if (W.runs[i].changed <= (uint64_t)after)
            continue;
        buf_str(b, first ? "" : ",");
        print_run(&W.runs[i], b);
        first = false;
    }
    if (W.row && W.row_changed > (uint64_t)after)
        buf_printf(b, "%s%s", first ? "" : ",", W.row);
    buf_str(b, "]}");
}

void callout_world_row(const char *row)
{
    W.row = row;
    W.row_changed = ++W.changes;
}

static void list(const char *url, struct buf *b)
{
    size_t from = (size_t)number_of(url, "after="), page = W.page ? W.page : CALLOUT_WORLD_RUNS;
    size_t to = from + page < W.n_runs ? from + page : W.n_runs;

    buf_str(b, "{\"runs\":[");
    for (size_t i = from; i < to; i++) {
        buf_str(b, i > from ? "," : "");
        print_run(&W.runs[i], b);
    }
    if (W.row && !from)
        buf_printf(b, "%s%s", to ? "," : "", W.row);
    buf_printf(b, to < W.n_runs ? "],\"next\":\"%zu\"}" : "]}", to);
}

void callout_world_node(const char *name, unsigned cpu)
{
    size_t i = 0;

    while (i < W.n_nodes && strcmp(W.nodes[i].name, name) != 0)
        i++;
    INV(i < sizeof W.nodes / sizeof W.nodes[0]);
    W.n_nodes += i == W.n_nodes;
    (void)snprintf(W.nodes[i].name, sizeof W.nodes[i].name, "%s", name);
    W.nodes[i].cpu = cpu;
    W.nodes[i].changed = ++W.revision;
}

/* All from a place on, or what changed after a revision. */
static void nodes(const char *url, struct buf *b, struct script_reply *ret)
{
    const char *asked = strstr(url, "since=r");
    uint64_t since = asked && !W.no_deltas ? strtoull(asked + 7, NULL, 10) : 0, to = W.revision;
    size_t from = asked ? 0 : (size_t)number_of(url, "after="), n = 0, i;
    size_t page = W.page && !since ? W.page : W.n_nodes;
    const char *comma = "";

    ret->after_ms = W.nodes_ms;
    if (W.nodes_page) {
        buf_str(b, W.nodes_page);
        return;
    }
    if (since && since < W.forgotten) {
        ret->status = 410;
        return;
    }
    if (since && W.small_deltas && since < to)
        to = since + 1;
    W.deltas += since != 0;
    W.listings += !since && !from;
    buf_printf(b, "{\"revision\":\"r%llu\",\"nodes\":[", (unsigned long long)to);
    for (i = from; i < W.n_nodes && n < page; i++, n++) {
        const struct callout_world_node *v = &W.nodes[i];
        if (!v->cpu || v->changed <= since || v->changed > to)
            continue;
        buf_printf(b, "%s{\"name\":\"%s\",\"cpu\":\"%u\"%s%s%s%s%s%s%s%s}", comma, v->name, v->cpu,
                   v->devices ? "," : "", v->devices ? v->devices : "",
                   v->notice ? ",\"notice\":" : "", v->notice ? v->notice : "",
                   v->others ? ",\"others\":" : "", v->others ? v->others : "",
                   v->faults ? ",\"faults\":" : "", v->faults ? v->faults : "");
        comma = ",";
    }
    buf_str(b, "]");
    if (since) {
        buf_printf(b, ",\"since\":\"r%llu\",\"removed\":[", (unsigned long long)since);
        comma = "";
        for (size_t g = 0; g < W.n_nodes; g++) {
            const struct callout_world_node *v = &W.nodes[g];
            if (v->cpu || v->changed <= since || v->changed > to)
                continue;
            buf_printf(b, "%s\"%s\"", comma, v->name);
            comma = ",";
        }
        buf_str(b, "]");
    }
    if (i < W.n_nodes)
        buf_printf(b, ",\"next\":\"%zu\"", i);
    buf_str(b, "}");
}

static int submit(const struct script_try *t, const struct run_key *k, struct buf *b)
{
    struct callout_world_run *r = callout_world_run(k);

    W.orders++;
    (void)snprintf(W.order, sizeof W.order, "%.*s", (int)t->body.n, (const char *)t->body.p);
    if ((r && r->state == RUN_ABSENT) || (!r && superseded(k))) {
        buf_str(b, "{\"message\":\"that key is refused\"}");
        return 409;
    }
    if (!r) {
        r = run_add(k, W.queues ? RUN_PENDING : RUN_RUNNING);
        r->starts++;
        if (strstr(W.order, "\"ends-at-once\""))
            callout_world_end_run(r, 3);
    }
    print_run(r, b);
    return 200;
}

static int about(const struct script_try *t, const struct run_key *k, const char *verb,
                 struct buf *b)
{
    struct callout_world_run *r = callout_world_run(k), absent = {.key = *k, .state = RUN_ABSENT};
    char body[1024];

    if (!r && superseded(k))
        r = &absent;
    r = r ? r : run_add(k, RUN_ABSENT);
    (void)snprintf(body, sizeof body, "%.*s", (int)t->body.n, (const char *)t->body.p);
    if (!strcmp(verb, "signal") && strstr(body, "\"signal\":10"))
        callout_world_end_run(r, 75);
    if (!strcmp(verb, "stop")) {
        r->stopped = true;
        if (r->state == RUN_RUNNING) { /* told as it is; the end comes with the changes */
            print_run(r, b);
            callout_world_end_run(r, 143);
            return 200;
        }
    }
    print_run(r, b);
    return 200;
}

static int serve_run(const struct script_try *t, const char *path, struct buf *b)
{
    char name[RUN_KEY_MAX], verb[16] = "";
    struct run_key k;

    INV(sscanf(path, "/v1/runs/%111[^/]/%15s", name, verb) >= 1);
    INV(run_key_parse(name, &k, NULL) == 0);
    if (!strcmp(t->method, "PUT"))
        return submit(t, &k, b);
    if (!strcmp(t->method, "DELETE")) {
        buf_str(b, "{}");
        return 200;
    }
    return about(t, &k, verb, b);
}

static int stage(const struct script_try *t, const char *skey, struct buf *b)
{
    (void)snprintf(W.order, sizeof W.order, "%.*s", (int)t->body.n, (const char *)t->body.p);
    (void)snprintf(W.skey, sizeof W.skey, "%s", skey);
    W.n_staged++;
    buf_printf(b, "{\"key\":\"%s\",%s}", skey, W.staged);
    return W.staged_status ? W.staged_status : 200;
}

static bool authorised(const struct script_try *t, const char *path)
{
    char d[65], text[1024], wanted[65];

    digest(t->body.p, t->body.n, d);
    (void)snprintf(text, sizeof text, "hanse-callout-v1\n%s\n%s\n%s\n%s\n", t->method, path,
                   script_header(t, "hanse-date"), d);
    mac(text, wanted);
    return !strcmp(wanted, script_header(t, "Hanse-Signature")) &&
           llabs(strtoll(script_header(t, "hanse-date"), NULL, 10) - loop_wall_ms(W.loop)) < 300000;
}

static void sign(const struct script_try *t, struct script_reply *ret)
{
    char d[65], text[1024], *value = ret->room + sizeof ret->room - 128;

    digest(ret->body, strlen(ret->body), d);
    (void)snprintf(text, sizeof text, "hanse-callout-v1 answer\n%s\n%d\n%s\n",
                   script_header(t, "Hanse-Signature"), ret->status, d);
    mac(bad && W.fault == FAULT_FORGED ? "something else" : text, value);
    ret->headers[ret->n_headers++] = (struct web_header){"Hanse-Signature", value};
}

static void misbehave(struct script_reply *ret)
{
    static char deep[40001];

    switch (W.fault) {
    case FAULT_HTML:
        ret->body = "<html>It works!</html>";
        break;
    case FAULT_DEEP:
        memset(deep, '[', sizeof deep - 1);
        ret->body = deep;
        break;
    case FAULT_HALF:
        ret->how = SCRIPT_HALVES;
        break;
    case FAULT_LOST:
        ret->how = SCRIPT_IS_SILENT;
        break;
    case FAULT_FLOOD:
        ret->how = SCRIPT_FLOODS;
        break;
    case FAULT_TRICKLE:
        ret->how = SCRIPT_TRICKLES;
        break;
    case FAULT_REDIRECT:
        ret->status = 307;
        ret->headers[ret->n_headers++] = (struct web_header){"Location", "https://other.test/"};
        break;
    case FAULT_500:
        ret->status = 500;
        break;
    default:
        break;
    }
}

static void serve(void *arg, const struct script_try *t, struct script_reply *ret)
{
    const char *path = strstr(t->url, "/v1/");
    bool run = strncmp(path, "/v1/runs/", 9) == 0;
    struct buf b;

    (void)arg;
    if (W.silent) {
        ret->how = SCRIPT_IS_SILENT;
        return;
    }
    ret->status = 200;
    bad = run;
    if (!authorised(t, strchr(t->url + strlen("https://"), '/'))) {
        W.unauthorised++;
        ret->status = 401;
        ret->body = "{}";
        return;
    }
    buf_init(&b, sizeof ret->room - 256);
    if (!strcmp(path, "/v1/hello"))
        buf_printf(&b, "{\"version\":1,\"instance\":\"i%u\",\"next\":%llu%s%s%s%s%s%s}", W.instance,
                   (unsigned long long)W.changes, W.repeats ? ",\"repeats\":true" : "",
                   W.principals ? ",\"principals\":true" : "",
                   W.starts_by ? ",\"startBy\":true" : "", W.reports ? ",\"reports\":true" : "",
                   W.runner ? ",\"runner\":true" : "", W.stages ? ",\"stages\":true" : "");
    else if (!strncmp(path, "/v1/changes", 11))
        changes(path, &b, ret);
    else if (!strncmp(path, "/v1/nodes", 9))
        nodes(path, &b, ret);
    else if (!strncmp(path, "/v1/machines", 12) || !strcmp(path, "/v1/prices"))
        buf_printf(&b, "%s", strstr(path, "after=more") ? W.more_machines : W.machines);
    else if (!strncmp(path, "/v1/runs?", 9))
        list(path, &b);
    else if (!strncmp(path, "/v1/stages/", 11))
        ret->status = stage(t, path + 11, &b);
    else if (W.fault == FAULT_BUSY) /* nothing is done */
        ret->status = 503;
    else
        ret->status = serve_run(t, path, &b);
    (void)snprintf(ret->room, sizeof ret->room - 256, "%s", b.n ? b.p : "{}");
    buf_fini(&b);
    ret->body = ret->room;
    if (run && strstr(path, "/find"))
        ret->after_ms = W.find_ms;
    if (run && W.fault == FAULT_BUSY)
        ret->headers[ret->n_headers++] = (struct web_header){"Retry-After", "7"};
    if (run)
        misbehave(ret);
    if (!run || (W.fault != FAULT_UNSIGNED && W.fault != FAULT_HTML && W.fault != FAULT_REDIRECT &&
                 W.fault != FAULT_500))
        sign(t, ret);
    if (run)
        W.fault = FAULT_NO;
}

void callout_world_begin(struct loop *l)
{
    W = (struct callout_world){.loop = l, .key = CALLOUT_WORLD_KEY, .instance = 1};
    callout_world_node("n1", 8);
    script_web = (struct script){.serve = serve};
}
