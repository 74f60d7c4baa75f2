/* Compliance: every policy that selects a workload holds, their intersection is what is allowed. It
 * fails closed: a target that does not tell its country is in none, and a dataset that is not known
 * may be of any class. */
#include "policy/place/place_internal.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *name, *members;
} groups_of_countries[] = {
#define G(n, m) {n, m},
#include "policy/jurisdictions.def"
#undef G
};

bool policy_jurisdiction_in(const char *country, const char *const *groups, uint32_t n)
{
    char needle[16];

    if (!country[0])
        return false;
    (void)snprintf(needle, sizeof(needle), " %s ", country);
    for (uint32_t i = 0; i < n; i++) {
        if (strcmp(country, groups[i]) == 0)
            return true;
        for (size_t g = 0; g < sizeof(groups_of_countries) / sizeof(*groups_of_countries); g++) {
            if (strcmp(groups[i], groups_of_countries[g].name) == 0 &&
                strstr(groups_of_countries[g].members, needle))
                return true;
        }
    }
    return false;
}

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

bool compliance_selects(const struct object *policy, const struct object *workload,
                        const struct object *const *datasets, size_t n_datasets, enum covers what)
{
    const struct compliance_policy_spec *s = object_as(policy, compliance_policy)->spec;
    const struct compliance_select *sel = s->selects;
    bool covered = s->n_covers == 0;

    for (uint32_t i = 0; i < s->n_covers; i++)
        covered |= s->covers[i] == what;
    if (!covered)
        return false;
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

int policy_compliance_check(const struct object *workload, const struct object *target,
                            const struct object *const *policies, size_t n_policies,
                            const struct object *const *datasets, size_t n_datasets,
                            enum covers what, struct err *err)
{
    for (size_t i = 0; i < n_policies; i++) {
        const struct compliance_policy_spec *s = object_as(policies[i], compliance_policy)->spec;
        enum reason why;
        char text[256];

        if (s->mode == MODE_AUDIT || !s->allow ||
            !compliance_selects(policies[i], workload, datasets, n_datasets, what))
            continue;
        why = compliance_allows(s->allow, target);
        if (why == REASON_NONE)
            continue;
        compliance_sentence(why, policies[i], target, text, sizeof(text));
        return err_set(
            err, E_COMPLIANCE,
            "compliance policy forbids %s on target %s: %s: %s; choose another target or "
            "change the policy",
            covers_text(what), target->meta->name, reason_text(why), text);
    }
    return 0;
}
