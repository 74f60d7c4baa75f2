/* Do all members hold the same state? Once a second, when something was applied, the leader asks
 * the others for their digest at one entry number. What a majority says is the truth: a member that
 * differs stops serving for good. Without a majority that agrees nobody stops, since nobody knows
 * who is right; the log says so. */
#include "controlplane/raft/core_internal.h"

void digest_applied(struct core *c)
{
    uint64_t number = root_number(c->root);

    c->digests[number % DIGESTS_KEPT].number = number;
    c->digests[number % DIGESTS_KEPT].digest = root_digest(c->root);
}

static bool digest_at(const struct core *c, uint64_t number, uint64_t *ret)
{
    if (!number || c->digests[number % DIGESTS_KEPT].number != number)
        return false;
    *ret = c->digests[number % DIGESTS_KEPT].digest;
    return true;
}

static void put_pair(unsigned char *b, uint64_t number, uint64_t digest)
{
    le64_put(b, number);
    le64_put(b + 8, digest);
}

void digest_second(struct core *c)
{
    uint64_t number = root_number(c->root);
    unsigned char body[8];

    if (!c->leads || !number || c->digest_verdict == number)
        return;
    c->digest_asked = number;
    le64_put(body, number);
    list_for_each (it, &c->peers) {
        struct peer *p = container_of(it, struct peer, link);

        (void)peer_send(c, p->id, FRAME_DIGEST_ASK, 0, body, sizeof body);
    }
}

/* A member that has not applied that far says nothing: it is asked again in a second. */
void digest_asked(struct core *c, struct inbound *in, uint64_t number)
{
    unsigned char body[16];
    uint64_t own;

    if (!digest_at(c, number, &own))
        return;
    put_pair(body, number, own);
    frame_send(in->s, FRAME_DIGEST_IS, 0, 0, body, sizeof body);
}

static void differs(struct core *c, uint64_t number)
{
    struct err why;

    err_set(&why, E_CORRUPT,
            "this member's state differs from the majority's at entry %llu: it must not serve; "
            "move %.200s aside and keep it for the report, then let the member rejoin",
            (unsigned long long)number, c->cfg.data_dir);
    core_alarm_raise(c, ALARM_DIGEST, "%.400s", why.text);
    core_fatal(c, &why);
}

void digest_of(struct core *c, uint64_t number, uint64_t digest)
{
    uint64_t own;

    if (digest_at(c, number, &own) && own != digest)
        differs(c, number);
}

/* How many voters are known to have this digest at this number. */
static unsigned votes(struct core *c, uint64_t number, uint64_t digest)
{
    uint64_t own;
    unsigned n = digest_at(c, number, &own) && own == digest;

    list_for_each (it, &c->peers) {
        struct peer *p = container_of(it, struct peer, link);

        n += p->voter && p->digest_number == number && p->digest == digest;
    }
    return n;
}

static void tell(struct core *c, uint64_t number, uint64_t digest)
{
    unsigned char body[16];
    uint64_t own;

    put_pair(body, number, digest);
    list_for_each (it, &c->peers) {
        struct peer *p = container_of(it, struct peer, link);

        if (p->digest_number == number && p->digest != digest)
            (void)peer_send(c, p->id, FRAME_DIGEST_OF, 0, body, sizeof body);
    }
    if (digest_at(c, number, &own) && own != digest)
        differs(c, number);
}

void digest_is(struct core *c, struct peer *p, uint64_t number, uint64_t digest)
{
    unsigned voters = 1;
    uint64_t own;

    if (!c->leads || number != c->digest_asked)
        return;
    p->digest_number = number;
    p->digest = digest;
    if (digest_at(c, number, &own) && own != digest)
        log_event(LOG_ERROR, "raft.digest_differs",
                  LOG_FIELDS({"member", log_u64(p->id)}, {"entry", log_u64(number)}));
    list_for_each (it, &c->peers)
        voters += container_of(it, struct peer, link)->voter;
    if (votes(c, number, digest) <= voters / 2 && digest_at(c, number, &own))
        digest = own; /* this answer is the odd one */
    if (votes(c, number, digest) > voters / 2) {
        bool all = true;

        tell(c, number, digest);
        list_for_each (it, &c->peers)
            all &= container_of(it, struct peer, link)->digest_number == number;
        if (all)
            c->digest_verdict = number;
    }
}
