/* A log as its runner bounds it, what keeps it, and a store in a folder of this test. Must hold no
 * opinion of what is right; it prints, keeps and reads. */
#ifndef HANSE_TESTS_SUPPORT_KEPT_WORLD_H
#define HANSE_TESTS_SUPPORT_KEPT_WORLD_H

#include "connectors/kept/kept.h"
#include "tests/support/unit.h"

#define T0 1764104400000 /* 2025-11-25T21:00:00Z */

struct kept_world {
    char dir[64], path[96], store[96], base[KEPT_PATH_MAX];
    struct loop *l;
    int log;
    struct output_writer *marks;
    bool settled, holds; /* holds: jobs are begun, and never done */
    struct kept_job *held;
    char text[24u << 20];
    size_t n;
};
extern struct kept_world K;

int kept_world_setup(void **state);
int kept_world_teardown(void **state);
void print_at(int64_t ms, const char *text, size_t n);
void print_much(size_t bytes); /* lines of many lengths, and some that are none */
void kept_world_begin(struct kept_job *j, void *arg);
struct kept_writer *writer(uint64_t max_bytes); /* of try e3.2, rank 0 */
void settled(void *arg); /* stops the loop */
void keep_all(uint64_t max_bytes);
struct kept_request all(void);
const char *kept(const struct kept_request *q); /* as it is read from the store, in K.text */
char *logged(const struct kept_request *k, size_t *ret_n); /* as it is read from the log itself */
void same(const struct kept_request *q); /* fails the test where these two differ */

#define KEPT(f) cmocka_unit_test_setup_teardown(f, kept_world_setup, kept_world_teardown)

#endif
