/* Operations about orphans, and about the recovery of a hub that was lost. Their bodies are JSON,
 * documented in api/server/README.md. */
#include "controlplane/server/backend.h"

#include <cjson/cJSON.h>
#include <string.h>

typedef void (*recovery_cb)(void *arg, const char *json, const struct err *err);

struct recovery_call {
    recovery_cb cb;
    void *arg;
};

static const char *text_of(const cJSON *j, const char *key)
{
    const char *s = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(j, key));

    return s ? s : "";
}

static void acted(void *arg, const struct err *err)
{
    struct recovery_call *x = arg;

    x->cb(x->arg, "{}", err);
    mem_free(x);
}

static void orphans_list(struct control *c, const struct api_identity *who, const cJSON *in,
                         struct recovery_call *x)
{
    AUTO_BUF b = {0};

    (void)who;
    (void)in;
    buf_init(&b, (size_t)64 << 20);
    brain_orphans(c->brain, &b);
    buf_char(&b, '\0');
    x->cb(x->arg, b.failed ? NULL : b.p, NULL);
    mem_free(x);
}

static void orphans_end(struct control *c, const struct api_identity *who, const cJSON *in,
                        struct recovery_call *x)
{
    brain_orphan_end(c->brain, text_of(in, "target"), text_of(in, "key"), who->user, acted, x);
}

static void recovered(void *arg, const char *json, const struct err *err)
{
    struct recovery_call *x = arg;

    x->cb(x->arg, json, err);
    mem_free(x);
}

static void orphans_adopt(struct control *c, const struct api_identity *who, const cJSON *in,
                          struct recovery_call *x)
{
    brain_orphan_adopt(c->brain, text_of(in, "target"), text_of(in, "key"), who->user, recovered,
                       x);
}

/* {"dead":["TARGET"…],"after":"UID"} */
static void recover_targets(struct control *c, const struct api_identity *who, const cJSON *in,
                            struct recovery_call *x)
{
    const char *dead[RECOVER_DEAD_MAX];
    struct recover_ask ask = {.who = who->user, .after = text_of(in, "after"), .dead = dead};
    const cJSON *d, *list = cJSON_GetObjectItemCaseSensitive(in, "dead");
    struct err err;

    cJSON_ArrayForEach(d, list)
    {
        if (!cJSON_IsString(d) || ask.n_dead == RECOVER_DEAD_MAX) {
            (void)err_field(&err, E_INVALID, "dead", "expected at most %d names of Targets",
                            RECOVER_DEAD_MAX);
            recovered(x, NULL, &err);
            return;
        }
        dead[ask.n_dead++] = d->valuestring;
    }
    brain_recover(c->brain, &ask, recovered, x);
}

bool recovery_operate(struct control *c, const struct api_identity *who, const char *op,
                      const struct cJSON *in, recovery_cb cb, void *arg)
{
    static const struct {
        const char *name;
        void (*run)(struct control *c, const struct api_identity *who, const cJSON *in,
                    struct recovery_call *x);
    } table[] = {{"orphans.list", orphans_list},
                 {"orphans.end", orphans_end},
                 {"orphans.adopt", orphans_adopt},
                 {"recover.targets", recover_targets}};

    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        if (strcmp(table[i].name, op) != 0)
            continue;
        struct recovery_call *x = mem_new(struct recovery_call);
        *x = (struct recovery_call){cb, arg};
        table[i].run(c, who, in, x);
        return true;
    }
    return false;
}
