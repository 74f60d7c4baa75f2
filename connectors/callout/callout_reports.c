/* What runners leave behind with their server, which hands it on as it is. It may have been
 * written by their programs, so nothing is taken from it but what their tokens have signed; and a
 * report never ends a run: its server does, by a proof. */
#include "connectors/callout/callout_internal.h"

#include "connectors/report/report.h"

void callout_report_order(const struct callout *c, const struct run_order *o, struct arena *a,
                          struct callout_order *ret)
{
    const struct connector_env *e = &c->base.env;
    const uint32_t ranks = o->placement->n_assignments;
    const char **tokens = NULL;

    if (!c->reports || !e->keys || !e->keys->again)
        return;
    if (!ret->home && (!e->tokens || !e->tokens(e->arg, &o->key, ranks, a, &tokens)))
        return;
    ret->report = arena_new(a, struct callout_report);
    *ret->report = (struct callout_report){
        .version = REPORT_VERSION, .tokens = tokens, .n_tokens = tokens ? ranks : 0};
}

int callout_reports_take(const struct callout *c, struct observation *o,
                         const struct callout_reported *left, struct run_workers *workers,
                         struct arena *a, struct err *err)
{
    const struct report_reader from = {.target = c->base.target,
                                       .keys = c->base.env.keys,
                                       .checkpoints = callout_has_runners(c)};

    return left ? report_left_take(&from, left->reports, left->n_reports, o, workers, a, err) : 0;
}
