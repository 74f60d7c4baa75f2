/* What agent and server say to each other: frames of api/base/net/frame.h, bodies in JSON except
 * DATA and INPUT. Private to connectors/agent. Answers carry the id of the question. */
#ifndef HANSE_CONNECTORS_AGENT_WIRE_H
#define HANSE_CONNECTORS_AGENT_WIRE_H

#include "api/base/net/frame.h"
#include "connectors/connector.h"

#include <cjson/cJSON.h>

enum agent_frame {
    /* session */
    AF_HELLO = 1,    /* agent: target, version, session, bootId, stateId, instance, cluster, at,
                        reshards, inventory, heardCluster, heardRv, heardTime (how far its hub had
                        come),    runs[] */
    AF_WELCOME = 2,  /* server: cluster, stateRv, stateTime */
    AF_REDIRECT = 3, /* server: address of the leader; it closes then */
    AF_REFUSED = 4,  /* server: text; it closes then */
    AF_BEAT = 5,     /* agent: at (its clock: what a renewal counts from); server: as
                        WELCOME, empty to a guest */
    /* inventory */
    AF_INVENTORY = 10, /* server asks */
    AF_NODES = 11,     /* agent: nodes[], page (from 0 on), more: the next page follows, with the
                          same id. Also unasked (id 0) when they changed */
    /* runs; each is answered by RESULT */
    AF_SUBMIT = 20,   /* the order */
    AF_FIND = 21,     /* key */
    AF_SIGNAL = 22,   /* key, signal, graceMs: quiesce */
    AF_STOP = 23,     /* key, graceMs: answered at the end */
    AF_LIST = 24,     /* all keys with their state, their cluster, what they hold */
    AF_FORGET = 25,   /* key: the records of an ended run may go */
    AF_RENEW = 26,    /* from, leaseMs, offers[]; no answer */
    AF_RESULT = 27,   /* agent: outcome, code, text, seen | runs[] */
    AF_OBSERVED = 28, /* agent: an observation, unasked */
    AF_CLAIM = 30,    /* key, cluster: it belongs to that one now */
    AF_DOCUMENT = 31, /* key: RESULT has the Workload as it was sent, as JSON text */
    AF_BOOK = 32,     /* from, olderMs: RESULT has promises[], next (0: no more), full */
    AF_LET_GO = 33,   /* cluster, rv, uids[]: these need not be refused any more */
    /* key, resumePath, resumeDigest, world (0 = any), reshard: can it be resumed from here? Or
     * checkpointBase, lookEpoch, lookWorkers, resume…: what is newer? */
    AF_STAGE = 29,
    /* streams; id is the stream's */
    AF_LOGS = 40,  /* key, rank, follow, tail */
    AF_EXEC = 41,  /* key, rank, argv[], stdin */
    AF_DATA = 42,  /* agent: bytes; flags: fd */
    AF_END = 43,   /* agent: exit, code, text */
    AF_PAUSE = 44, /* server: flags 1 pause, 0 go on */
    AF_INPUT = 45, /* server: bytes; flags 1: no more */
    AF_CLOSE = 46  /* server: it does not want any more */
};

/* Readers that take what is absent or of a wrong type as "" and 0. */
const char *wire_str(const cJSON *j, const char *name);
int64_t wire_i64(const cJSON *j, const char *name);
uint64_t wire_u64(const cJSON *j, const char *name);
bool wire_bool(const cJSON *j, const char *name);
int wire_key(const cJSON *j, struct run_key *ret, struct err *err) MUST_CHECK; /* "key" */
void wire_add_key(cJSON *j, const struct run_key *k);
/* Sends and deletes j. E_TOOLARGE: it is longer than a frame may be, and nothing was sent. */
int wire_send(struct stream *s, enum agent_frame type, uint64_t id, cJSON *j,
              struct err *err) MUST_CHECK;
/* For bodies whose size our own structs bound, and that nobody waits for: what is too large all
 * the same is logged, and not sent. */
void wire_tell(struct stream *s, enum agent_frame type, uint64_t id, cJSON *j);
/* Parses a body; refuses what is no JSON object. */
int wire_parse(const struct frame *f, cJSON **ret, struct err *err) MUST_CHECK;

/* Of an observation: texts of our own structs, of which each byte may become six. */
#define WIRE_OBSERVATION_MAX                                                                       \
    (512 + RUN_KEY_MAX +                                                                           \
     6 * (sizeof((struct observation *)0)->reason + sizeof((struct observation *)0)->message +     \
          sizeof((struct run_checkpoint_report *)0)->digest +                                      \
          sizeof((struct run_checkpoint_report *)0)->path))
#define WIRE_BOOK_PAGE 256 /* promises; with what else the last of its buckets has */
cJSON *wire_offers(const struct run_offer *offers, size_t n); /* a list */
int wire_offer_parse(const cJSON *j, struct run_offer *ret, struct err *err) MUST_CHECK;
cJSON *wire_checkpoint(const struct run_checkpoint_report *c);
/* What cannot be read is not present. */
void wire_checkpoint_read(const cJSON *j, struct run_checkpoint_report *ret);
cJSON *wire_observation(const struct observation *o);
/* Key, state and proof of it alone. */
cJSON *wire_listed(const struct observation *o);
#define WIRE_LISTED_MAX (64 + RUN_KEY_MAX)
#define WIRE_WORKER_MAX 512 /* of an order: rank, node, devices */
int wire_observation_parse(const cJSON *j, struct observation *ret, struct err *err) MUST_CHECK;

#endif
