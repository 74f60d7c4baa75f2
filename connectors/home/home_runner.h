/* What the files of the runner's side share: its options, what it asks of its kernel, and its
 * program's output. Private to connectors/home. */
#ifndef HANSE_CONNECTORS_HOME_HOME_RUNNER_H
#define HANSE_CONNECTORS_HOME_HOME_RUNNER_H

#include "api/base/net/proxy.h"
#include "connectors/home/home.h"

/* ---- options (home_args.c) ---- */
struct home_args {
    /* As they were given; NULL: not. */
    const char *home, *ca, *token, *report, *wait, *save_signal, *proxy_url, *proxy_auth;
    const char *node, *devices;
    const char *installed;     /* the folder of hanse-run install */
    /* What they say. */
    uint64_t wait_ms;          /* for a hub, before the program is given up */
    int save_signo;            /* asks the program to save and go on; 0: it cannot be asked */
    struct report_place place; /* of report */
    struct proxy proxy;
    bool has_proxy;
};
/* Takes them out of argv and of the environment, and leaves the rest to the shim. E_USAGE. */
int home_args_take(int *argc, char **argv, struct home_args *ret, struct err *err) MUST_CHECK;
/* Where things are below --installed: hanse-run itself, what is removed once read, and what the
 * runner makes. */
#define HOME_INSTALLED_BIN "bin"
#define HOME_INSTALLED_KEY "key"
#define HOME_INSTALLED_TMP "tmp"

/* ---- its kernel (home_linux.c) ---- */
/* From now on other processes of this user (its own program, above all) cannot read this process's
 * memory, nor what /proc tells of it alone (PR_SET_DUMPABLE of prctl(2)); it leaves no core. */
void home_memory_keep(void);
#define HOME_FOLDER_MAX 1024
/* A folder that is this user's alone, below that one of --installed; NULL: below TMPDIR or /tmp.
 * Returns 0 or errno. */
int home_folder_make(const char *installed, char ret[HOME_FOLDER_MAX]);
/* The program finds `hanse` of that folder where its image has none. */
int home_path_env(const char *installed, struct err *err) MUST_CHECK;
/* All of it to standard output, however long that takes; what cannot be written is lost. */
void home_output_write(const char *p, size_t n);

/* Gives the program of that rank of a gang the names by which frameworks find its peers
 * (connectors/ranks), where this environment says at which address they meet: that only who starts
 * the runner knows. What is set stays. */
int home_peers_env(int64_t rank, int64_t ranks, struct err *err) MUST_CHECK;

/* ---- logs (home_output.c) ---- */
/* Its program's output, in a file that is bounded, is copied to the runner's own output, as it was
 * where the program had that itself. Who does not take it holds up neither the program nor the
 * runner: what he is too slow for goes with the front of the file. The hub reads the file by
 * connectors/streams. */
struct home_output;
/* In that folder, which is this user's alone. */
struct home_output *home_output_create(struct loop *l, const char *dir);
/* All accept NULL: the program has the runner's own output. */
const char *home_output_path(const struct home_output *o); /* NULL of NULL */
void home_output_over(struct home_output *o); /* the program has ended: what is there is copied */
bool home_output_is_over(const struct home_output *o);
bool home_output_quiet(const struct home_output *o); /* all is copied */
/* What is being copied is left to the end of the process. */
struct home_output *home_output_destroy(struct home_output *o);

#endif
