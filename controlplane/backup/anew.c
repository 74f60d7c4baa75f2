/* What both ways back do with a state: it begins anew, for one member; and what they tell the
 * operator to do then. */
#include "controlplane/backup/backup.h"

#include "controlplane/raft/core.h"

#include "api/base/cluster.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* What the state has of this member, where nobody said otherwise. */
static int member_take(const struct root *r, struct member_info *m, struct err *err)
{
    struct member_info all[64];
    size_t n = root_members(r, all, sizeof all / sizeof *all);

    for (size_t i = 0; i < n && i < sizeof all / sizeof *all; i++) {
        if (all[i].id != m->id)
            continue;
        if (!*m->address)
            str_copy(m->address, sizeof m->address, all[i].address);
        if (!*m->api_address)
            str_copy(m->api_address, sizeof m->api_address, all[i].api_address);
        if (!*m->name)
            str_copy(m->name, sizeof m->name, all[i].name);
    }
    if (!*m->name)
        (void)snprintf(m->name, sizeof m->name, "m%" PRIu64, m->id);
    if (!*m->address)
        return err_set(err, E_USAGE,
                       "the state knows no member %" PRIu64 ": say where it listens for others "
                       "(--peer-advertise HOST:PORT)",
                       m->id);
    m->feature_level = FEATURE_LEVEL;
    return 0;
}

int anew_make(struct loop *l, const char *dir, struct root **root, struct anew_ask *ask,
              uint64_t term, uint64_t known, struct store_anew_found *ret, struct err *err)
{
    struct store_anew how = {.term = (term > root_term(*root) ? term : root_term(*root)) + 1,
                             .known = known};
    int r = member_take(*root, &ask->member, err);

    if (r)
        return r;
    how.member = ask->member;
    cluster_begin_anew(root_cluster_uid(*root), loop_wall_ms(l), loop_random_u64(l),
                       how.cluster_uid);
    if ((r = store_begin_anew(root, &how, ret, err)))
        return r;
    struct core_made made = {
        .member = ask->member.id, .address = ask->member.address, .root = *root};
    return core_offline_make(l, dir, &made, err);
}

int anew_run(const char *command, int rv, int (*work)(struct loop *l, void *arg, struct err *err),
             void *arg, struct err *err)
{
    struct loop *l = rv ? NULL : loop_uv_create(err);

    if (!rv)
        rv = l ? work(l, arg, err) : E_INTERNAL;
    if (l)
        (void)loop_uv_destroy(l);
    if (!rv)
        return 0;
    (void)fflush(stdout);
    (void)fprintf(stderr, "%s: %s\n", command, err->text);
    return err_info(rv)->exit;
}

static void print_json(const struct root *r, const struct anew_ask *ask,
                       const struct store_anew_found *f, const char *kept, uint64_t absent)
{
    char rv[24];
    cJSON *j = cJSON_CreateObject();

    (void)snprintf(rv, sizeof rv, "%" PRIu64, root_rv(r));
    (void)cJSON_AddStringToObject(j, "cluster", root_cluster_uid(r));
    (void)cJSON_AddStringToObject(j, "data", ask->data);
    (void)cJSON_AddNumberToObject(j, "member", (double)ask->member.id);
    (void)cJSON_AddStringToObject(j, "address", ask->member.address);
    (void)cJSON_AddStringToObject(j, "resourceVersion", rv);
    (void)cJSON_AddNumberToObject(j, "unsettled", (double)f->lost);
    (void)cJSON_AddNumberToObject(j, "ended", (double)f->kept);
    (void)cJSON_AddNumberToObject(j, "membersLeftBehind", (double)f->members);
    (void)cJSON_AddNumberToObject(j, "archiveAbsent", (double)absent);
    if (kept)
        (void)cJSON_AddStringToObject(j, "kept", kept);
    char *text = cJSON_Print(j);
    (void)printf("%s\n", text);
    cJSON_free(text);
    cJSON_Delete(j);
}

void anew_print(const struct root *r, const struct anew_ask *ask, const struct store_anew_found *f,
                bool json, const char *kept, uint64_t absent)
{
    if (json) {
        print_json(r, ask, f, kept, absent);
        return;
    }
    (void)printf("%s: member %" PRIu64 " alone, at %s\n"
                 "cluster %s, resourceVersion %" PRIu64 "\n"
                 "%" PRIu64 " workloads had not ended and may have gone on since; %" PRIu64
                 " had ended\n",
                 ask->data, ask->member.id, ask->member.address, root_cluster_uid(r), root_rv(r),
                 f->lost, f->kept);
    if (absent)
        (void)printf("%" PRIu64 " segments of the archive are in nobody's hands any more\n",
                     absent);
    if (kept)
        (void)printf("what the directory held is kept in %s\n", kept);
    (void)printf(
        "\n"
        "Now\n"
        "  1. hanse server --id %" PRIu64
        " --data %s … with the certificates and the key ring that it\n"
        "     had, and without --peer\n"
        "  2. hanse apply Targets that were made since: what they run is taken over then. hanse "
        "status\n"
        "     names those that it does not know and whose agents dial in\n"
        "  3. wait until agents have found it (hanse get targets), then: hanse recover "
        "--from-targets\n"
        "     Until then nothing is placed that may run somewhere, and nothing of it is taken for "
        "ended.\n"
        "     A target that is gone for good is named: --dead TARGET\n"
        "  4. other members, each with an empty directory: hanse members add N HOST:PORT\n"
        "Old members that come back are refused, and stop. Agents do not follow them once they "
        "have\n"
        "seen this cluster; keep old members off until all agents have.\n",
        ask->member.id, ask->data);
}
