/* Histories as JSON lines. Strict: a line that cannot be understood is an error, for what is left
 * out of a history cannot be found to be wrong. */
#include "tests/support/history/history_internal.h"

#include "api/base/err.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ITEMS_MAX 100000

static const char *const kinds[] = {"", "create", "get", "update", "delete"};
static const char *const outcomes[] = {"unknown", "ok", "absent", "exists", "conflict"};

/* Numbers up to 2^53; `otherwise` when it is not there, or null. */
static uint64_t number(const cJSON *j, const char *name, uint64_t otherwise, bool *ok)
{
    const cJSON *v = cJSON_GetObjectItemCaseSensitive(j, name);

    if (!v || cJSON_IsNull(v))
        return otherwise;
    if (!cJSON_IsNumber(v) || v->valuedouble < 0 || v->valuedouble > 9007199254740992.0 ||
        v->valuedouble != floor(v->valuedouble)) {
        *ok = false;
        return 0;
    }
    return (uint64_t)v->valuedouble;
}
static const char *text(const cJSON *j, const char *name)
{
    const char *s = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(j, name));

    return s ? s : "";
}
static int word(const char *s, const char *const *all, int n)
{
    for (int i = 0; i < n; i++)
        if (*s && !strcmp(s, all[i]))
            return i;
    return -1;
}
static const char *read_op(struct history *h, const cJSON *j, int kind)
{
    int outcome = word(text(j, "outcome"), outcomes, 5);
    bool ok = true;
    struct history_op o = {.called = number(j, "called", HISTORY_NEVER, &ok),
                           .returned = number(j, "returned", HISTORY_NEVER, &ok),
                           .client = (uint32_t)number(j, "client", 0, &ok),
                           .kind = (enum history_kind)kind,
                           .value = number(j, "value", 0, &ok),
                           .expect = number(j, "expect", 0, &ok),
                           .rv = number(j, "rv", 0, &ok)};

    if (!ok)
        return "a number is none";
    if (outcome < 0)
        return "outcome is not one of unknown, ok, absent, exists, conflict";
    o.outcome = (enum history_outcome)outcome;
    if (!*text(j, "key") || strlen(text(j, "key")) >= HISTORY_KEY_MAX)
        return "key is missing, or too long";
    if (o.called == HISTORY_NEVER || (outcome && o.returned == HISTORY_NEVER))
        return "called or returned is missing";
    if (outcome && o.returned < o.called)
        return "it returned before it was called";
    if (!o.value && (kind == HISTORY_CREATE || kind == HISTORY_UPDATE ||
                     (kind == HISTORY_GET && outcome == HISTORY_OK)))
        return "value is missing";
    o.key = history_key(h, text(j, "key"));
    history_add(h, &o);
    return NULL;
}
static const char *read_list(struct history *h, const cJSON *j)
{
    const cJSON *items = cJSON_GetObjectItemCaseSensitive(j, "items"), *it;
    bool ok = true;
    struct history_list l = {.called = number(j, "called", HISTORY_NEVER, &ok),
                             .returned = number(j, "returned", HISTORY_NEVER, &ok),
                             .client = (uint32_t)number(j, "client", 0, &ok),
                             .stale = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(j, "stale")),
                             .rv = number(j, "rv", 0, &ok)};

    if (!strcmp(text(j, "outcome"), "unknown"))
        return NULL; /* a read that was not answered says nothing */
    if (!ok || l.called == HISTORY_NEVER || l.returned == HISTORY_NEVER || l.returned < l.called ||
        !l.rv)
        return "called, returned or rv is missing or wrong";
    if (!cJSON_IsArray(items) || cJSON_GetArraySize(items) > ITEMS_MAX)
        return "items is no list, or too long";
    l.items = mem_zalloc(((size_t)cJSON_GetArraySize(items) + 1) * sizeof *l.items);
    cJSON_ArrayForEach(it, items)
    {
        struct history_item *x = &l.items[l.n++];
        x->key = history_key(h, text(it, "key"));
        x->value = number(it, "value", 0, &ok);
        x->rv = number(it, "rv", 0, &ok);
        ok = ok && *text(it, "key") && x->value && x->rv;
    }
    if (ok)
        history_add_list(h, &l);
    mem_free(l.items);
    return ok ? NULL : "an item lacks key, value or rv";
}
/* {"op":"watch","client":1,"from":7,"events":[{"at":..,"key":..,"value":..,"rv":..}, ...]} */
static const char *read_watch(struct history *h, const cJSON *j)
{
    const cJSON *events = cJSON_GetObjectItemCaseSensitive(j, "events"), *it;
    bool ok = true;
    uint64_t from = number(j, "from", 0, &ok);
    uint32_t w = history_watch(h, (uint32_t)number(j, "client", 0, &ok), from);

    if (!cJSON_IsArray(events))
        return "events is no list";
    cJSON_ArrayForEach(it, events)
    {
        struct history_event e = {.at = number(it, "at", HISTORY_NEVER, &ok),
                                  .watch = w,
                                  .key = history_key(h, text(it, "key")),
                                  .value = number(it, "value", 0, &ok),
                                  .rv = number(it, "rv", 0, &ok)};
        if (!ok || e.at == HISTORY_NEVER || !e.rv || !*text(it, "key"))
            return "an event lacks at, key or rv";
        history_add_event(h, &e);
    }
    return ok ? NULL : "a number is none";
}
/* {"op":"answer","client":1,"request":7,"outcome":"ok","rv":9}: one for each attempt that got
 * one */
static const char *read_answer(struct history *h, const cJSON *j)
{
    int outcome = word(text(j, "outcome"), outcomes, 5);
    bool ok = true;
    struct history_answer a = {.client = (uint32_t)number(j, "client", 0, &ok),
                               .request = number(j, "request", HISTORY_NEVER, &ok),
                               .outcome = (enum history_outcome)outcome,
                               .rv = number(j, "rv", 0, &ok)};

    if (!ok || outcome < 0 || a.request == HISTORY_NEVER)
        return "request or outcome is missing or wrong";
    history_add_answer(h, &a);
    return NULL;
}
static const char *read_line(struct history *h, const char *line, size_t n)
{
    cJSON *j = cJSON_ParseWithLength(line, n);
    const char *op = text(j, "op"), *why;
    int kind = word(op, kinds, 5);

    if (!cJSON_IsObject(j))
        why = "it is no JSON object";
    else if (kind > 0)
        why = read_op(h, j, kind);
    else if (!strcmp(op, "list"))
        why = read_list(h, j);
    else if (!strcmp(op, "watch"))
        why = read_watch(h, j);
    else if (!strcmp(op, "answer"))
        why = read_answer(h, j);
    else
        why = "op is not one of create, get, update, delete, list, watch, answer";
    cJSON_Delete(j);
    return why;
}
int history_read(struct history *h, const char *p, size_t n, struct err *err)
{
    const char *end = p + n;

    for (unsigned line = 1; p < end; line++) {
        const char *nl = memchr(p, '\n', (size_t)(end - p)), *stop = nl ? nl : end, *why;

        why = stop > p ? read_line(h, p, (size_t)(stop - p)) : NULL;
        if (why)
            return err_set(err, E_INVALID, "line %u: %s", line, why);
        p = stop + 1;
    }
    return 0;
}
