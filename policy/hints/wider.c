/* Hints that let a workload use more places: further classes, targets, slower or smaller devices,
 * wider domains. */
#include "policy/hints/hints_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define CLASSES_TRIED 12
#define CLASSES_TOLD 2
#define TARGETS_TRIED 8
#define TARGETS_TOLD 2
#define VALUES_TRIED 4

static const char **with(const char *const *v, uint32_t n, const char *more, struct arena *a)
{
    const char **out = arena_array(a, const char *, n + 1);

    if (n)
        memcpy(out, v, n * sizeof(*out));
    out[n] = more;
    return out;
}

/* ---- classes ---- */
static void add_class(const struct edit *e, struct workload_spec *s, struct arena *a)
{
    struct gpu_request *g = s->resources->gpu;

    g->classes = with((const char *const *)g->classes, g->n_classes, e->s, a);
    g->n_classes++;
}

struct class_hint {
    struct edit edit;
    const char *name;
    struct tried t;
};

static int cmp_class(const void *pa, const void *pb) /* what is cheapest per useful hour first */
{
    const struct class_hint *a = pa, *b = pb;

    if (a->t.priced != b->t.priced)
        return a->t.priced ? -1 : 1;
    if (a->t.useful != b->t.useful)
        return a->t.useful < b->t.useful ? -1 : 1;
    return strcmp(a->name, b->name);
}

static bool class_asked_for(const struct place *pl, uint32_t class_)
{
    for (uint32_t i = 0; i < pl->n_classes; i++) {
        if (pl->classes[i] == class_)
            return true;
    }
    return false;
}

void hint_classes(struct hints *h)
{
    const struct table *t = &h->p->t;
    struct class_hint found[CLASSES_TRIED];
    uint32_t n = 0, tried = 0;

    if (h->pl->need.mode == NEED_CPU || !h->pl->gpu->n_classes || h->pl->gpu->n_classes >= 64)
        return;
    for (uint32_t c = 0; c < t->n_classes && tried < CLASSES_TRIED; c++) {
        struct edit e = {.apply = add_class, .s = t->classes[c].name};

        if (!t->classes[c].name[0] || class_asked_for(h->pl, c))
            continue;
        tried++;
        found[n].name = t->classes[c].name;
        found[n].edit = e;
        if (hint_try_edit(h, &e, &found[n].t))
            n++;
        else
            hint_first(h, &e, arena_printf(h->a, "class %s allowed too", e.s));
    }
    if (n > 1)
        qsort(found, n, sizeof(*found), cmp_class);
    for (uint32_t i = 0; i < n && i < CLASSES_TOLD; i++) {
        h->last = found[i].edit;
        hint_add(h, "class %s allowed too %s", found[i].name, hint_where(h, &found[i].t));
    }
}

/* ---- targets that the workload's own selector leaves out ---- */
enum target_field {
    F_NONE,
    F_TIER,
    F_REGION,
    F_SITE,
    F_JURISDICTION,
    F_NAMES,
    F_TYPE,
    F_CERTIFICATIONS,
    F_LABELS,
    F_MANY
};

/* Which of the selector's fields keeps the target out: F_MANY when more than one does. */
static enum target_field field_against(const struct target_selector *s, const struct object *target)
{
    enum target_field r = F_NONE;
    struct target_selector one;

#define ASK(f, copy)                                                                               \
    do {                                                                                           \
        one = (struct target_selector){0};                                                         \
        copy;                                                                                      \
        if (!target_matches(&one, target))                                                         \
            r = r == F_NONE ? (f) : F_MANY;                                                        \
    } while (0)
    ASK(F_TIER, (one.tier = s->tier, one.n_tier = s->n_tier));
    ASK(F_REGION, (one.region = s->region, one.n_region = s->n_region));
    ASK(F_SITE, (one.site = s->site, one.n_site = s->n_site));
    ASK(F_JURISDICTION,
        (one.jurisdiction = s->jurisdiction, one.n_jurisdiction = s->n_jurisdiction));
    ASK(F_NAMES, (one.names = s->names, one.n_names = s->n_names));
    ASK(F_TYPE, (one.type = s->type, one.n_type = s->n_type));
    ASK(F_CERTIFICATIONS,
        (one.certifications = s->certifications, one.n_certifications = s->n_certifications));
    ASK(F_LABELS, (one.matchLabels = s->matchLabels, one.n_matchLabels = s->n_matchLabels));
#undef ASK
    return r;
}

static void widen(const struct edit *e, struct workload_spec *w, struct arena *a)
{
    struct target_selector *s = w->targets;
    const struct target_spec *t = target_spec_of(e->target);

    switch ((enum target_field)e->field) {
    case F_TIER: {
        enum tier *v = arena_array(a, enum tier, s->n_tier + 1);

        memcpy(v, s->tier, s->n_tier * sizeof(*v));
        v[s->n_tier++] = t->tier;
        s->tier = v;
        return;
    }
    case F_TYPE: {
        enum target_type *v = arena_array(a, enum target_type, s->n_type + 1);

        memcpy(v, s->type, s->n_type * sizeof(*v));
        v[s->n_type++] = t->type;
        s->type = v;
        return;
    }
    case F_REGION:
        s->region = with((const char *const *)s->region, s->n_region, t->region, a);
        s->n_region++;
        return;
    case F_SITE:
        s->site = with((const char *const *)s->site, s->n_site, t->site, a);
        s->n_site++;
        return;
    case F_JURISDICTION:
        s->jurisdiction =
            with((const char *const *)s->jurisdiction, s->n_jurisdiction, t->jurisdiction, a);
        s->n_jurisdiction++;
        return;
    case F_NAMES:
        s->names = with((const char *const *)s->names, s->n_names, e->target->meta->name, a);
        s->n_names++;
        return;
    case F_CERTIFICATIONS:
        s->n_certifications = 0;
        return;
    default:
        s->n_matchLabels = 0;
    }
}

static const char *widened(const struct hints *h, enum target_field f, const struct object *target)
{
    const struct target_spec *t = target_spec_of(target);

    switch (f) {
    case F_TIER:
        return arena_printf(h->a, "tier %s allowed too", tier_text(t->tier));
    case F_TYPE:
        return arena_printf(h->a, "targets of type %s allowed too", target_type_text(t->type));
    case F_REGION:
        return arena_printf(h->a, "region %s allowed too", t->region);
    case F_SITE:
        return arena_printf(h->a, "site %s allowed too", t->site);
    case F_JURISDICTION:
        return arena_printf(h->a, "jurisdiction %s allowed too", t->jurisdiction);
    case F_NAMES:
        return arena_printf(h->a, "target %s allowed too", target->meta->name);
    case F_CERTIFICATIONS:
        return "without targets.certifications";
    default:
        return "without targets.matchLabels";
    }
}

static bool says_something(enum target_field f, const struct target_spec *t)
{
    return f != F_NONE && f != F_MANY && !(f == F_REGION && !t->region[0]) &&
           !(f == F_SITE && !t->site[0]) && !(f == F_JURISDICTION && !t->jurisdiction[0]);
}

static void drop_targets(const struct edit *e, struct workload_spec *s, struct arena *a)
{
    (void)e;
    (void)a;
    s->targets = NULL;
}

/* Where more than one field keeps a target out. */
static void all_targets(struct hints *h)
{
    struct edit e = {.apply = drop_targets};

    (void)hint_tell(h, &e, "without targets");
}

void hint_targets(struct hints *h)
{
    uint32_t told = 0, tried = 0;
    bool many = false;

    if (!h->spec->targets)
        return;
    for (uint32_t i = 0; i < h->pl->n_rows && told < TARGETS_TOLD && tried < TARGETS_TRIED; i++) {
        const struct object *target = h->p->t.targets[h->pl->rows[i].target].obj;
        struct edit e = {.apply = widen, .target = target};

        if (h->pl->rows[i].reason != REASON_NOT_SELECTED || h->pl->rows[i].text)
            continue;
        e.field = field_against(h->spec->targets, target);
        if (!says_something((enum target_field)e.field, target_spec_of(target))) {
            many = true;
            continue;
        }
        tried++;
        told += hint_tell(h, &e, widened(h, (enum target_field)e.field, target));
    }
    if (!told && many)
        all_targets(h);
}

/* ---- devices ---- */
static void set_memory(const struct edit *e, struct workload_spec *s, struct arena *a)
{
    (void)a;
    s->resources->gpu->minMemory = e->n;
}
static void set_speed(const struct edit *e, struct workload_spec *s, struct arena *a)
{
    (void)a;
    s->resources->gpu->minSpeed = e->x;
}
static void drop_interconnect(const struct edit *e, struct workload_spec *s, struct arena *a)
{
    (void)e;
    (void)a;
    s->resources->gpu->interconnect = "";
}
static void soft_isolation(const struct edit *e, struct workload_spec *s, struct arena *a)
{
    (void)e;
    (void)a;
    s->resources->gpu->isolation = ISOLATION_SOFT;
}

static void processes_any(const struct edit *e, struct workload_spec *s, struct arena *a)
{
    const struct workload_isolation *was = s->isolation;

    (void)e;
    s->isolation = arena_new(a, struct workload_isolation);
    s->isolation->tenants = was->tenants;
    s->isolation->processes = PROCESSES_ANY;
}

static void tenants_any(const struct edit *e, struct workload_spec *s, struct arena *a)
{
    const struct workload_isolation *was = s->isolation;

    (void)e;
    s->isolation = arena_new(a, struct workload_isolation);
    s->isolation->processes = was->processes;
    s->isolation->tenants = TENANTS_NEED_ANY;
}

static int cmp_falling(const void *pa, const void *pb)
{
    const double *a = pa, *b = pb;

    return (*a < *b) - (*a > *b);
}

/* What there is below `least`, of the groups asked for, the most first; each once. */
static uint32_t values_below(const struct hints *h, double least, bool speed, struct arena *a,
                             double **ret)
{
    const struct table *t = &h->p->t;
    double *v = arena_array(a, double, t->n_groups + 1);
    uint32_t n = 0, kept = 0;

    for (uint32_t g = 0; g < t->n_groups; g++) {
        double is = speed ? class_speed(t, t->groups[g].class_) : (double)t->groups[g].memory;

        if (is > 0 && is < least && t->targets[t->groups[g].target].obj &&
            group_asked_for(h->pl, g))
            v[n++] = is;
    }
    if (n > 1)
        qsort(v, n, sizeof(*v), cmp_falling);
    for (uint32_t i = 0; i < n; i++) {
        if (!kept || v[i] < v[kept - 1])
            v[kept++] = v[i];
    }
    *ret = v;
    return kept;
}

static void lower_to_what_is(struct hints *h, bool speed)
{
    AUTO_ARENA a = arena_create(0);
    double least = speed ? h->pl->gpu->minSpeed : (double)h->pl->gpu->minMemory, *v = NULL;
    uint32_t n = least > 0 ? values_below(h, least, speed, a, &v) : 0;

    for (uint32_t i = 0; i < n && i < VALUES_TRIED; i++) {
        /* Told with four digits: never above what is there. */
        struct edit e = {.apply = speed ? set_speed : set_memory,
                         .n = (int64_t)v[i],
                         .x = floor(v[i] * 10000) / 10000};
        char bytes[32];
        const char *words;

        quantity_print_bytes(e.n, bytes);
        words = speed ? arena_printf(h->a, "minSpeed lowered to %.10g", e.x)
                      : arena_printf(h->a, "minMemory lowered to %s", bytes);
        if (hint_tell(h, &e, words))
            return;
    }
}

void hint_devices(struct hints *h)
{
    struct edit link = {.apply = drop_interconnect}, soft = {.apply = soft_isolation},
                any = {.apply = processes_any}, beside = {.apply = tenants_any};

    if (h->pl->spec->isolation && h->pl->spec->isolation->processes == PROCESSES_PROVED)
        (void)hint_tell(h, &any, "isolation.processes any");
    if (h->pl->spec->isolation && h->pl->spec->isolation->tenants == TENANTS_NEED_SEPARATE)
        (void)hint_tell(h, &beside, "isolation.tenants any");
    if (h->pl->need.mode == NEED_CPU)
        return;
    if (h->pl->gpu->interconnect[0])
        (void)hint_tell(h, &link,
                        arena_printf(h->a, "without interconnect %s", h->pl->gpu->interconnect));
    if (h->pl->gpu->isolation == ISOLATION_HARD)
        (void)hint_tell(h, &soft, "isolation soft");
    lower_to_what_is(h, false);
    lower_to_what_is(h, true);
}

/* ---- domains ---- */
static void set_within(const struct edit *e, struct workload_spec *s, struct arena *a)
{
    (void)a;
    s->topology->within = (enum domain_level)e->n;
}

void hint_topology(struct hints *h)
{
    enum domain_level within = h->pl->need.within;

    if (!within || !hint_any(h, REASON_TOPOLOGY))
        return;
    for (int level = (int)within + 1; level <= (int)LEVEL_TARGET; level++) {
        struct edit e = {.apply = set_within, .n = level, .step = 1};
        const char *words = level == (int)LEVEL_TARGET
                                ? "without topology.within"
                                : arena_printf(h->a, "within one %s instead of one %s",
                                               domain_level_text((enum domain_level)level),
                                               domain_level_text(within));

        if (hint_tell(h, &e, words))
            return;
    }
}
