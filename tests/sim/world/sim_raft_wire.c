/* libraft's messages as bytes: field by field, so that no padding reaches the world's hash. */
#include "tests/sim/world/sim_raft_wire.h"

#include <string.h>

void sim_wire_put(struct buf *b, uint64_t v)
{
    unsigned char c[8];

    for (unsigned i = 0; i < 8; i++)
        c[i] = (unsigned char)(v >> (8 * i));
    buf_add(b, c, 8);
}
void sim_wire_put_bytes(struct buf *b, const void *p, size_t n)
{
    sim_wire_put(b, n);
    if (n)
        buf_add(b, p, n);
}
uint64_t sim_wire_get(struct cursor *c)
{
    uint64_t v = 0;

    INV(c->n >= 8);
    for (unsigned i = 0; i < 8; i++)
        v |= (uint64_t)c->p[i] << (8 * i);
    c->p += 8;
    c->n -= 8;
    return v;
}
struct raft_buffer sim_wire_get_bytes(struct cursor *c)
{
    struct raft_buffer b = {.len = sim_wire_get(c)};

    INV(c->n >= b.len);
    b.base = (void *)(uintptr_t)c->p;
    c->p += b.len;
    c->n -= b.len;
    return b;
}

static void encode_entries(struct buf *b, const struct raft_append_entries *a)
{
    sim_wire_put(b, a->prev_log_index);
    sim_wire_put(b, a->prev_log_term);
    sim_wire_put(b, a->leader_commit);
    sim_wire_put(b, a->n_entries);
    for (unsigned i = 0; i < a->n_entries; i++) {
        sim_wire_put(b, a->entries[i].term);
        sim_wire_put(b, a->entries[i].type);
        sim_wire_put_bytes(b, a->entries[i].buf.base, a->entries[i].buf.len);
    }
}
static void encode_snapshot(struct buf *b, const struct raft_install_snapshot *s)
{
    struct raft_buffer conf;

    INV(raft_configuration_encode(&s->conf, &conf) == 0);
    sim_wire_put(b, s->last_index);
    sim_wire_put(b, s->last_term);
    sim_wire_put(b, s->conf_index);
    sim_wire_put_bytes(b, conf.base, conf.len);
    sim_wire_put_bytes(b, s->data.base, s->data.len);
    raft_free(conf.base);
}
void sim_wire_encode(struct buf *b, const struct raft_message *m)
{
    sim_wire_put(b, m->type);
    switch (m->type) {
    case RAFT_REQUEST_VOTE:
        sim_wire_put(b, m->request_vote.version);
        sim_wire_put(b, m->request_vote.term);
        sim_wire_put(b, m->request_vote.candidate_id);
        sim_wire_put(b, m->request_vote.last_log_index);
        sim_wire_put(b, m->request_vote.last_log_term);
        sim_wire_put(b, (uint64_t)m->request_vote.disrupt_leader << 1 | m->request_vote.pre_vote);
        break;
    case RAFT_REQUEST_VOTE_RESULT:
        sim_wire_put(b, m->request_vote_result.version);
        sim_wire_put(b, m->request_vote_result.term);
        sim_wire_put(b, (uint64_t)m->request_vote_result.vote_granted << 1 |
                            m->request_vote_result.pre_vote);
        sim_wire_put(b, m->request_vote_result.features);
        sim_wire_put(b, m->request_vote_result.capacity);
        break;
    case RAFT_APPEND_ENTRIES:
        sim_wire_put(b, m->append_entries.version);
        sim_wire_put(b, m->append_entries.term);
        encode_entries(b, &m->append_entries);
        break;
    case RAFT_APPEND_ENTRIES_RESULT:
        sim_wire_put(b, m->append_entries_result.version);
        sim_wire_put(b, m->append_entries_result.term);
        sim_wire_put(b, m->append_entries_result.rejected);
        sim_wire_put(b, m->append_entries_result.last_log_index);
        sim_wire_put(b, m->append_entries_result.features);
        sim_wire_put(b, m->append_entries_result.capacity);
        break;
    case RAFT_INSTALL_SNAPSHOT:
        sim_wire_put(b, m->install_snapshot.version);
        sim_wire_put(b, m->install_snapshot.term);
        encode_snapshot(b, &m->install_snapshot);
        break;
    case RAFT_TIMEOUT_NOW:
        sim_wire_put(b, m->timeout_now.version);
        sim_wire_put(b, m->timeout_now.term);
        sim_wire_put(b, m->timeout_now.last_log_index);
        sim_wire_put(b, m->timeout_now.last_log_term);
        break;
    }
}

static void decode_entries(struct cursor *c, struct raft_append_entries *a)
{
    a->prev_log_index = sim_wire_get(c);
    a->prev_log_term = sim_wire_get(c);
    a->leader_commit = sim_wire_get(c);
    a->n_entries = (unsigned)sim_wire_get(c);
    if (!a->n_entries)
        return;
    a->entries = raft_calloc(a->n_entries, sizeof *a->entries);
    char *batch = raft_malloc(c->n + 8), *at = batch;
    for (unsigned i = 0; i < a->n_entries; i++) {
        struct raft_entry *e = &a->entries[i];
        e->term = sim_wire_get(c);
        e->type = (enum raft_entry_type)sim_wire_get(c);
        struct raft_buffer from = sim_wire_get_bytes(c);
        memcpy(at, from.base, from.len);
        e->buf.base = at;
        e->buf.len = from.len;
        e->batch = batch;
        at += from.len;
    }
}
static void decode_snapshot(struct cursor *c, struct raft_install_snapshot *s)
{
    struct raft_buffer conf, data;

    s->last_index = sim_wire_get(c);
    s->last_term = sim_wire_get(c);
    s->conf_index = sim_wire_get(c);
    conf = sim_wire_get_bytes(c);
    data = sim_wire_get_bytes(c);
    raft_configuration_init(&s->conf);
    INV(raft_configuration_decode(&conf, &s->conf) == 0);
    s->data.base = raft_malloc(data.len + 1);
    s->data.len = data.len;
    memcpy(s->data.base, data.base, data.len);
}
void sim_wire_decode(struct cursor *c, struct raft_message *m)
{
    unsigned char version;
    uint64_t term, bits;

    m->type = (enum raft_message_type)sim_wire_get(c);
    version = (unsigned char)sim_wire_get(c);
    term = sim_wire_get(c);
    switch (m->type) {
    case RAFT_REQUEST_VOTE:
        m->request_vote = (struct raft_request_vote){.version = version, .term = term};
        m->request_vote.candidate_id = sim_wire_get(c);
        m->request_vote.last_log_index = sim_wire_get(c);
        m->request_vote.last_log_term = sim_wire_get(c);
        bits = sim_wire_get(c);
        m->request_vote.disrupt_leader = bits & 2;
        m->request_vote.pre_vote = bits & 1;
        break;
    case RAFT_REQUEST_VOTE_RESULT:
        m->request_vote_result =
            (struct raft_request_vote_result){.version = version, .term = term};
        bits = sim_wire_get(c);
        m->request_vote_result.vote_granted = bits & 2;
        m->request_vote_result.pre_vote = bits & 1;
        m->request_vote_result.features = (unsigned short)sim_wire_get(c);
        m->request_vote_result.capacity = (unsigned short)sim_wire_get(c);
        break;
    case RAFT_APPEND_ENTRIES:
        m->append_entries = (struct raft_append_entries){.version = version, .term = term};
        decode_entries(c, &m->append_entries);
        break;
    case RAFT_APPEND_ENTRIES_RESULT:
        m->append_entries_result =
            (struct raft_append_entries_result){.version = version, .term = term};
        m->append_entries_result.rejected = sim_wire_get(c);
        m->append_entries_result.last_log_index = sim_wire_get(c);
        m->append_entries_result.features = (unsigned short)sim_wire_get(c);
        m->append_entries_result.capacity = (unsigned short)sim_wire_get(c);
        break;
    case RAFT_INSTALL_SNAPSHOT:
        m->install_snapshot = (struct raft_install_snapshot){.version = version, .term = term};
        decode_snapshot(c, &m->install_snapshot);
        break;
    case RAFT_TIMEOUT_NOW:
        m->timeout_now = (struct raft_timeout_now){.version = version, .term = term};
        m->timeout_now.last_log_index = sim_wire_get(c);
        m->timeout_now.last_log_term = sim_wire_get(c);
        break;
    }
}
