/* The contract of connectors/machines.h: what every driver that offers machines has to do, asked
 * through struct machine_ops alone. A program brings a struct machines_rig as the state of its
 * cmocka group, and runs MACHINES_CONTRACT_TESTS. */
#ifndef HANSE_TESTS_SUPPORT_MACHINES_CONTRACT_H
#define HANSE_TESTS_SUPPORT_MACHINES_CONTRACT_H

#include "connectors/connector.h"
#include "tests/support/unit.h"

#define RIG_MACHINES 64
struct machine_told { /* the latest of one key */
    char key[MACHINE_KEY_MAX], id[129], reason[64];
    enum machine_state state;
    int64_t billed_from_ms, billed_to_ms, until_ms;
    double price;
};
struct machines_rig {
    struct loop *loop;
    void (*run)(struct loop *l); /* until loop_stop */
    const struct connector_ops *ops;
    const struct object *target;
    const char *(*secret)(void *arg, const char *name, const char *key); /* or NULL */
    /* Of which two are offered, and no more: class "h100", of one GPU, zone "a", market spot, for
     * 2.5 an hour in EUR; they take less than 2 s to boot. */
    /* From outside, past the driver: how many machines were ever made under this key. */
    unsigned (*given)(struct machines_rig *r, const char *key);
    /* The target takes this machine away, in a moment. */
    void (*take)(struct machines_rig *r, const char *key);
    /* The target stops answering, or goes on. */
    void (*silence)(struct machines_rig *r, bool on);

    /* the suite's */
    struct connector *connector;
    bool reachable;
    struct machine_told told[RIG_MACHINES];
    size_t n_told, n_prices;
    double price;
    char currency[4];
    unsigned serial;
};

void machines_rig_begin(struct machines_rig *r); /* creates the connector, waits for its reach */
void machines_rig_end(struct machines_rig *r);   /* releases what the tests ordered, and ends it */

void machines_come_join_and_are_billed(void **state);
void machines_of_one_key_are_one(void **state);
void machines_of_another_order_are_refused(void **state);
void machines_end_when_released(void **state);
void machines_released_ahead_are_never_given(void **state);
void machines_end_by_themselves_unless_renewed(void **state);
void machines_taken_away_are_listed_as_ended(void **state);
void machines_that_are_not_there_are_refused(void **state);
void machines_have_prices(void **state);
void machines_calls_end_by_their_deadline(void **state);
void machines_calls_end_when_destroyed(void **state);

#define MACHINES_CONTRACT_TESTS                                                                    \
    cmocka_unit_test(machines_come_join_and_are_billed),                                           \
        cmocka_unit_test(machines_of_one_key_are_one),                                             \
        cmocka_unit_test(machines_of_another_order_are_refused),                                   \
        cmocka_unit_test(machines_end_when_released),                                              \
        cmocka_unit_test(machines_released_ahead_are_never_given),                                 \
        cmocka_unit_test(machines_end_by_themselves_unless_renewed),                               \
        cmocka_unit_test(machines_taken_away_are_listed_as_ended),                                 \
        cmocka_unit_test(machines_that_are_not_there_are_refused),                                 \
        cmocka_unit_test(machines_have_prices),                                                    \
        cmocka_unit_test(machines_calls_end_by_their_deadline),                                    \
        cmocka_unit_test(machines_calls_end_when_destroyed)

#endif
