/* The cluster's time, which stamps entries and by which the leader decides.
 *
 * It is CLOCK_BOOTTIME plus an offset that no single clock can move. Once a second members ask each
 * other for their wall clocks, and take answers whose round trip was short. The majority's time is
 * the latest one that the clocks of a majority of voters have reached; it is agreed when as many
 * are within the bound of it.
 *
 *   within the bound     followed, forward by no more than the bound in a minute
 *   further off          not followed, until a majority has said the same for AGREE_MS; then
 *                        CATCH_UP times as fast as time passes, or at once when it is earlier
 *   no majority, or no   time goes on by what has passed: a clock alone moves nothing
 *   agreement
 *
 * A leader that is ahead of the majority by more than the bound hands leadership over. A member
 * that lags is harmless, and reported. A member begins with the time of a running peer, else with
 * the majority's; if that is more than DOWN_MS later than the newest entry, it is not believed at
 * once either. loop_wall_ms may serve only an answer to a peer and this member's own vote. */
#include "controlplane/raft/core_internal.h"

#include "api/schema/schema.h"

#include <stdio.h>
#include <stdlib.h>

#define BOUND_MS 5000
#define AGREE_MS 60000
#define CATCH_UP 600              /* ten minutes a second */
#define DOWN_MS (30ll * 86400000) /* a whole cluster may have been down for so long */
#define FRESH_MS 10000            /* a sample counts for so long */
#define OLDER_PEERS_MS 3000       /* members of an older version never answer */
#define DISPUTE_MS 5000           /* so long the first majority may wait for another voter */
#define HAND_OVER_MS 2500
#define STEP_MAX_MS 2000 /* what passed between two looks counts as no more */
#define ANSWER_BYTES 17

static int64_t bound(const struct core *c)
{
    return c->cfg.clock_bound_ms ? c->cfg.clock_bound_ms : BOUND_MS;
}

static int64_t own_offset(const struct core *c)
{
    return loop_wall_ms(c->loop) - (int64_t)loop_now_ms(c->loop);
}

static int64_t trusted(const struct core *c)
{
    return atomic_load(&c->clock.offset_ms);
}

int64_t core_time_ms(const struct core *c)
{
    return (int64_t)loop_now_ms(c->loop) + trusted(c);
}

bool clock_anchored(const struct core *c)
{
    return c->clock.anchored;
}

void clock_init(struct core *c)
{
    atomic_init(&c->clock.offset_ms, own_offset(c));
    c->clock.began_ms = loop_now_ms(c->loop);
    c->clock.room_ms = bound(c);
}

/* Not by clocks alone, or they have held for a while. */
static bool sure(const struct core *c)
{
    return c->clock.anchored &&
           (!c->clock.cold || loop_now_ms(c->loop) - c->clock.anchored_ms > AGREE_MS);
}

/* ---- what the others' clocks say ---- */
void clock_ask(struct core *c, struct peer *p)
{
    uint64_t now = loop_now_ms(c->loop);

    /* An answer that is under way is waited for: a newer question would make it void. */
    if (p->clock_question && !p->clock_answered &&
        now - p->clock_asked_ms <= (uint64_t)bound(c) / 2)
        return;
    p->clock_answered = false;
    p->clock_question = ++c->questions;
    p->clock_asked_ms = now;
    (void)peer_send(c, p->id, FRAME_CLOCK_ASK, p->clock_question, NULL, 0);
}

void clock_asked(struct core *c, const struct inbound *in, uint64_t question)
{
    unsigned char b[ANSWER_BYTES];

    le64_put(b, (uint64_t)loop_wall_ms(c->loop));
    le64_put(b + 8, (uint64_t)core_time_ms(c));
    b[16] = sure(c);
    frame_send(in->s, FRAME_CLOCK_IS, 0, question, b, sizeof b);
}

void clock_is(struct core *c, struct peer *p, uint64_t question, const unsigned char *b, size_t n)
{
    int64_t now = (int64_t)loop_now_ms(c->loop), sent = (int64_t)p->clock_asked_ms;
    int64_t wall, theirs, middle = sent + (now - sent) / 2;

    p->clock_answered |= question == p->clock_question;
    if (n != ANSWER_BYTES || question != p->clock_question || now - sent > bound(c) / 2)
        return; /* too long under way to say anything */
    wall = (int64_t)le64_get(b);
    theirs = (int64_t)le64_get(b + 8);
    if (wall < 0 || wall > INT64_MAX / 4 || theirs < 0 || theirs > INT64_MAX / 4)
        return;
    p->clock_known = true;
    p->clock_ms = (uint64_t)now;
    p->clock_offset_ms = wall - middle;
    p->clock_anchored = b[16] != 0;
    p->clock_trusted_ms = theirs - middle;
    if (!c->clock.anchored)
        clock_look(c);
}

static bool fresh(const struct core *c, const struct peer *p)
{
    return p && p->clock_known && loop_now_ms(c->loop) - p->clock_ms <= FRESH_MS;
}

static int later_first(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return x < y ? 1 : x > y ? -1 : 0;
}

/* The voters' clocks that are known, as offsets, the latest first; how many. */
static unsigned clocks(struct core *c, int64_t v[MEMBERS_MAX], unsigned *ret_voters)
{
    const struct raft_configuration *conf = &c->raft.configuration;
    unsigned voters = 0, n = 0;

    for (unsigned i = 0; i < conf->n; i++) {
        const struct peer *p;

        if (conf->servers[i].role != RAFT_VOTER)
            continue;
        voters++;
        p = peer_find(c, conf->servers[i].id);
        if (n == MEMBERS_MAX)
            continue;
        if (conf->servers[i].id == c->cfg.id)
            v[n++] = own_offset(c);
        else if (fresh(c, p))
            v[n++] = p->clock_offset_ms;
    }
    qsort(v, n, sizeof *v, later_first);
    *ret_voters = voters;
    return n;
}

/* false: a majority's clocks are not known. */
static bool majority(struct core *c, int64_t *ret_offset, bool *ret_agreed)
{
    int64_t v[MEMBERS_MAX];
    unsigned voters, n = clocks(c, v, &voters), near = 0;

    if (!voters || n < voters / 2 + 1)
        return false;
    *ret_offset = v[voters / 2];
    for (unsigned i = 0; i < n; i++)
        near += llabs(v[i] - *ret_offset) <= bound(c);
    *ret_agreed = near >= voters / 2 + 1;
    return true;
}

/* ---- the offset ---- */
/* What says that it is earlier than the newest entry is behind: the earliest clock that is not.
 * When all are, it is the entry that was stamped ahead. */
static void not_before(struct core *c, int64_t newest)
{
    int64_t v[MEMBERS_MAX], least = newest - bound(c) - (int64_t)loop_now_ms(c->loop);
    unsigned voters, n = clocks(c, v, &voters);

    while (n > 0 && v[n - 1] < least)
        n--;
    if (n > 0)
        atomic_store(&c->clock.offset_ms, v[n - 1]);
}

/* Nobody has seen this time pass: it may be that the cluster was down, or that its machines began
 * with a wrong date. It begins with the newest entry then, and catches up. */
static void hold_back(struct core *c)
{
    struct core_clock *k = &c->clock;
    int64_t newest = root_time(c->root);
    uint64_t now = loop_now_ms(c->loop);

    if (sure(c) || !newest)
        return;
    if (core_time_ms(c) < newest - bound(c))
        not_before(c, newest);
    if (core_time_ms(c) <= newest + DOWN_MS)
        return;
    log_event(
        LOG_WARN, "clock.held_back",
        LOG_FIELDS({"newest_entry_ms", log_i64(newest)}, {"clock_ms", log_i64(core_time_ms(c))}));
    k->cold = false;
    atomic_store(&k->offset_ms, newest - (int64_t)now);
}

void clock_leads(struct core *c)
{
    c->clock.leads_ms = loop_now_ms(c->loop);
    if (c->clock.anchored)
        hold_back(c);
}

static void anchor(struct core *c, int64_t offset)
{
    struct core_clock *k = &c->clock;

    k->cold = true;
    list_for_each (it, &c->peers) {
        const struct peer *p = container_of(it, struct peer, link);

        if (!p->voter || !fresh(c, p) || !p->clock_anchored)
            continue;
        if (k->cold || p->clock_trusted_ms < offset)
            offset = p->clock_trusted_ms;
        k->cold = false;
    }
    k->anchored = true;
    k->anchored_ms = k->followed_ms = loop_now_ms(c->loop);
    atomic_store(&k->offset_ms, offset);
    if (c->clock.leads_ms)
        hold_back(c);
    core_kick(c);
}

static void follow(struct core *c, int64_t offset)
{
    struct core_clock *k = &c->clock;
    int64_t d = offset - trusted(c), step;
    uint64_t now = loop_now_ms(c->loop), passed = now - k->followed_ms;

    passed = passed < STEP_MAX_MS ? passed : STEP_MAX_MS;
    k->followed_ms = now;
    k->room_ms += (int64_t)passed * bound(c) / AGREE_MS;
    k->room_ms = k->room_ms < bound(c) ? k->room_ms : bound(c);
    if (llabs(d) <= bound(c)) {
        k->aiming = false;
        step = d < k->room_ms ? d : k->room_ms;
        k->room_ms -= step > 0 ? step : 0;
    } else {
        if (!k->aiming || llabs(offset - k->aim_ms) > bound(c)) {
            k->aiming = true;
            k->aim_ms = offset;
            k->aim_since_ms = now;
        }
        if (now - k->aim_since_ms < AGREE_MS)
            return;
        step = d < (int64_t)passed * CATCH_UP ? d : (int64_t)passed * CATCH_UP;
    }
    atomic_store(&k->offset_ms, trusted(c) + step);
}

/* ---- telling ---- */
static const char *span(int64_t ms, char out[48])
{
    int64_t s = llabs(ms) / 1000;

    if (s >= 2ll * 86400)
        (void)snprintf(out, 48, "%lld days", (long long)(s / 86400));
    else if (s >= 2ll * 3600)
        (void)snprintf(out, 48, "%lld hours", (long long)(s / 3600));
    else
        (void)snprintf(out, 48, "%lld.%01lld s", (long long)s, (long long)(llabs(ms) % 1000 / 100));
    return out;
}

static void tell(struct core *c, bool known, bool agreed, int64_t offset)
{
    int64_t own = own_offset(c), off = trusted(c), now = core_time_ms(c);
    int64_t skew = own - (known && agreed ? offset : off);
    char a[48], at[48];

    c->clock.ahead = c->clock.anchored && skew > bound(c);
    if (llabs(skew) > bound(c))
        core_alarm_raise(c, ALARM_CLOCK, "this member's clock is %s %s the majority's%s",
                         span(skew, a), skew > 0 ? "ahead of" : "behind",
                         skew > 0 ? ": it does not lead, and no entry is stamped by it" : "");
    else if (known && !agreed)
        core_alarm_raise(c, ALARM_CLOCK,
                         "the members' clocks do not agree within %s: time goes on by what has "
                         "passed since they did",
                         span(bound(c), a));
    else if (known && llabs(offset - off) > bound(c)) {
        time_print(now, at);
        core_alarm_raise(c, ALARM_CLOCK,
                         "the majority's clocks are %s %s the cluster's time %s: once they have "
                         "agreed for a minute it catches up by ten minutes a second",
                         span(offset - off, a), offset > off ? "ahead of" : "behind", at);
    } else if (root_time(c->root) > now + bound(c)) {
        time_print(root_time(c->root), at);
        core_alarm_raise(c, ALARM_CLOCK,
                         "the newest entry is stamped %s, %s ahead of now: until then all times in "
                         "the state stand still",
                         at, span(root_time(c->root) - now, a));
    } else
        core_alarm_clear(c, ALARM_CLOCK);
}

static void tell_peers(struct core *c)
{
    struct core_clocks s = {.known = c->clock.anchored, .skew_ms = own_offset(c) - trusted(c)};

    list_for_each (it, &c->peers) {
        struct peer *p = container_of(it, struct peer, link);
        int64_t skew = p->clock_offset_ms - own_offset(c);
        bool far = llabs(skew) > bound(c);

        if (!fresh(c, p))
            continue;
        if (far != p->clock_far)
            log_event(far ? LOG_WARN : LOG_INFO, far ? "clock.skew" : "clock.skew_over",
                      LOG_FIELDS({"member", log_u64(p->id)}, {"ahead_ms", log_i64(skew)}));
        p->clock_far = far;
        if (s.n < CORE_PEERS_MAX) {
            s.peers[s.n].member = p->id;
            s.peers[s.n++].skew_ms = skew;
        }
    }
    pthread_mutex_lock(&c->lock);
    c->clocks = s;
    pthread_mutex_unlock(&c->lock);
}

void core_clocks(struct core *c, struct core_clocks *ret)
{
    pthread_mutex_lock(&c->lock);
    *ret = c->clocks;
    pthread_mutex_unlock(&c->lock);
}

/* ---- who is ahead does not lead ---- */
static void handed_over(void *arg, const struct err *err)
{
    (void)arg;
    if (err)
        log_err(LOG_WARN, "clock.hand_over", err);
}

/* libraft cannot be told not to campaign: its vote may be needed, and its log may be the longest.
 * So it gives leadership away as soon as it has it, to a voter whose clock is right. */
static void hand_over(struct core *c)
{
    uint64_t now = loop_now_ms(c->loop);

    if (!c->clock.ahead || !c->leads ||
        (c->clock.handed_ms && now - c->clock.handed_ms < HAND_OVER_MS))
        return;
    list_for_each (it, &c->peers) {
        const struct peer *p = container_of(it, struct peer, link);
        struct core_peer to = {.id = p->id};

        if (!p->voter || !p->open || !fresh(c, p) ||
            llabs(p->clock_offset_ms - trusted(c)) > bound(c))
            continue;
        log_event(LOG_WARN, "clock.hands_over", LOG_FIELDS({"to", log_u64(p->id)}));
        c->clock.handed_ms = now;
        core_member(c, c->loop, MEMBER_TRANSFER, &to, HAND_OVER_MS, handed_over, NULL);
        return;
    }
}

/* Members of an older version are asked in vain: this one's clock alone counts then, as it did. */
static bool alone(struct core *c)
{
    return raft_state(&c->raft) == RAFT_LEADER && c->clock.leads_ms &&
           root_feature_level(c->root) < FEATURE_GRANTS &&
           loop_now_ms(c->loop) - c->clock.leads_ms >= OLDER_PEERS_MS;
}

void clock_look(struct core *c)
{
    int64_t offset = own_offset(c);
    bool agreed = true, known = majority(c, &offset, &agreed);

    bool enough = agreed || loop_now_ms(c->loop) - c->clock.began_ms >= DISPUTE_MS;

    if (!c->clock.anchored && (known ? enough : alone(c)))
        anchor(c, offset);
    else if (c->clock.anchored && (known ? agreed : alone(c)))
        follow(c, offset);
    tell(c, known, agreed, offset);
}

void clock_second(struct core *c)
{
    list_for_each (it, &c->peers) {
        struct peer *p = container_of(it, struct peer, link);

        if (p->open)
            clock_ask(c, p);
    }
    clock_look(c);
    tell_peers(c);
    hand_over(c);
}
