/* The table of connectors/ends.def. */
#include "connectors/ends.h"

#include "api/schema/schema.h"

#include <string.h>

static const struct end_row rows[END_NR] = {
    [END_OTHER] = {"", END_RAN, FAULT_WORKLOAD, AGAIN_COUNTED, CHECKPOINT_KEPT},
#define E(name, text, began, fault, again, checkpoint)                                             \
    [END_##name] = {text, END_##began, FAULT_##fault, AGAIN_##again, CHECKPOINT_##checkpoint},
#include "connectors/ends.def"
#undef E
};

const char *end_text(enum end e)
{
    return (unsigned)e < END_NR ? rows[e].text : "";
}

const struct end_row *end_row(const char *reason)
{
    for (unsigned i = END_OTHER + 1; i < END_NR; i++)
        if (strcmp(reason, rows[i].text) == 0)
            return &rows[i];
    return &rows[END_OTHER];
}

bool reason_of_target(const char *reason)
{
    const struct end_row *r = end_row(reason);

    return r->began == END_RAN && r->fault == FAULT_TARGET;
}

bool end_is_a_runners(const char *reason)
{
    const struct end_row *r = end_row(reason);

    return r->fault != FAULT_HANSE || r->checkpoint != CHECKPOINT_KEPT;
}

bool end_says_saved(int64_t exit_code, int64_t term_signal, const char *reason)
{
    return !term_signal && (exit_code == RUN_EXIT_SAVED || end_row(reason) == &rows[END_SAVED]);
}

bool end_by_target(const struct run_end *e)
{
    return e->proof == PROOF_LEASE_EXPIRED || e->proof == PROOF_OPERATOR ||
           reason_of_target(e->reason);
}
