/* three-tier-trainer: the program that Hanse's main job places, stops and moves. It learns
 * handwritten digits, keeps the program contract of deploy/examples/README.md and bears witness of
 * its own life. It must never depend on where or when it runs, and never start over silently when
 * it was told to resume. */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "deploy/examples/three-tier/trainer/checkpoint.h"
#include "deploy/examples/three-tier/trainer/model.h"
#include "deploy/examples/three-tier/trainer/witness.h"

enum { EXIT_USAGE = 2, EXIT_SAVED = 75, WORLD_MAX = 64, WHY_BYTES = 512 };

struct options {
    uint64_t steps, seed, pace_ms, checkpoint_every;
    uint32_t rank, world;
    bool serve, ignore_stop;
    const char *data, *result, *witness, *checkpoint_dir, *resume_dir;
};

struct run {
    struct options options;
    struct digits digits;
    struct model model;
    struct checkpoint_history history;
    struct witness *witness;
    uint64_t resumed_from;
    char why[WHY_BYTES];
};

static const char usage[] =
    "usage: three-tier-trainer [options]\n"
    "  --steps N             steps to train (default 1000)\n"
    "  --serve               afterwards classify held-out digits until stopped\n"
    "  --seed S              seed of weights and sample order (default 1)\n"
    "  --data FILE           digits as CSV (default data/digits.csv)\n"
    "  --pace-ms M           wait after each step (default 0)\n"
    "  --checkpoint-every K  save each K steps in HANSE_CHECKPOINT_DIR (default 0: when stopped)\n"
    "  --ignore-stop         go on when asked to stop, as programs do that know of no signal\n"
    "  --rank R --world W    shard R of W (default HANSE_RANK, HANSE_WORLD_SIZE, else 0 of 1)\n"
    "  --result FILE         write the result as JSON when finished\n"
    "  --witness FILE        append start, heartbeats and stop (default WITNESS_FILE)\n"
    "exit status: 0 finished, 75 saved and stopped, 1 failed, 2 bad usage, 128+N stopped unsaved\n";

static int parse_number(const char *name, const char *text, uint64_t limit, uint64_t *ret)
{
    char *end = NULL;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end || errno || value > limit) {
        (void)fprintf(stderr, "three-tier-trainer: %s: expected 0..%llu, got \"%s\"\n", name,
                      (unsigned long long)limit, text);
        return -1;
    }
    *ret = value;
    return 0;
}

static const char *env_or_null(const char *name)
{
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

/* One option of the list in options_parse; -1 when it is wrong. */
static int options_take(struct options *o, int option, const char *text, uint64_t *rank,
                        uint64_t *world)
{
    const uint64_t many = 1000000000u;
    switch (option) {
    case 'n':
        return parse_number("--steps", text, many, &o->steps);
    case 's':
        return parse_number("--seed", text, UINT64_MAX, &o->seed);
    case 'p':
        return parse_number("--pace-ms", text, 3600000, &o->pace_ms);
    case 'c':
        return parse_number("--checkpoint-every", text, many, &o->checkpoint_every);
    case 'k':
        return parse_number("--rank", text, WORLD_MAX - 1, rank);
    case 'w':
        return parse_number("--world", text, WORLD_MAX, world);
    case 'd':
        o->data = text;
        return 0;
    case 'r':
        o->result = text;
        return 0;
    case 'W':
        o->witness = text;
        return 0;
    case 'S':
        o->serve = true;
        return 0;
    case 'I':
        o->ignore_stop = true;
        return 0;
    default:
        return -1;
    }
}

static int options_parse(int argc, char **argv, struct options *o)
{
    static const struct option list[] = {
        {"steps", 1, NULL, 'n'},
        {"seed", 1, NULL, 's'},
        {"data", 1, NULL, 'd'},
        {"pace-ms", 1, NULL, 'p'},
        {"rank", 1, NULL, 'k'},
        {"world", 1, NULL, 'w'},
        {"result", 1, NULL, 'r'},
        {"witness", 1, NULL, 'W'},
        {"checkpoint-every", 1, NULL, 'c'},
        {"serve", 0, NULL, 'S'},
        {"help", 0, NULL, 'h'},
        {"ignore-stop", 0, NULL, 'I'},
        {0},
    };
    *o = (struct options){.steps = 1000,
                          .seed = 1,
                          .data = "data/digits.csv",
                          .witness = env_or_null("WITNESS_FILE"),
                          .checkpoint_dir = env_or_null("HANSE_CHECKPOINT_DIR"),
                          .resume_dir = env_or_null("HANSE_RESUME_DIR")};
    uint64_t rank = 0, world = 1;
    const char *env_rank = env_or_null("HANSE_RANK"), *env_world = env_or_null("HANSE_WORLD_SIZE");
    if ((env_rank && parse_number("HANSE_RANK", env_rank, WORLD_MAX - 1, &rank) < 0) ||
        (env_world && parse_number("HANSE_WORLD_SIZE", env_world, WORLD_MAX, &world) < 0)) {
        return -1;
    }
    int option = 0;
    while ((option = getopt_long(argc, argv, "h", list, NULL)) != -1) {
        if (option == 'h') {
            (void)fputs(usage, stdout);
            exit(0);
        }
        if (options_take(o, option, optarg, &rank, &world) < 0) {
            return -1;
        }
    }
    if (optind != argc || rank >= world) {
        (void)fprintf(stderr, "three-tier-trainer: %s\n",
                      optind != argc ? "takes no plain arguments"
                                     : "the rank must be below the world");
        return -1;
    }
    o->rank = (uint32_t)rank;
    o->world = (uint32_t)world;
    return 0;
}

/* Waits the pace; the number of the signal that asks to stop, else 0. The signals are blocked, so
 * none is lost between two calls. */
static int stop_wanted(const struct options *o, const sigset_t *signals, uint64_t pace_ms)
{
    struct timespec t = {.tv_sec = (time_t)(pace_ms / 1000),
                         .tv_nsec = (long)(pace_ms % 1000) * 1000000};
    int number = sigtimedwait(signals, NULL, &t);
    return number > 0 && !o->ignore_stop ? number : 0;
}

/* Whoever is killed between the last byte and "saved" has told that he began. */
static int save(struct run *run)
{
    if (witness_note(run->witness, "saving", run->model.step) < 0) {
        (void)snprintf(run->why, sizeof run->why, "the witness file cannot be written");
        return -1;
    }
    if (checkpoint_save(run->options.checkpoint_dir, &run->model, run->digits.digest, &run->history,
                        run->why, sizeof run->why) < 0) {
        return -1;
    }
    if (witness_note(run->witness, "saved", run->model.step) < 0) {
        (void)snprintf(run->why, sizeof run->why, "the witness file cannot be written");
        return -1;
    }
    return 0;
}

static void say(const struct run *run, const char *word)
{
    struct score s = model_score(&run->model, &run->digits);
    (void)printf("%s step=%llu loss=%.6f accuracy=%.4f digest=%016llx\n", word,
                 (unsigned long long)run->model.step, s.loss, s.accuracy,
                 (unsigned long long)model_digest(&run->model));
}

/* Exit status of a run that was asked to stop. */
static int stop_early(struct run *run, int number, const char **ret_reason)
{
    if (!run->options.checkpoint_dir) {
        say(run, "stopped");
        *ret_reason = "signalled";
        return 128 + number;
    }
    if (save(run) < 0) {
        *ret_reason = "failed";
        return 1;
    }
    say(run, "saved");
    *ret_reason = "saved";
    return EXIT_SAVED;
}

static int result_write(struct run *run)
{
    const struct options *o = &run->options;
    if (!o->result) {
        return 0;
    }
    struct score s = model_score(&run->model, &run->digits);
    char temporary[4096];
    int n = snprintf(temporary, sizeof temporary, "%s.%ld.tmp", o->result, (long)getpid());
    FILE *file = n < (int)sizeof temporary ? fopen(temporary, "we") : NULL;
    bool good = file != NULL;
    if (file) {
        good = fprintf(file,
                       "{\"rank\":%u,\"world\":%u,\"seed\":%llu,\"step\":%llu,\"resumedFrom\":%llu,"
                       "\"loss\":%.17g,\"accuracy\":%.17g,\"digest\":\"%016llx\"}\n",
                       o->rank, o->world, (unsigned long long)o->seed,
                       (unsigned long long)run->model.step, (unsigned long long)run->resumed_from,
                       s.loss, s.accuracy, (unsigned long long)model_digest(&run->model)) > 0;
        good = fclose(file) == 0 && good;
        good = good && rename(temporary, o->result) == 0;
    }
    if (!good) {
        (void)snprintf(run->why, sizeof run->why, "result %s: %m", o->result);
    }
    return good ? 0 : -1;
}

/* Trains, then serves where asked to; the exit status. */
static int run_loop(struct run *run, const sigset_t *signals, const char **ret_reason)
{
    const struct options *o = &run->options;
    uint64_t report_every = o->steps / 10 + 1;
    *ret_reason = "failed";
    while (run->model.step < o->steps) {
        model_train_step(&run->model, &run->digits);
        uint64_t step = run->model.step;
        if (witness_step(run->witness, step) < 0) {
            (void)snprintf(run->why, sizeof run->why, "the witness file cannot be written");
            return 1;
        }
        if (step % report_every == 0) {
            say(run, "progress");
        }
        if (o->checkpoint_dir && o->checkpoint_every && step % o->checkpoint_every == 0 &&
            save(run) < 0) {
            return 1;
        }
        /* After the last step the signal is left for serving: taken here, it would be lost. */
        int number = step < o->steps ? stop_wanted(o, signals, o->pace_ms) : 0;
        if (number) {
            return stop_early(run, number, ret_reason);
        }
    }
    say(run, "done");
    if (result_write(run) < 0) {
        return 1;
    }
    uint64_t served = 0;
    for (int number = 0; o->serve; served++) {
        (void)model_classify(&run->model, &run->digits, served);
        if (witness_step(run->witness, run->model.step) < 0) {
            (void)snprintf(run->why, sizeof run->why, "the witness file cannot be written");
            return 1;
        }
        number = stop_wanted(o, signals, o->pace_ms ? o->pace_ms : 1);
        if (number) {
            return stop_early(run, number, ret_reason);
        }
    }
    *ret_reason = "finished";
    return 0;
}

static int run_prepare(struct run *run)
{
    const struct options *o = &run->options;
    if (digits_read(o->data, &run->digits, run->why, sizeof run->why) < 0) {
        return -1;
    }
    model_init(&run->model, o->seed, o->rank, o->world);
    if (o->resume_dir) {
        if (checkpoint_load(o->resume_dir, run->digits.digest, &run->model, run->why,
                            sizeof run->why) < 0) {
            return -1;
        }
        run->resumed_from = run->model.step;
        (void)printf("resumed step=%llu\n", (unsigned long long)run->resumed_from);
        if (witness_note(run->witness, "resumed", run->resumed_from) < 0) {
            (void)snprintf(run->why, sizeof run->why, "the witness file cannot be written");
            return -1;
        }
    }
    return 0;
}

int main(int argc, char **argv)
{
    struct run *run = calloc(1, sizeof *run);
    if (!run) {
        (void)fputs("three-tier-trainer: no memory\n", stderr);
        return 1;
    }
    int status = EXIT_USAGE;
    const char *reason = "failed";
    sigset_t signals;
    (void)sigemptyset(&signals);
    (void)sigaddset(&signals, SIGTERM);
    (void)sigaddset(&signals, SIGINT);
    (void)sigprocmask(SIG_BLOCK, &signals, NULL);
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    if (options_parse(argc, argv, &run->options) < 0) {
        (void)fputs(usage, stderr);
        goto out;
    }
    status = 1;
    /* The life begins before the data is read: a start that is slow or fails is seen too. */
    run->witness =
        witness_open(run->options.witness, run->options.rank, 0, run->why, sizeof run->why);
    if (run->witness && run_prepare(run) == 0) {
        status = run_loop(run, &signals, &reason);
    }
    if (status == 1) {
        (void)fprintf(stderr, "three-tier-trainer: %s\n", run->why);
    }
    run->witness = witness_close(run->witness, reason, status);
out:
    free(run);
    return status;
}
