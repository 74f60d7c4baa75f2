/* Finds the route of a request. The table is routes.def; nothing is served that has no row in it,
 * and the path that matched decides alone which right is asked for. */
#include "api/server/route_internal.h"

#define ROUTE(id, method, domain, pattern, verb, access, fn)                                       \
    {#id, #method, domain, pattern, verb, access, fn},
static const struct route routes[] = {
#include "api/server/routes.def"
};

const struct route *route_table(size_t *ret_n)
{
    *ret_n = sizeof routes / sizeof *routes;
    return routes;
}

struct path { /* what is left of the path below its domain */
    const char *const *seg;
    unsigned n;
    bool grouped;
};

static void path_split(struct call *c, struct path *p)
{
    const struct http_message *m = c->m;

    p->seg = m->segments;
    p->n = m->n_segments;
    p->grouped = false;
    if (m->n_segments >= 3 && !strcmp(m->segments[0], "api")) {
        c->group = "";
        c->version = m->segments[1];
        p->seg += 2;
    } else if (m->n_segments >= 4 && !strcmp(m->segments[0], "apis")) {
        c->group = m->segments[1];
        c->version = m->segments[2];
        p->seg += 3;
    } else {
        return;
    }
    p->n = m->n_segments - (unsigned)(p->seg - m->segments);
    p->grouped = true;
}

static bool domain_fits(const struct call *c, const struct route *r, const struct path *p)
{
    if (!*r->domain)
        return !p->grouped;
    if (!p->grouped)
        return false;
    if (*r->domain == '*')
        return true;
    INV(c->group && c->version); /* of a grouped path */
    size_t n = strlen(c->group);
    return !strncmp(r->domain, c->group, n) && r->domain[n] == '/' &&
           !strcmp(r->domain + n + 1, c->version);
}

static void capture(struct call *c, const char *key, size_t n, const char *value)
{
    if (n == 3 && !memcmp(key, "res", n))
        c->res = value;
    else if (n == 4 && !memcmp(key, "name", n))
        c->name = value;
    else if (n == 2 && !memcmp(key, "ns", n))
        c->ns = value;
    else if (n == 2 && !memcmp(key, "op", n))
        c->op = value;
    else if (n == 5 && !memcmp(key, "group", n))
        c->group = value;
    else if (n == 7 && !memcmp(key, "version", n))
        c->version = value;
}

/* Also sets what the pattern names in c; `last` is its last literal segment (a subresource). */
static bool pattern_fits(struct call *c, const struct route *r, const struct path *p)
{
    const char *s = r->pattern;
    unsigned i = 0;

    for (int pass = 0; pass < 2; pass++) {
        for (s = r->pattern, i = 0; *s; i++) {
            size_t n = strcspn(s, "/");
            if (i >= p->n)
                return false;
            if (*s == '{') {
                if (pass)
                    capture(c, s + 1, n - 2, p->seg[i]);
            } else if (strlen(p->seg[i]) != n || memcmp(p->seg[i], s, n) != 0) {
                return false;
            }
            s += n + (s[n] == '/');
        }
        if (i != p->n)
            return false;
    }
    return true;
}

/* What a pattern's literal segments say about the resource: "namespaces/{name}/status",
 * "serviceaccounts/{name}/token". */
static void literal_resource(struct call *c, const struct path *p)
{
    unsigned at = c->ns ? 2 : 0;

    if (!c->res && p->grouped && p->n > at)
        c->res = p->seg[at];
    c->sub = p->n > at + 2 && p->grouped ? p->seg[at + 2] : "";
    if (c->op) {
        c->name = c->op;
        c->sub = "";
    }
}

static const struct kind *resource_kind(const struct call *c)
{
    const struct kind *k = c->res ? kind_by_plural(c->group, c->res) : NULL;

    if (!k || strcmp(k->plural, c->res) != 0 || strcmp(k->group, c->group) != 0 ||
        strcmp(k->version, c->version) != 0)
        return NULL;
    return k;
}

/* Does this route serve this kind at all? Namespaced kinds live below namespaces/, except for lists
 * over all. */
static bool scope_fits(const struct call *c, const struct route *r)
{
    if (!strstr(r->pattern, "{res}"))
        return true;
    if (!c->kind)
        return false;
    if (!c->kind->namespaced)
        return !c->ns;
    return c->ns || (!c->name && strcmp(r->verb, "list") == 0);
}

static bool method_fits(const struct http_message *m, const struct route *r)
{
    const char *method = m->method == HTTP_HEAD_ ? "GET" : m->method_text;
    return !strcmp(r->method, method);
}

static bool verb_supported(const struct call *c, const struct route *r)
{
    if (!c->kind || !*c->sub)
        return true;
    return strcmp(c->sub, "status") != 0 || (c->kind->flags & KINDF_STATUSSUB) ||
           !strcmp(r->verb, "get");
}

int route_find(struct call *c, char *allow, size_t n_allow, struct err *err)
{
    struct path p;
    size_t used = 0;

    path_split(c, &p);
    const char *group = c->group, *version = c->version;
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++) {
        const struct route *r = &routes[i];
        c->res = c->ns = c->name = c->op = c->sub = NULL;
        c->group = group;
        c->version = version;
        if (!domain_fits(c, r, &p) || !pattern_fits(c, r, &p))
            continue;
        literal_resource(c, &p);
        c->kind = c->group && c->version ? resource_kind(c) : NULL;
        if (!scope_fits(c, r) || !verb_supported(c, r))
            continue;
        if (method_fits(c->m, r)) {
            c->route = r;
            c->verb = r->verb;
            return 0;
        }
        int w = snprintf(allow + used, n_allow - used, "%s%s", used ? ", " : "", r->method);
        if (w > 0 && (size_t)w < n_allow - used)
            used += (size_t)w;
    }
    if (used)
        return err_set(err, E_METHOD, "%s is not supported on this path (it has: %s)",
                       c->m->method_text, allow);
    return err_set(err, E_NOTFOUND, "no such path: %s", c->m->path);
}
