/* A store in a folder of its own, a program that saves in it, and the questions that the tests of
 * checkpoints ask of it. Must know nothing of the shim or the agent. */
#ifndef HANSE_TESTS_SUPPORT_CHECKPOINT_KIT_H
#define HANSE_TESTS_SUPPORT_CHECKPOINT_KIT_H

#include "connectors/checkpoint/checkpoint.h"
#include "tests/support/unit.h"

#define WORKLOAD "w-uid"
#define HEX64 "0000000000000000000000000000000000000000000000000000000000000000"

extern char kit_base[64]; /* of the test that runs */

extern struct checkpoint_store kit_at; /* kit_base, unless a test says otherwise */

struct cut {
    char path[CHECKPOINT_PATH_MAX], digest[CHECKPOINT_DIGEST_MAX];
    int64_t number;
};

void kit_path_of(char out[512], const char *dir, const char *name);
void kit_put(const char *dir, const char *name, const void *p, size_t n);
void kit_hex_of(const void *p, size_t n, char out[65]);
void kit_put_manifest(const char *dir, const char *text);
void kit_save(const char *dir, int64_t step, const char *text);
struct checkpoint_sealer *kit_sealer(int64_t epoch, int64_t rank);
void kit_look(struct checkpoint_sealer *s);
void kit_look_refused(struct checkpoint_sealer *s, const char *reason, const char *says);
bool kit_exists(const char *fmt, ...);
void kit_read_all(const char *path, char *out, size_t max);
void kit_age(const char *name, int64_t seconds);
struct cut kit_cut(int64_t epoch, struct checkpoint_sealer **s, size_t n);
struct cut kit_saved(int64_t epoch, int64_t step, const char *text);
int kit_verify_as(const struct cut *c, const char *workload, int64_t world, int64_t rank,
                  struct checkpoint_found *f, struct err *e);
void kit_refused_as(const struct cut *c, const char *workload, int64_t world, const char *reason);
void kit_refused(const struct cut *c, const char *reason);
void kit_good(const struct cut *c, int64_t step);
int kit_setup(void **state);
int kit_teardown(void **state);

#define T(f) cmocka_unit_test_setup_teardown(f, kit_setup, kit_teardown)

#endif
