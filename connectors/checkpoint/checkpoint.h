/* Checkpoints as files: what a program's manifest says is verified, sealed beside it, gathered into
 * a cut of all ranks, verified again before anybody resumes from it, and removed when newer ones
 * are enough. Used by the shim (connectors/shim) and by the agent; knows neither of them.
 *
 * Nothing in here trusts a file: names stay below their folder, links are not followed, sizes and
 * digests are read back. A checkpoint that does not hold is refused with E_CHECKPOINT, and
 * err->field is its reason: CheckpointMissing, CheckpointTorn, CheckpointAltered,
 * CheckpointForeign; or CheckpointRanks: it may hold, but was saved by another number of ranks. Any
 * other error says that the store could not be asked: it is no verdict.
 *
 * All functions that take a path read or write files of any size: they block, and are called on the
 * thread pool (loop_work) or in a program of their own. They share nothing but their arguments. */
#ifndef HANSE_CONNECTORS_CHECKPOINT_CHECKPOINT_H
#define HANSE_CONNECTORS_CHECKPOINT_CHECKPOINT_H

#include "api/base/err.h"
#include "api/base/mem.h"
#include "connectors/ends.h"
#include "connectors/wire/wire.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CHECKPOINT_MANIFEST_FILE "manifest.json"
#define CHECKPOINT_MANIFEST_MAX (8u << 20)
#define CHECKPOINT_CUT_MAX (4u << 20)
#define CHECKPOINT_FILES_MAX 20000 /* of one manifest */
#define CHECKPOINT_NAME_MAX 512
#define CHECKPOINT_DEPTH_MAX 8
#define CHECKPOINT_RANKS_MAX 4096
#define CHECKPOINT_NUMBER_MAX ((int64_t)1 << 53)
#define CHECKPOINT_PATH_MAX 1024 /* of a cut: what travels in an observation */
#define CHECKPOINT_KEEP_MIN 2
/* The reasons of connectors/ends.def that these functions tell in err->field */
#define CHECKPOINT_UNREACHABLE end_text(END_STORE_UNREACHABLE)
#define CHECKPOINT_OTHER_RANKS end_text(END_CHECKPOINT_RANKS)
#define CHECKPOINT_MISSING end_text(END_CHECKPOINT_MISSING)
#define CHECKPOINT_TORN end_text(END_CHECKPOINT_TORN)
#define CHECKPOINT_ALTERED end_text(END_CHECKPOINT_ALTERED)
#define CHECKPOINT_FOREIGN end_text(END_CHECKPOINT_FOREIGN)

/* ---- where they are (store/) ---- */
/* Strings are borrowed for the call; NULL stands for "". */
struct checkpoint_store {
    const char *base; /* of one workload: an absolute folder, or s3://BUCKET/PREFIX */
    /* A folder of this machine that stands in for a store which is none: laid out like base. */
    const char *scratch;
    /* "NAME=value", NULL-terminated: AWS_…, how to reach it. NULL: as this process's own says. */
    const char *const *env;
    /* Folders, separated by ':', below which a base must lie that is a folder; NULL: anywhere. */
    const char *roots;
    uint64_t patience_ms; /* with a store that does not answer; 0 = as is usual */
};
/* Is it a store that is no folder of this machine, so that a scratch folder is needed? */
bool checkpoint_store_is_remote(const char *base);
/* ---- which folders may be stores (store/roots.c) ---- */
#define CHECKPOINT_ROOTS_MAX 4096
/* A list of folders, separated by ':', none of them "/". */
int checkpoint_roots_check(const char *roots, struct err *err) MUST_CHECK;
/* By the names alone, so that it does not block: 0 and the root that path lies in, or E_FORBIDDEN
 * with the sentence for whoever named it. */
int checkpoint_roots_allow(const char *roots, const char *path, char ret_root[CHECKPOINT_PATH_MAX],
                           struct err *err) MUST_CHECK;
bool checkpoint_path_within(const char *folder, const char *path); /* is it that, or below it? */
/* By what is there, too: no link on the way down. It blocks. Whatever opens a store asks it. */
int checkpoint_store_allowed(const struct checkpoint_store *at, struct err *err) MUST_CHECK;
/* A scratch folder, or what it became; both accept that it is absent. Renaming does not block. */
int checkpoint_scratch_rename(const char *from, const char *to, struct err *err) MUST_CHECK;
int checkpoint_scratch_remove(const char *path, struct err *err) MUST_CHECK;

/* ---- manifest: what a program wrote (manifest.c) ---- */
struct checkpoint_file {
    const char *name;
    int64_t bytes;
    char sha256[65];
};
struct checkpoint_manifest {       /* in an arena */
    int64_t step, bytes;           /* bytes: of all files */
    struct checkpoint_file *files; /* sorted by name */
    size_t n_files;
    char digest[CHECKPOINT_DIGEST_MAX]; /* of the text */
};
/* E_CHECKPOINT when it is not whole or says what it must not. */
int checkpoint_manifest_parse(const char *text, size_t n, struct arena *a,
                              struct checkpoint_manifest *ret, struct err *err) MUST_CHECK;
/* The step that the manifest in this folder says; -1: there is none, or it is not whole. */
int64_t checkpoint_manifest_step(const char *folder);
void checkpoint_manifest_print(const struct checkpoint_manifest *m, struct buf *out);
/* A relative path without "..", ".", empty parts or control characters; not manifest.json. */
int checkpoint_name_check(const char *name, struct err *err) MUST_CHECK;

/* ---- progress of one call that may take long ---- */
struct checkpoint_progress { /* zeroed; may be read and cancelled from another thread */
    _Atomic uint64_t bytes;  /* read so far; moves as long as the store answers */
    _Atomic bool cancel;     /* the call ends soon, with E_CANCELLED */
};

/* ---- sealing, one rank (seal.c) ---- */
/* What is sealed is told as it is: struct checkpoint_sealed, connectors/wire/wire.def. */
/* Makes BASE/eE/RANK (0700) and the folder of its sealed steps, removes what a crash left half
 * done, and looks what has been sealed already. p (may be NULL) is of this call alone. */
struct checkpoint_sealer;
int checkpoint_sealer_create(const struct checkpoint_store *at, int64_t epoch, int64_t rank,
                             struct checkpoint_progress *p, struct checkpoint_sealer **ret,
                             struct err *err) MUST_CHECK;
struct checkpoint_sealer *checkpoint_sealer_destroy(struct checkpoint_sealer *s);
const char *checkpoint_sealer_dir(const struct checkpoint_sealer *s); /* HANSE_CHECKPOINT_DIR */
/* HANSE_CHECKPOINT_DIR of the other ranks that save into the folder of rank 0; it is made. */
int checkpoint_shared_dir(const struct checkpoint_store *at, int64_t epoch,
                          char ret[CHECKPOINT_PATH_MAX + 64], struct err *err) MUST_CHECK;
/* The newest that is sealed. */
const struct checkpoint_sealed *checkpoint_sealer_newest(const struct checkpoint_sealer *s);
/* Seals what manifest.json says now, if that is new. Nothing new is 0. A manifest that was
 * refused is refused again (cheaply) until it changes. over: the program is gone, nobody writes
 * any more. */
int checkpoint_sealer_look(struct checkpoint_sealer *s, bool over, struct checkpoint_progress *p,
                           struct err *err) MUST_CHECK;

/* ---- cuts: all ranks at one point (cut.c) ---- */
struct checkpoint_rank {
    int64_t rank, step, bytes;
    char manifest[CHECKPOINT_DIGEST_MAX];
};
struct checkpoint_cut { /* in an arena */
    const char *workload;
    int64_t epoch, step, bytes;    /* step: the least; bytes: of all */
    struct checkpoint_rank *ranks; /* 0, 1, 2, … */
    size_t n_ranks;
    /* Of ranks that saved into one folder together: how many; then the folder is that of rank 0,
     * which alone is in `ranks`. 0: each of `ranks` has its own. */
    int64_t workers;
};
int checkpoint_cut_parse(const char *text, size_t n, struct arena *a, struct checkpoint_cut *ret,
                         struct err *err) MUST_CHECK;
/* Writes BASE/sealed/eE/cut-N.json durably, N being one more than the highest there. after: the
 * number of the newest cut when this one was chosen (0 = there was none), or AFTER_ANY where there
 * is one writer only. E_EXISTS: somebody else was quicker; look again. */
#define CHECKPOINT_AFTER_ANY (-1)
int checkpoint_cut_write(const struct checkpoint_store *at, const struct checkpoint_cut *c,
                         int64_t after, char ret_path[CHECKPOINT_PATH_MAX], int64_t *ret_number,
                         char ret_digest[CHECKPOINT_DIGEST_MAX], struct err *err) MUST_CHECK;

#define CHECKPOINT_SEALS 4
struct checkpoint_seals { /* what one rank has sealed, oldest first */
    struct checkpoint_sealed seal[CHECKPOINT_SEALS];
    unsigned n;
};
struct checkpoint_times { /* of a cut: the longest writing, and when the first rank's was whole */
    int64_t writeTime, writtenAt;
};
/* Takes over what a rank reports. True when it is new. */
bool checkpoint_seals_add(struct checkpoint_seals *s, const struct checkpoint_sealed *seal);
/* Is there a better cut than the last one (steps by rank; NULL: none yet)? Then *ret gets one entry
 * a rank. Ranks that save together must never be cut apart, and nobody says which ones do. So: the
 * newest step that all have sealed; else, when each of them has gone on since the last cut, what
 * each has newest. all_saved: all have ended and said that what they have written is to be resumed
 * from; then that is it. */
bool checkpoint_cut_choose(const struct checkpoint_seals *seals, size_t n, const int64_t *last,
                           bool all_saved, struct checkpoint_rank *ret,
                           struct checkpoint_times *ret_times);

/* ---- of ranks that share nothing but the store (gather.c) ---- */
struct checkpoint_gather {
    struct checkpoint_store at;
    const char *workload, *resume_path;
    int64_t epoch, world, keep;
    int64_t rank; /* of who asks */
    bool shared;  /* they save into one folder */
    /* A hub is told of cuts, and resumes from what it was told: nothing goes that it may have for
     * its newest. known: number of the newest that it surely has, 0: none. */
    bool told;
    int64_t known;
    bool apart; /* who asks removes what is too old itself (checkpoint_retain) */
    /* One for each part of a cut: set to the steps of the newest. NULL: nobody wants to know. */
    int64_t *steps;
};
struct checkpoint_gathered {          /* the newest cut of the epoch */
    struct run_checkpoint_report cut; /* not present: there is none, or it cannot be read */
    int64_t number;
    int64_t own_step; /* of the rank that asks; -1: none */
    bool wrote;       /* it was made now */
};
/* Looks what all ranks have sealed in the store; writes a cut if there is a better one, and removes
 * what is too old then. all_saved as above. ret (may be NULL) is set also where removing failed. */
int checkpoint_cut_gather(const struct checkpoint_gather *g, bool all_saved,
                          struct checkpoint_gathered *ret, struct err *err) MUST_CHECK;
/* Do those who go by one store's name mean the same store? One of them leaves a file there, and
 * the others look for it. The name is a new one each time, of letters, digits, '-' and '.'; the
 * file goes with all else of its epoch. */
int checkpoint_meeting_leave(const struct checkpoint_store *at, int64_t epoch, const char *name,
                             struct err *err) MUST_CHECK;
/* E_NOTFOUND: the store answers, and does not have it. */
int checkpoint_meeting_see(const struct checkpoint_store *at, int64_t epoch, const char *name,
                           struct err *err) MUST_CHECK;
/* The newest cut before (*epoch, *number), which become its own; INT64_MAX - 1 and INT64_MAX to
 * begin with. E_NOTFOUND (err is not set): there is none. */
int checkpoint_cut_before(const struct checkpoint_store *at, int64_t *epoch, int64_t *number,
                          char ret[CHECKPOINT_PATH_MAX], struct err *err) MUST_CHECK;
/* The newest epoch that has a folder; 0 = none. */
int checkpoint_epoch_newest(const struct checkpoint_store *at, int64_t *ret,
                            struct err *err) MUST_CHECK;

/* ---- resuming (resume.c) ---- */
struct checkpoint_want {
    const char *path;           /* cut file */
    struct checkpoint_store at; /* how to reach its store; the path says which one it is */
    const char *digest;         /* "sha256:…"; "" = not known, then it is not compared */
    const char *workload;       /* uid; "" = any */
    int64_t world;              /* 0 = any */
    int64_t rank;               /* -1 = all; 0 where they share a folder */
    int64_t layout;             /* enum checkpoint_layout that it must have; 0 = any */
    /* Where stage leaves what it has read and found right, by rank; files that are the same ones
     * since (device, inode, size, times) need not be read again. NULL: all is read. */
    const char *proofs_dir;
    bool write_proofs;
    bool by_sealer; /* the same for what its sealer has read, on this machine since it started */
    bool cut_only;  /* the cut itself and whose it is, none of its files */
    /* With rank -1: this folder is made anew, and in it one for each rank, 0, 1, 2, …, with exactly
     * what its manifest says: what a program sees that resumes with another number of ranks.
     * NULL: none. */
    const char *view;
};
struct checkpoint_found {
    int64_t epoch, step, bytes, ranks;  /* of the whole cut */
    int64_t writtenAt;                  /* UTC: when the cut was written */
    char path[CHECKPOINT_PATH_MAX];     /* of the cut */
    char digest[CHECKPOINT_DIGEST_MAX]; /* of the cut */
    char dir[CHECKPOINT_PATH_MAX + 64]; /* of the rank: HANSE_RESUME_DIR; for all: view, or "" */
};
int checkpoint_verify(const struct checkpoint_want *w, struct checkpoint_progress *p,
                      struct checkpoint_found *ret, struct err *err) MUST_CHECK;
/* ---- the newest in the store (newest.c) ---- */
struct checkpoint_search {
    struct checkpoint_store at; /* scratch: what is fetched is left below it, by the cut's digest */
    const char *workload;
    int64_t epoch; /* no later one. Its runs are proved ended: nobody writes there any more */
    int64_t known_epoch, known_step; /* only what is newer than this; 0 and -1: whatever there is */
    int64_t world;                   /* 0 = any */
    int64_t workers;                 /* that epoch had: its seals become a cut; 0 = not known */
    bool shared;                     /* they saved into one folder */
    const char *proofs;              /* proofs are left below it, by the cut's digest; NULL: none */
};
/* The newest cut that verifies as a whole; one that does not is passed over for the next older, and
 * `passed` (an initialised buffer) says why. Seals that nobody made a cut of, since their agent was
 * gone, become one. 0: ret->path is it, or "" when nothing newer is there. Any error says that the
 * store could not be asked. */
int checkpoint_newest(const struct checkpoint_search *q, struct checkpoint_progress *p,
                      struct checkpoint_found *ret, struct buf *passed, struct err *err) MUST_CHECK;
/* What the program is to see of a verified folder: exactly what the manifest says. A log that has
 * grown since is cut to its length in a copy; then ret is `view`, made anew, with links for the
 * rest. Else it is dir itself. */
int checkpoint_exact(const char *dir, const char *view, char ret[CHECKPOINT_PATH_MAX + 64],
                     struct err *err) MUST_CHECK;
/* A folder with a manifest.json: a program's own, or one sealed step. */
int checkpoint_verify_dir(const char *dir, const char *digest, struct checkpoint_progress *p,
                          struct checkpoint_found *ret, struct err *err) MUST_CHECK;

/* ---- retention (retain.c) ---- */
struct checkpoint_retain {
    struct checkpoint_store at;
    int64_t epoch; /* whose runner asks */
    int64_t keep;  /* newest cuts that stay, at least CHECKPOINT_KEEP_MIN */
    /* Numbers of own cuts: the newest that the hub surely has (0 = none), and the newest that it
     * was told of. It may resume from any of these, and from none newer. */
    int64_t known, told;
    const char *resume_path; /* stays until a cut is known; "" = none */
    const int64_t *floor;    /* by rank: sealed steps from here on may still become part of a cut */
    size_t n_ranks;
};
/* Removes cuts and sealed steps that nobody needs, also of older epochs. Does nothing once a newer
 * epoch is there; leaves an older one alone that has written since this one began. */
int checkpoint_retain(const struct checkpoint_retain *r, struct err *err) MUST_CHECK;

/* `hanse checkpoint …`; argv[0] is "checkpoint". */
int checkpoint_main(int argc, char **argv);

#endif
