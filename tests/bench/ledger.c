/* The ledger under a million random events, through snapshots and changes of leader, against an
 * independent replay (tests/support/ledger/ledger_model.h). Prints one JSON object; exit 1 when a
 * single line differs, or when all causes do not add up to capacity × time (plus what was held
 * beyond capacity) to the last unit. LEDGER_EVENTS, LEDGER_SEED. */
#include "tests/support/ledger/ledger_world.h"

#include <stdio.h>
#include <stdlib.h>

#define EVENTS 1000000
#define ROUNDS 10

static uint64_t number_of(const char *name, uint64_t otherwise)
{
    const char *v = getenv(name);

    return v && *v ? strtoull(v, NULL, 10) : otherwise;
}

int main(void)
{
    uint64_t events = number_of("LEDGER_EVENTS", EVENTS), wrong = 0;
    struct ledger_world *w = ledger_world_create(number_of("LEDGER_SEED", 1));
    struct ledger_difference d = {0};
    ledger_amount error = 0;
    double money = 0;
    char text[48];

    for (int i = 0; i < ROUNDS; i++) {
        ledger_world_run(w, events / ROUNDS);
        ledger_model_compare(ledger_world_model(w), ledger_world_root(w), &d);
        if (d.wrong)
            (void)fprintf(stderr, "ledger: %s\n", d.example);
        wrong += d.wrong;
        error += d.error < 0 ? -d.error : d.error;
        money = d.money > money ? d.money : money;
    }
    struct ledger_counts n = ledger_world_counts(w);
    wrong += ledger_model_spent_wrong(ledger_world_model(w));
    ledger_amount_print(error, text);
    (void)printf("{\"bench\":\"ledger\",\"events\":%llu,\"commands\":%llu,\"seconds\":%.3f,"
                 "\"apply_us\":%.2f,\"snapshots\":%llu,\"leaders\":%llu,\"days\":%llu,"
                 "\"placed\":%llu,\"ended\":%llu,\"moved\":%llu,\"lines\":%llu,\"folded\":%u,"
                 "\"wrong_lines\":%llu,\"balance_error\":%s,\"money_error\":%.3g}\n",
                 (unsigned long long)n.events, (unsigned long long)n.commands,
                 ledger_world_seconds(w), ledger_world_seconds(w) / (double)n.commands * 1e6,
                 (unsigned long long)n.snapshots, (unsigned long long)n.terms,
                 (unsigned long long)n.days, (unsigned long long)n.placed,
                 (unsigned long long)n.ended, (unsigned long long)n.moved,
                 (unsigned long long)d.lines, d.level, (unsigned long long)wrong, text, money);
    ledger_world_destroy(w);
    return wrong == 0 && error == 0 && money < 1e-9 ? 0 : 1;
}
