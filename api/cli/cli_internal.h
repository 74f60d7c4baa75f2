/* What the verbs share: the command line as parsed, the client, output. A verb is one row of the
 * table in verbs/verbs.c; help and completion are made from that row. Nothing outside api/cli
 * includes this. */
#ifndef HANSE_API_CLI_CLI_INTERNAL_H
#define HANSE_API_CLI_CLI_INTERNAL_H

#include "api/base/loop/loop.h"
#include "api/cli/cli.h"
#include "api/cli/net/client.h"
#include "api/cli/net/kubeconfig.h"
#include "api/schema/schema.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HANSE_API "/apis/hanse.dev/v1alpha1"
#define OUT_MAX_BYTES ((size_t)256 << 20)

/* ---- the command line (options.c) ---- */
struct option {
    const char *name;  /* "output" */
    char letter;       /* 'o' or 0 */
    const char *value; /* "FORMAT"; NULL = a flag */
    const char *doc;
};
#define ARGS_MAX 4096
struct given {
    const struct option *option;
    const char *value;
};
struct args {
    struct given given[256];
    unsigned n_given;
    const char **pos; /* words that are no options; none is empty or ends with a slash */
    unsigned n_pos;
    const char **rest; /* after "--"; NULL = there was none */
    unsigned n_rest;
};
/* options: ends with a row without a name; the common ones (options_common) are known besides. */
int args_parse(int argc, char **argv, const struct option *options, struct arena *a,
               struct args *ret, struct err *err) MUST_CHECK;
extern const struct option options_common[];
const struct option *option_find(const struct option *options, const char *name, size_t n,
                                 char letter);
bool arg_flag(const struct args *a, const char *name);
/* the last one given */
const char *arg_text(const struct args *a, const char *name, const char *otherwise);
int arg_number(const struct args *a, const char *name, long lo, long hi, long otherwise, long *ret,
               struct err *err) MUST_CHECK;
int arg_duration(const struct args *a, const char *name, int64_t otherwise_ms, int64_t *ret,
                 struct err *err) MUST_CHECK;

/* ---- a command under way (cli.c) ---- */
struct verb;
struct cli {
    FILE *out, *err;
    const struct verb *verb;
    struct args args;
    struct arena *mem;
    struct loop *loop;
    struct login login;
    struct client *client; /* made by cli_connect */
    struct client_lane *lane;
    const char *ns; /* the one that holds */
    int64_t patience_ms; /* of a request where --timeout does not say; 0: as is usual */
    int exit;       /* a verb's own exit status, when it returns 0 */
};
struct verb {
    const char *name, *group, *usage, *summary, *examples;
    const struct option *options;
    int (*run)(struct cli *c, struct err *err);
    const char *completes; /* what its words are: "kind", "workload", "target", "file" or "" */
};
extern const struct verb verb_table[];
extern const unsigned verb_count;
const struct verb *verb_find(const char *name);
void verb_print_help(const struct verb *v, FILE *out);
void verbs_help(FILE *out);
/* The nearest of names (each()-style table of n) within two edits, or NULL. */
const char *nearest_word(const char *word, const char *const *names, size_t n);
int verb_help(struct cli *c, struct err *err);
int verb_completion(struct cli *c, struct err *err);
int verb_complete(struct cli *c, struct err *err); /* __complete */

/* Reads the login and opens the client; verbs call it when they need a server. */
int cli_connect(struct cli *c, struct err *err) MUST_CHECK;
/* One request, answer as a Status-checked body. */
int cli_request(struct cli *c, const char *method, const char *path, const char *accept,
                const char *type, struct slice body, struct client_answer *answer,
                struct err *err) MUST_CHECK;
/* The same with the answer parsed; the caller deletes *ret. */
int cli_json(struct cli *c, const char *method, const char *path, const cJSON *body, cJSON **ret,
             struct err *err) MUST_CHECK;
int cli_operate(struct cli *c, const char *op, const cJSON *body, cJSON **ret,
                struct err *err) MUST_CHECK;
void cli_pause(struct cli *c, uint64_t ms); /* runs the loop meanwhile */
/* Watches `path` (cli_watch_path): each() is told every state, from the present one on, and returns
 * non-zero when it has seen enough. within_ms 0: as long as it takes; else E_TIMEOUT when over. */
int cli_follow(struct cli *c, const char *path, uint64_t within_ms,
               int (*each)(void *arg, const cJSON *object, bool deleted), void *arg,
               struct err *err) MUST_CHECK;
const char *cli_watch_path(struct cli *c, const struct kind *k, const char *ns, const char *name);
/* An empty name would make an object's path the collection's, and so would . or .. in a proxy. */
bool cli_name_ok(const char *name);
/* "/apis/…/namespaces/NS/PLURAL[/NAME]"; all: every namespace; name NULL: the collection. A name
 * that is not ok gives a path that begins with no slash, which cli_request refuses (E_USAGE). In
 * c->mem. */
const char *cli_path(struct cli *c, const struct kind *k, const char *ns, bool all,
                     const char *name);
/* By kind, plural, singular or short name, in any case; E_USAGE with the nearest. */
int cli_kind(const char *word, const struct kind **ret, struct err *err) MUST_CHECK;
/* E_USAGE with the usage line */
int cli_usage(const struct cli *c, struct err *err, const char *what);

/* ---- JSON and tables (text/print.c) ---- */
const char *json_text_of(const cJSON *o, const char *key); /* "" when absent */
const cJSON *json_at(const cJSON *o, const char *path);    /* "status.placement.target"; NULL */
const char *json_text_at(const cJSON *o, const char *path);
double json_number_at(const cJSON *o, const char *path);
void json_indent(const char *text, size_t n, struct buf *out); /* the same numbers, byte for byte */
void tree_print_json(const cJSON *j, struct buf *out);
/* {.items[*].metadata.name}, {.status.phase}{"\n"} and the like. */
int jsonpath_print(const cJSON *j, const char *template, struct buf *out,
                   struct err *err) MUST_CHECK;
void age_print(int64_t ms, char out[16]); /* 45s, 12m, 3h, 5d */
size_t text_width(const char *s);         /* columns on a terminal: UTF-8 code points */

struct table {
    unsigned columns;
    const char **cells; /* row by row; row 0 is the heading */
    unsigned n, cap;
    uint64_t right; /* bit per column: aligned to the right */
    struct arena *mem;
};
void table_init(struct table *t, struct arena *mem, unsigned columns);
void table_cell(struct table *t, const char *text); /* copied; "" prints as is */
void table_print(const struct table *t, struct buf *out);
void out_flush(struct cli *c, struct buf *b);                     /* writes and empties it */
void json_out(struct cli *c, const cJSON *j, const char *format); /* "json" or "yaml" */
/* What was written is on its way: 0 or E_IO. On a closed pipe: the end. */
int out_now(struct cli *c);

/* ---- documents (documents.c) ---- */
struct document {
    const char *file;
    int line;
    cJSON *json;
    struct yaml_doc *yaml;
};
struct documents {
    struct document *v;
    unsigned n, cap;
    struct yaml_doc **sets; /* what to free */
    size_t *set_n;
    unsigned n_sets;
};
/* FILE, DIR (recursively, *.yaml *.yml *.json, sorted) or "-". */
int documents_load(struct cli *c, const char *path, struct documents *ret,
                   struct err *err) MUST_CHECK;
int documents_parse(struct cli *c, const char *text, size_t n, const char *file,
                    struct documents *ret, struct err *err) MUST_CHECK;
/* By the descriptors, with FILE:LINE: in front of the first error. */
int documents_validate(struct cli *c, const struct documents *d, struct err *err) MUST_CHECK;
/* On c->err, as kubectl shows a Warning header. */
void cli_warn_unkept(struct cli *c, const struct object *o);
/* "document 3 (Queue vision): …" of a server → "FILE:LINE: Queue vision: …". */
void documents_locate(const struct documents *d, struct err *err);
void documents_free(struct documents *d);

/* ---- renderings that tests look at ---- */
/* A Decision for people; workload may be NULL. */
void explain_render(const cJSON *workload, const cJSON *decision, int64_t now_ms, struct arena *mem,
                    struct buf *out);
/* What a Migration is about now, one sentence; all that is known of it; of a Workload, what it can
 * resume from and where it moved (lists of items, NULL = none). */
bool move_over(const char *phase); /* Succeeded, Failed or Cancelled: Migrations and Workloads */
void move_line(const cJSON *m, struct arena *mem, struct buf *out);
void move_render(const cJSON *m, struct arena *mem, struct buf *out);
void workload_moves_render(const cJSON *w, const cJSON *checkpoints, const cJSON *moves,
                           int64_t now_ms, struct arena *mem, struct buf *out);
/* A CostReport (operation cost) as a table, and as CSV. */
void cost_render(const cJSON *report, struct arena *mem, struct buf *out);
void cost_csv(const cJSON *report, struct buf *out);
/* A ShadowReport (operation adopt.shadow). */
void adopt_render(const cJSON *report, bool wide, int64_t now_ms, struct arena *mem,
                  struct buf *out);
/* Unified diff of two texts; nothing when they are equal. */
void diff_unified(const char *from_name, const char *to_name, const char *a, const char *b,
                  struct arena *mem, struct buf *out);
/* An sbatch script as a Workload: #SBATCH lines that Hanse knows become fields, the script goes
 * whole. */
int sbatch_wrap(const char *script, size_t n, const char *name, cJSON **ret,
                struct err *err) MUST_CHECK;

/* ---- verbs ---- */
#define VERB_RUN(name) int verb_##name(struct cli *c, struct err *err);
VERB_RUN(get)
VERB_RUN(watch)
VERB_RUN(describe)
VERB_RUN(delete)
VERB_RUN(apply)
VERB_RUN(diff)
VERB_RUN(submit)
VERB_RUN(migrate)
VERB_RUN(save)
VERB_RUN(cost)
VERB_RUN(explain)
VERB_RUN(drain)
VERB_RUN(cordon)
VERB_RUN(uncordon)
VERB_RUN(logs)
VERB_RUN(attach)
VERB_RUN(exec)
VERB_RUN(port_forward)
VERB_RUN(status)
VERB_RUN(members)
VERB_RUN(token)
VERB_RUN(fence)
VERB_RUN(version)
VERB_RUN(bench)
VERB_RUN(orphans)
VERB_RUN(recover)
VERB_RUN(adopt)
VERB_RUN(backup)
#undef VERB_RUN
int orphans_get(struct cli *c, struct err *err) MUST_CHECK; /* hanse get orphans */
struct logs_wish {
    long rank, tail; /* tail -1: all */
    bool follow, timestamps;
    int64_t since_ms;       /* what came in the time up to now; 0: all */
    const char *since_time; /* or since then; NULL: all */
    long epoch;             /* whose; 0: the newest */
    bool previous;          /* of the epoch before the newest */
    bool all_epochs;        /* work_logs: from the first one on, not from the newest */
    bool patient;           /* what cannot be told now is waited for, from the first byte on */
};
/* One text (streams/logs.c): it goes on by itself at another member when it is cut off. */
struct logs_told {
    bool any, mid; /* something was told; it ends amid a line */
    int64_t epoch; /* of which it was; 0: not told */
};
int logs_print(struct cli *c, const char *ns, const char *name, const struct logs_wish *w,
               struct logs_told *ret_told, struct err *err) MUST_CHECK;
/* Waits until the work runs in an epoch after *epoch (until "Running") or has ended, and says on
 * c->err how it fares, unless it is quiet. *epoch: the one that it is in. E_NOTFOUND: deleted. */
int work_wait(struct cli *c, const char *ns, const char *name, const char *until, bool quiet,
              int64_t *epoch, char phase[32], struct err *err) MUST_CHECK;
/* The logs of its epochs, one after the other, up to its end: phase is how that was. */
int work_logs(struct cli *c, const char *ns, const char *name, const struct logs_wish *w,
              char phase[32], struct err *err) MUST_CHECK;
/* The line between the logs of two epochs: where it goes on, and why it does; moves: a list of
 * Migrations, or NULL (text/move.c). */
void epoch_line(const cJSON *workload, const cJSON *moves, int64_t before, int64_t epoch,
                struct buf *out);

#endif
