/* Where a runner leaves its report, and the writing of it. Must never hold up the loop, which
 * renews a lease (a folder may be shared, and hang): files are written on a thread. Nor the end of
 * a run for long: a tool that hangs is ended, a thread that hangs is left alone. */
#include "api/base/log.h"
#include "connectors/report/report.h"
#include "connectors/report/report_internal.h"

#include <openssl/crypto.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TOOL "scontrol"
#define TOOL_MS 10000 /* a controller that is away answers after nine seconds */

/* What goes into a file. All of it is its own, for its thread may outlive the writer. */
struct writing {
    struct report_writer *of; /* NULL: it is gone */
    struct loop *loop;
    enum report_form form;
    char *path, token[HOME_TOKEN_MAX];
    struct buf text;
    bool looks, left; /* looks: it says that nothing was started; left: what is there says more */
    int rc;
    struct err err;
};

struct report_writer {
    struct loop *loop;
    struct report_place place;
    char token[HOME_TOKEN_MAX];
    int64_t number, cut_number; /* of its lines; of the cut that the last one told */
    struct writing *writing, *next; /* on its thread; the newest that waits for it */
    /* of REPORT_SLURM */
    char tool[REPORT_TOOL_MAX], job[32];
    struct process *process;
    struct timer patience;
};

/* ---- places ---- */
int report_place_read(const char *text, struct report_place *ret, struct err *err)
{
    static const char termination[] = "termination-message", file[] = "file:";
    const size_t n = sizeof termination - 1;

    *ret = (struct report_place){REPORT_PLAIN, text};
    if (strcmp(text, "slurm-comment") == 0) {
        *ret = (struct report_place){REPORT_SLURM, ""};
    } else if (strcmp(text, termination) == 0) {
        *ret = (struct report_place){REPORT_TERMINATION, REPORT_TERMINATION_LOG};
    } else if (strncmp(text, termination, n) == 0 && text[n] == ':') {
        *ret = (struct report_place){REPORT_TERMINATION, text + n + 1};
        if (*ret->path != '/')
            return err_set(err, E_USAGE, "--report %.100s: expected an absolute path behind the :",
                           text);
    } else if (strncmp(text, file, sizeof file - 1) == 0) {
        *ret = (struct report_place){REPORT_FILE, text + sizeof file - 1};
    }
    if (ret->form != REPORT_SLURM && !*ret->path)
        return err_set(err, E_USAGE, "--report %.100s: it names no file", text);
    return 0;
}

bool report_place_signs(const struct report_place *p)
{
    return p->form != REPORT_PLAIN;
}

/* ---- the writer ---- */
static void tool_over(struct report_writer *w)
{
    timer_stop(&w->patience);
    if (w->process)
        process_unref(w->process);
    w->process = NULL;
}

static void writing_free(struct writing *x)
{
    if (!x)
        return;
    OPENSSL_cleanse(x->token, sizeof x->token);
    buf_fini(&x->text);
    mem_free(x->path);
    mem_free(x);
}

static void failed(const struct report_writer *w, const char *why)
{
    const char *place = w->place.form == REPORT_SLURM ? "slurm-comment" : w->place.path;

    log_event(LOG_WARN, "run.report",
              LOG_FIELDS({"place", log_str(place)}, {"why", log_str(why)}));
}

static void tool_hangs(void *arg)
{
    struct report_writer *w = arg;

    process_signal(w->process, SIGKILL);
    tool_over(w);
    failed(w, TOOL " has not ended in time");
}

static int slurm_begin(struct report_writer *w, struct err *err)
{
    const char *job = getenv("SLURM_JOB_ID");

    if (!job || !*job || strlen(job) >= sizeof w->job || job[strspn(job, "0123456789")])
        return err_set(err, E_UNAVAIL,
                       "--report slurm-comment: this is no Slurm job (SLURM_JOB_ID is not there)");
    if (report_tool_find(TOOL, w->tool))
        return err_set(err, E_UNAVAIL,
                       "--report slurm-comment: " TOOL " is not in PATH, and a job has no other "
                       "way to its own comment: use file:PATH");
    str_copy(w->job, sizeof w->job, job);
    return 0;
}

int report_writer_create(struct loop *l, const struct report_place *p, const char *token,
                         struct report_writer **ret, struct err *err)
{
    struct report_writer *w = mem_new(struct report_writer);
    int why = 0, rc = 0;

    PRE(!report_place_signs(p) || strrchr(token, '/'));
    w->loop = l;
    w->place = *p;
    str_copy(w->token, sizeof w->token, token);
    timer_init(&w->patience, l, tool_hangs, w);
    if (p->form == REPORT_SLURM)
        rc = slurm_begin(w, err);
    else if (p->form == REPORT_TERMINATION)
        why = report_in_place(p->path, "", 0);
    else if (p->form == REPORT_FILE)
        why = report_folder_look(p->path);
    if (why)
        rc = err_set(err, E_UNAVAIL, "--report: %.200s cannot be written: %s", p->path,
                     strerror(why));
    if (rc < 0)
        w = report_writer_destroy(w);
    else
        *ret = w;
    return rc;
}

struct report_writer *report_writer_destroy(struct report_writer *w)
{
    if (!w)
        return NULL;
    if (w->process)
        process_signal(w->process, SIGKILL);
    tool_over(w);
    if (w->writing)
        w->writing->of = NULL;
    writing_free(w->next);
    OPENSSL_cleanse(w->token, sizeof w->token);
    mem_free(w);
    return NULL;
}

bool report_writer_quiet(const struct report_writer *w)
{
    return !w || (!w->process && !w->writing);
}

static void tool_ended(struct process *p, int exit_code, int term_signal, void *arg)
{
    struct report_writer *w = arg;
    char why[80];

    (void)p; /* it is gone when this returns */
    w->process = NULL;
    timer_stop(&w->patience);
    if (!exit_code && !term_signal)
        return;
    (void)snprintf(why, sizeof why, TOOL " has ended with %d",
                   term_signal ? 128 + term_signal : exit_code);
    failed(w, why);
}

static void slurm_put(struct report_writer *w, struct buf *line)
{
    char job[48];
    struct err err;
    AUTO_BUF comment;

    buf_init(&comment, REPORT_LINE_MAX + 16);
    buf_printf(&comment, "Comment=%.*s", (int)(line->n - 1), line->p);
    INV(!comment.failed);
    (void)snprintf(job, sizeof job, "JobId=%s", w->job);
    const char *const argv[] = {w->tool, "update", job, comment.p, NULL};
    const struct process_spec spec = {.argv = argv,
                                      .env = (const char *const *)environ,
                                      .stderr_path = PROCESS_OWN};
    if (process_spawn(w->loop, &spec, tool_ended, w, &w->process, &err) < 0)
        failed(w, err.text);
    else
        timer_start(&w->patience, TOOL_MS);
}

/* ---- files ---- */
static void writing_work(void *arg)
{
    struct writing *x = arg;
    char there[REPORT_LINE_MAX];
    size_t n = 0;
    int why;

    if (x->looks && report_there(x->path, there, &n) == 0 &&
        report_line_is_by(x->token, there, n)) {
        x->left = true;
        return;
    }
    if (x->form == REPORT_FILE) {
        x->rc = file_write(x->loop, x->path, x->text.p, x->text.n, 0644, &x->err);
        return;
    }
    why = x->form == REPORT_PLAIN ? report_plainly(x->path, x->text.p, x->text.n)
                                  : report_in_place(x->path, x->text.p, x->text.n);
    if (why)
        x->rc = err_set(&x->err, E_IO, "%s", strerror(why));
}

static void writing_done(void *arg);

static void writing_begin(struct report_writer *w)
{
    w->writing = w->next;
    w->next = NULL;
    if (w->writing)
        loop_work(w->loop, writing_work, writing_done, w->writing);
}

static void writing_done(void *arg)
{
    struct writing *x = arg;
    struct report_writer *w = x->of;

    if (w && x->rc < 0)
        failed(w, x->err.text);
    if (w && x->left)
        failed(w, "another process has left its report there, by the same token: it stays");
    writing_free(x);
    if (w)
        writing_begin(w);
}

static struct writing *writing_make(struct report_writer *w, size_t max)
{
    struct writing *x = mem_new(struct writing);

    x->of = w;
    x->loop = w->loop;
    x->form = w->place.form;
    x->path = mem_strdup(w->place.path);
    str_copy(x->token, sizeof x->token, w->token);
    buf_init(&x->text, max);
    return x;
}

/* What waits is left out for what is newer. */
static void writing_add(struct report_writer *w, struct writing *x)
{
    writing_free(w->next);
    w->next = x;
    if (!w->writing)
        writing_begin(w);
}

static void plain_put(struct report_writer *w, const struct run_report *r)
{
    struct writing *x = writing_make(w, WIRE_REPORT_MAX);
    struct err err;

    if (body_print_json(&schema_run_report, r, &x->text, &err) == 0) {
        writing_add(w, x);
        return;
    }
    failed(w, err.text);
    writing_free(x);
}

static void line_put(struct report_writer *w, const struct run_report *r)
{
    int64_t now = loop_wall_ms(w->loop);
    struct writing *x = writing_make(w, REPORT_LINE_MAX);

    x->looks = r->never_started && w->number == 0;
    report_line_print(w->token, r, ++w->number, now > 0 ? now : 0, &x->text);
    if (w->place.form != REPORT_SLURM) {
        writing_add(w, x);
        return;
    }
    slurm_put(w, &x->text);
    writing_free(x);
}

void report_writer_put(struct report_writer *w, const struct run_report *r)
{
    bool ended = r->step == RUN_STEP_ENDED;
    bool more = w->place.form == REPORT_TERMINATION || w->place.form == REPORT_FILE;

    if (!ended && (!more || !r->cut.present || r->cut_number == w->cut_number))
        return;
    w->cut_number = r->cut_number;
    if (w->place.form == REPORT_PLAIN)
        plain_put(w, r);
    else if (!w->process)
        line_put(w, r);
}
