/* What a target shows of a run, for `hanse describe`: asked when somebody asks, told as it comes,
 * kept nowhere. Its words are the target's: secrets of the order are taken out of them. */
#include "controlplane/leader/context/hide.h"
#include "controlplane/leader/site/sites.h"

#include <cjson/cJSON.h>
#include <string.h>

#define DETAILS_MS 8000
#define DETAILS_MAX 256 /* asked for at once */

struct details {
    struct brain *b;
    char ns[64], workload[256], target[256];
    void (*cb)(void *arg, const char *json, const struct err *err);
    void *arg;
    struct hidden *hidden; /* while it is told */
};

/* Without what the order has of Secrets, while the workload is there. */
static void put(const struct details *x, cJSON *to, const char *key, const char *text)
{
    char told[512];

    str_cut(told, sizeof told, text);
    hide_with(x->hidden, told);
    (void)cJSON_AddStringToObject(to, key, told);
}

static cJSON *part_json(const struct details *x, const struct run_part *p)
{
    cJSON *j = cJSON_CreateObject();

    put(x, j, "name", p->name);
    put(x, j, "node", p->node);
    if (p->rank >= 0)
        (void)cJSON_AddNumberToObject(j, "rank", (double)p->rank);
    put(x, j, "phase", p->phase);
    put(x, j, "reason", p->reason);
    put(x, j, "message", p->message);
    return j;
}

static cJSON *event_json(const struct details *x, const struct run_event *e)
{
    cJSON *j = cJSON_CreateObject();
    char at[32];

    if (e->at_ms) {
        time_print(e->at_ms, at);
        (void)cJSON_AddStringToObject(j, "lastTimestamp", at);
    }
    (void)cJSON_AddNumberToObject(j, "count", (double)e->count);
    put(x, j, "type", e->type);
    put(x, j, "reason", e->reason);
    put(x, j, "about", e->about);
    put(x, j, "message", e->message);
    return j;
}

/* That nothing could be learned is an answer: who asks need not ask again. */
static void told(void *arg, const struct run_details *d, const struct err *err)
{
    static const struct run_details none = {.lacks = ""};
    struct details *x = arg;
    cJSON *j = cJSON_CreateObject(), *list;

    d = err ? &none : d;
    const struct object *o =
        x->b->leads ? root_get(x->b->root, KIND_WORKLOAD, x->ns, x->workload) : NULL;
    x->hidden = o ? hide_open(x->b, o) : NULL;
    (void)cJSON_AddStringToObject(j, "target", x->target);
    list = cJSON_AddArrayToObject(j, "pods");
    for (size_t i = 0; i < d->n_parts; i++)
        (void)cJSON_AddItemToArray(list, part_json(x, &d->parts[i]));
    list = cJSON_AddArrayToObject(j, "events");
    for (size_t i = 0; i < d->n_events; i++)
        (void)cJSON_AddItemToArray(list, event_json(x, &d->events[i]));
    put(x, j, "lacks", err ? err->text : d->lacks);
    x->hidden = hide_close(x->hidden);
    char *text = cJSON_PrintUnformatted(j);
    x->b->sites->n_details--;
    x->cb(x->arg, text ? text : "{}", NULL);
    cJSON_free(text);
    cJSON_Delete(j);
    mem_free(x);
}

static int can_tell(const struct site *t, const char *target, struct err *err)
{
    if (t && t->connector && !t->connector->ops->details)
        return err_set(err, E_NOTIMPL, "target %.100s is of type %s, which has no pods", target,
                       t->connector->ops->type);
    if (!t || !t->connector || !t->reachable)
        return err_set(err, E_UNAVAIL, "target %.100s is out of reach: %.120s", target,
                       t ? t->why : "it was removed");
    if (t->brain->sites->n_details >= DETAILS_MAX)
        return err_set(err, E_LIMIT, "pods of %d workloads are being asked for", DETAILS_MAX);
    return 0;
}

void brain_pods(struct brain *b, const char *ns, const char *workload,
                void (*cb)(void *arg, const char *json, const struct err *err), void *arg)
{
    struct run_key key = {0};
    const struct object *o;
    const char *target;
    struct err err;

    if (run_last(b, ns, workload, &o, &key, &target, &err) < 0) {
        cb(arg, NULL, &err);
        return;
    }
    const struct site *t = site_find(b, target);
    int rc = can_tell(t, target, &err);
    if (rc == E_NOTIMPL) {
        cb(arg, NULL, &err);
        return;
    }
    struct details *x = mem_new(struct details);
    *x = (struct details){.b = b, .cb = cb, .arg = arg};
    str_copy(x->ns, sizeof x->ns, ns);
    str_copy(x->workload, sizeof x->workload, workload);
    str_copy(x->target, sizeof x->target, target);
    b->sites->n_details++;
    if (rc < 0)
        told(x, NULL, &err);
    else
        t->connector->ops->details(t->connector, &key, loop_now_ms(b->loop) + DETAILS_MS, told, x);
}
