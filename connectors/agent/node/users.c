/* The user of a namespace's programs: a fixed one from the command line, or one of its range. A
 * namespace keeps its user for ever, since its files may be anywhere: a number is never given
 * twice, and a range that is used up takes no further namespace. */
#include "connectors/agent/node/agent_internal.h"

#include "api/base/hash.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define USERS_LEAST 1000 /* below are the system's own */
#define USERS_FILE_MAX ((size_t)32 << 20)

static bool number_read(const char **at, uint32_t *ret)
{
    char *end;

    if (**at < '0' || **at > '9')
        return false;
    unsigned long long v = strtoull(*at, &end, 10);
    if (v < USERS_LEAST || v > INT32_MAX)
        return false;
    *ret = (uint32_t)v;
    *at = end;
    return true;
}

/* NAMESPACE=UID[:GID], or FIRST-LAST */
static bool part_parse(const char *part, struct user_range *range, struct user_fixed *fixed)
{
    const char *p = strchr(part, '=');

    if (!p)
        return !range->last && number_read(&part, &range->first) && *part++ == '-' &&
               number_read(&part, &range->last) && !*part && range->last >= range->first &&
               range->last - range->first < AGENT_USERS_MAX;
    size_t n = (size_t)(p++ - part);
    if (!n || n >= sizeof fixed->namespace_ || !number_read(&p, &fixed->uid))
        return false;
    (void)snprintf(fixed->namespace_, sizeof fixed->namespace_, "%.*s", (int)n, part);
    fixed->gid = fixed->uid;
    return !*p || (*p++ == ':' && number_read(&p, &fixed->gid) && !*p);
}

static int users_parse(struct users *u, const char *text, struct err *err)
{
    char *list = mem_strdup(text), *save = NULL;
    int rc = 0;

    for (char *part = strtok_r(list, ",", &save); part && rc == 0;
         part = strtok_r(NULL, ",", &save)) {
        struct user_fixed fixed = {.uid = 0};
        if (!part_parse(part, &u->range, &fixed) || (fixed.uid && u->n_fixed == AGENT_USERS_FIXED))
            rc = err_set(err, E_USAGE,
                         "--users %.100s: expected FIRST-LAST (one range, at most %d numbers) or "
                         "NAMESPACE=UID[:GID] (at most %d), numbers from %d on",
                         part, AGENT_USERS_MAX, AGENT_USERS_FIXED, USERS_LEAST);
        else if (fixed.uid)
            u->fixed[u->n_fixed++] = fixed;
    }
    for (unsigned i = 0; i < u->n_fixed && rc == 0; i++)
        if (u->fixed[i].uid >= u->range.first && u->fixed[i].uid <= u->range.last)
            rc = err_set(err, E_USAGE,
                         "--users: %" PRIu32 " of namespace %s is in the range: take one outside",
                         u->fixed[i].uid, u->fixed[i].namespace_);
    mem_free(list);
    return rc;
}

static void users_path(const struct agent *a, char out[AGENT_PATH_MAX])
{
    (void)snprintf(out, AGENT_PATH_MAX, "%s/users.json", a->cfg.state_dir);
}

int users_open(struct agent *a, struct err *err)
{
    struct users *u = &a->users;
    char path[AGENT_PATH_MAX];
    struct err why;
    AUTO_BUF b;

    buf_init(&b, USERS_FILE_MAX);
    if (!a->cfg.users)
        return 0;
    int rc = users_parse(u, a->cfg.users, err);
    if (rc < 0)
        return rc;
    users_path(a, path);
    rc = file_read(a->loop, path, USERS_FILE_MAX, &b, &why);
    if (rc < 0 && rc != E_NOTFOUND)
        return err_set(err, rc, "%s", why.text);
    u->given = rc == 0 ? cJSON_ParseWithLength(b.p, b.n) : cJSON_CreateObject();
    /* Without it a number could be given to a second namespace. */
    return cJSON_IsObject(u->given)
               ? 0
               : err_set(err, E_CORRUPT,
                         "%s cannot be read: restore it; or remove all files of the users of "
                         "--users on this machine, and then it",
                         path);
}

void users_close(struct users *u)
{
    cJSON_Delete(u->given);
    u->given = NULL;
}

static bool is_taken(const struct users *u, uint32_t uid)
{
    const cJSON *e;

    cJSON_ArrayForEach(e, u->given) if (cJSON_IsNumber(e) &&
                                        e->valuedouble == (double)uid) return true;
    return false;
}

/* Where it begins to look depends on the name alone: machines with the same range mostly agree,
 * which a store that they share likes. */
static uint32_t pick(const struct users *u, const char *name)
{
    uint32_t n = u->range.last - u->range.first + 1, h = hash_text32(name);

    if (!u->range.last || (uint32_t)cJSON_GetArraySize(u->given) >= n)
        return 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t uid = u->range.first + (h % n + i) % n;
        if (!is_taken(u, uid))
            return uid;
    }
    return 0;
}

static int keep(struct agent *a, struct err *err)
{
    char path[AGENT_PATH_MAX], *text = cJSON_PrintUnformatted(a->users.given);

    users_path(a, path);
    int rc = file_write(a->loop, path, text, strlen(text), 0600, err);
    cJSON_free(text);
    return rc;
}

int users_of(struct agent *a, const char *cluster, const char *namespace_, uint32_t *ret_uid,
             uint32_t *ret_gid, struct err *err)
{
    struct users *u = &a->users;
    char name[CLUSTER_UID_MAX + 256];

    *ret_uid = *ret_gid = 0;
    if (!a->cfg.users)
        return 0;
    for (unsigned i = 0; i < u->n_fixed; i++)
        if (strcmp(u->fixed[i].namespace_, namespace_) == 0) {
            *ret_uid = u->fixed[i].uid;
            *ret_gid = u->fixed[i].gid;
            return 0;
        }
    (void)snprintf(name, sizeof name, "%s/%.250s", cluster, namespace_);
    const cJSON *had = cJSON_GetObjectItemCaseSensitive(u->given, name);
    if (cJSON_IsNumber(had)) {
        *ret_uid = *ret_gid = (uint32_t)had->valuedouble;
        return 0;
    }
    uint32_t uid = pick(u, namespace_);
    if (!uid)
        return err_set(err, E_LIMIT,
                       "namespace %.100s has no user here: --users of the agent is used up, and no "
                       "number is given twice; give it a larger range, or name it (%.100s=UID)",
                       namespace_, namespace_);
    cJSON_AddNumberToObject(u->given, name, (double)uid);
    int rc = keep(a, err);
    if (rc < 0)
        cJSON_DeleteItemFromObjectCaseSensitive(u->given, name);
    else
        *ret_uid = *ret_gid = uid;
    return rc;
}
