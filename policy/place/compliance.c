/* Compliance: every policy that selects a workload holds, and their intersection is allowed. It
 * fails closed: a target that names no country is in none, an unknown dataset may be of any class,
 * and a store that no Target keeps may be anywhere. */
#include "policy/place/place_internal.h"

#include <stdio.h>
#include <string.h>

static bool class_selected(const struct compliance_select *s, const struct workload_spec *w,
                           const struct object *const *datasets, size_t n_datasets)
{
    if (!s->n_dataClasses)
        return false;
    for (uint32_t i = 0; i < w->n_dataClasses; i++) {
        if (text_in(w->dataClasses[i], (const char *const *)s->dataClasses, s->n_dataClasses))
            return true;
    }
    for (size_t i = 0; i < n_datasets; i++) {
        if (!datasets[i])
            return true;
        if (text_in(object_as(datasets[i], dataset)->spec->dataClass,
                    (const char *const *)s->dataClasses, s->n_dataClasses))
            return true;
    }
    return false;
}

static bool selects(const struct object *policy, const struct object *workload,
                    const struct object *const *datasets, size_t n_datasets)
{
    const struct compliance_select *sel = object_as(policy, compliance_policy)->spec->selects;

    if (!sel || (!sel->n_dataClasses && !sel->n_namespaces && !sel->workloads))
        return true;
    if (text_in(workload->meta->namespace_, (const char *const *)sel->namespaces,
                sel->n_namespaces))
        return true;
    if (sel->workloads &&
        selector_matches(sel->workloads, workload->meta->labels, workload->meta->n_labels))
        return true;
    return class_selected(sel, object_as(workload, workload)->spec, datasets, n_datasets);
}

unsigned compliance_covers(const struct object *policy, const struct object *workload,
                           const struct object *const *datasets, size_t n_datasets,
                           const char *store)
{
    const struct compliance_policy_spec *s = object_as(policy, compliance_policy)->spec;
    unsigned covers = s->n_covers ? 0 : COVERS_BITS_ALL;

    for (uint32_t i = 0; i < s->n_covers; i++)
        covers |= COVERS_BIT(s->covers[i]);
    if (!store[0])
        covers &= ~COVERS_BIT(COVERS_CHECKPOINT);
    return s->allow && covers && selects(policy, workload, datasets, n_datasets) ? covers : 0;
}

/* ---- where checkpoints lie ---- */
/* At the target of the run, which holds them first and reads them last, and at every target that
 * keeps their store. A folder needs nobody else who keeps it; of any other store nothing is known
 * but what Targets tell. */
enum reason compliance_allows_store(const struct compliance_allow *allow, const char *store,
                                    const struct object *const *targets, size_t n_targets,
                                    const struct object **ret_keeper)
{
    bool known = store[0] == '/';

    *ret_keeper = NULL;
    for (size_t i = 0; i < n_targets; i++) {
        const struct target_spec *t = target_spec_of(targets[i]);
        enum reason r;

        if (!store_among(store, (const char *const *)t->localStores, t->n_localStores))
            continue;
        known = true;
        r = compliance_allows(allow, targets[i]);
        if (r == REASON_NONE)
            continue;
        *ret_keeper = targets[i];
        return r;
    }
    return known ? REASON_NONE : REASON_STORE_PLACE;
}

void compliance_store_sentence(enum reason why, const struct object *policy, const char *store,
                               const struct object *keeper, char *out, size_t size)
{
    char text[192];

    if (!keeper) {
        (void)snprintf(out, size,
                       "%.80s covers checkpoints, and no Target tells that it keeps %.80s: name it "
                       "in spec.localStores of the Target where it lies",
                       policy->meta->name, store);
        return;
    }
    compliance_sentence(why, policy, keeper, text, sizeof(text));
    (void)snprintf(out, size, "checkpoints go to %.64s, kept at %.64s: %.120s", store,
                   keeper->meta->name, text);
}

enum reason compliance_allows_logs(const struct compliance_allow *allow, const char *store,
                                   const struct object *const *targets, size_t n_targets,
                                   const struct object **ret_keeper)
{
    enum reason r = REASON_NONE;

    *ret_keeper = NULL;
    if (store[0])
        r = compliance_allows_store(allow, store, targets, n_targets, ret_keeper);
    return r == REASON_STORE_PLACE ? REASON_LOG_PLACE : r;
}

void compliance_logs_sentence(enum reason why, const struct object *policy, const char *store,
                              const struct object *keeper, char *out, size_t size)
{
    char text[192];

    if (!keeper) {
        (void)snprintf(out, size,
                       "%.80s covers logs, and no Target tells that it keeps %.80s, where the "
                       "target's go to (spec.localStores)",
                       policy->meta->name, store);
        return;
    }
    compliance_sentence(why, policy, keeper, text, sizeof(text));
    (void)snprintf(out, size, "logs go to %.64s, kept at %.64s: %.120s", store, keeper->meta->name,
                   text);
}

const char *logs_store(const struct object *target)
{
    const struct target_logs *logs = target_spec_of(target)->logs;

    return logs ? logs->store : "";
}

/* What is not told does not count. */
static bool target_separates(const struct object *target)
{
    const struct target_status *s = object_as(target, target)->status;

    return s && s->isolation && s->isolation->tenants == TENANTS_SEPARATE;
}

enum reason compliance_allows(const struct compliance_allow *allow, const struct object *target)
{
    const struct target_spec *t = target_spec_of(target);
    bool tier = allow->n_tiers == 0;

    if (allow->n_jurisdictions &&
        !policy_jurisdiction_in(t->jurisdiction, (const char *const *)allow->jurisdictions,
                                allow->n_jurisdictions))
        return REASON_RESIDENCY;
    if (!texts_all_in((const char *const *)allow->certifications, allow->n_certifications,
                      (const char *const *)t->certifications, t->n_certifications))
        return REASON_CERTIFICATION;
    if (allow->tenants == TENANTS_NEED_SEPARATE && !target_separates(target))
        return REASON_TENANTS;
    for (uint32_t i = 0; i < allow->n_tiers; i++)
        tier |= allow->tiers[i] == t->tier;
    if (!tier ||
        (allow->n_targets &&
         !text_in(target->meta->name, (const char *const *)allow->targets, allow->n_targets)))
        return REASON_COMPLIANCE;
    return REASON_NONE;
}

bool compliance_forbids(const struct compliance_allow *allow, unsigned covers,
                        const struct object *target, const char *store,
                        const struct object *const *targets, size_t n_targets)
{
    const struct object *keeper;

    return compliance_allows(allow, target) != REASON_NONE ||
           (covers & COVERS_BIT(COVERS_LOGS) &&
            compliance_allows_logs(allow, logs_store(target), targets, n_targets, &keeper) !=
                REASON_NONE) ||
           (covers & COVERS_BIT(COVERS_CHECKPOINT) &&
            compliance_allows_store(allow, store, targets, n_targets, &keeper) != REASON_NONE);
}

/* "DE, FR", cut at the room there is. */
void texts_join(const char *const *v, uint32_t n, char *out, size_t size)
{
    size_t used = 0;

    out[0] = '\0';
    for (uint32_t i = 0; i < n && used < size; i++)
        used += (size_t)snprintf(out + used, size - used, "%s%s", i ? ", " : "", v[i]);
}

void compliance_sentence(enum reason why, const struct object *policy, const struct object *target,
                         char *out, size_t size)
{
    const struct compliance_allow *allow = object_as(policy, compliance_policy)->spec->allow;
    const struct target_spec *t = target_spec_of(target);
    char list[128];

    if (why == REASON_RESIDENCY) {
        texts_join((const char *const *)allow->jurisdictions, allow->n_jurisdictions, list,
                   sizeof(list));
        (void)snprintf(out, size, "%s (%s): the target is in %s", policy->meta->name, list,
                       t->jurisdiction[0] ? t->jurisdiction : "a country that it does not tell");
    } else if (why == REASON_CERTIFICATION) {
        texts_join((const char *const *)allow->certifications, allow->n_certifications, list,
                   sizeof(list));
        (void)snprintf(out, size, "%s asks for %s", policy->meta->name, list);
    } else if (why == REASON_TENANTS) {
        (void)snprintf(out, size,
                       "%s asks for tenants that are kept apart: the target does not tell that all "
                       "its nodes do (hanse agent --users)",
                       policy->meta->name);
    } else {
        (void)snprintf(out, size, "%s does not allow this target", policy->meta->name);
    }
}

static int forbidden(enum reason why, const struct object *target, const char *sentence,
                     struct err *err)
{
    return err_set(err, E_COMPLIANCE,
                   "compliance policy forbids it on target %s: %s: %s; choose another place or "
                   "change the policy",
                   target->meta->name, reason_text(why), sentence);
}

int policy_compliance_check(const struct object *workload, const struct object *target,
                            const struct object *const *policies, size_t n_policies,
                            const struct object *const *datasets, size_t n_datasets,
                            const struct object *const *targets, size_t n_targets, struct err *err)
{
    const char *store = targets ? store_asked(object_as(workload, workload)->spec) : "";
    const struct object *keeper;
    char text[256];

    for (size_t i = 0; i < n_policies; i++) {
        const struct compliance_policy_spec *s = object_as(policies[i], compliance_policy)->spec;
        unsigned covers = s->mode == MODE_AUDIT ? 0
                                                : compliance_covers(policies[i], workload, datasets,
                                                                    n_datasets, store);
        enum reason why;

        if (!targets)
            covers &= COVERS_BIT(COVERS_RUN);
        if (!covers)
            continue;
        why = compliance_allows(s->allow, target);
        if (why != REASON_NONE) {
            compliance_sentence(why, policies[i], target, text, sizeof(text));
            return forbidden(why, target, text, err);
        }
        if (targets && covers & COVERS_BIT(COVERS_LOGS)) {
            why = compliance_allows_logs(s->allow, logs_store(target), targets, n_targets, &keeper);
            if (why != REASON_NONE) {
                compliance_logs_sentence(why, policies[i], logs_store(target), keeper, text,
                                         sizeof(text));
                return forbidden(why, target, text, err);
            }
        }
        if (!targets || !(covers & COVERS_BIT(COVERS_CHECKPOINT)))
            continue;
        why = compliance_allows_store(s->allow, store, targets, n_targets, &keeper);
        if (why != REASON_NONE) {
            compliance_store_sentence(why, policies[i], store, keeper, text, sizeof(text));
            return forbidden(why, target, text, err);
        }
    }
    return 0;
}
