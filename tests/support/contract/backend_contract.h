/* The contract of the table of calls between API and control plane (api/server/backend.h): what
 * every implementation of it has to do, asked through the table alone. A program that brings one
 * fills in a struct backend_rig, makes it the state of its cmocka group and runs
 * BACKEND_CONTRACT_TESTS. */
#ifndef HANSE_TESTS_SUPPORT_BACKEND_CONTRACT_H
#define HANSE_TESTS_SUPPORT_BACKEND_CONTRACT_H

#include "api/server/backend.h"
#include "tests/support/unit.h"

/* Values of Secrets that the suite writes; whoever keeps state looks for them where none may be. */
#define BACKEND_CANARY "canary-8d1f-of-the-backend-contract"
#define BACKEND_CANARY_B64 "Y2FuYXJ5LThkMWYtb2YtdGhlLWJhY2tlbmQtY29udHJhY3Q="

struct backend_rig {
    struct loop *loop;
    struct backend *backend;
    void (*run)(struct loop *l); /* until loop_stop */
    unsigned changes_kept;       /* so many are kept for changes(); older ones are E_GONE */
};
/* Runs the loop until cond(arg) holds; false after ms. */
bool backend_until(const struct backend_rig *r, bool (*cond)(void *arg), void *arg, uint64_t ms);

void backend_keeps_old_views(void **state);
void backend_creates_updates_and_deletes(void **state);
void backend_holds_to_preconditions(void **state);
void backend_writes_all_or_nothing(void **state);
void backend_keeps_nothing_of_a_dry_run(void **state);
void backend_tells_changes_in_order(void **state);
void backend_scans_in_order(void **state);
void backend_reads_afresh(void **state);
void backend_answers_an_id_once(void **state);
void backend_seals_secrets(void **state);
void backend_makes_tokens(void **state);
void backend_binds_tokens(void **state);
void backend_takes_no_secret_for_a_token(void **state);
void backend_knows_its_operations(void **state);
void backend_lets_old_changes_go(void **state);
void backend_tells_of_new_views(void **state);

#define BACKEND_CONTRACT_TESTS                                                                     \
    cmocka_unit_test(backend_keeps_old_views),                                                     \
        cmocka_unit_test(backend_creates_updates_and_deletes),                                     \
        cmocka_unit_test(backend_holds_to_preconditions),                                          \
        cmocka_unit_test(backend_writes_all_or_nothing),                                           \
        cmocka_unit_test(backend_keeps_nothing_of_a_dry_run),                                      \
        cmocka_unit_test(backend_tells_changes_in_order),                                          \
        cmocka_unit_test(backend_scans_in_order), cmocka_unit_test(backend_reads_afresh),          \
        cmocka_unit_test(backend_answers_an_id_once), cmocka_unit_test(backend_makes_tokens),      \
        cmocka_unit_test(backend_binds_tokens),                                                    \
        cmocka_unit_test(backend_takes_no_secret_for_a_token),                                     \
        cmocka_unit_test(backend_knows_its_operations),                                            \
        cmocka_unit_test(backend_lets_old_changes_go),                                             \
        cmocka_unit_test(backend_tells_of_new_views), cmocka_unit_test(backend_seals_secrets)

#endif
