/* How objects are shown: as they are, as PartialObjectMetadata, or as rows of a Table; chosen by
 * Accept. An Accept that also lists protobuf gets JSON; one that lists nothing we make gets 406. */
#include "api/server/server_internal.h"

struct media {
    char type[64], as[64], group[64], version[32];
};

static void media_param(struct media *m, const char *p, size_t n)
{
    char text[160];

    while (n && *p == ' ')
        p++, n--;
    (void)snprintf(text, sizeof text, "%.*s", (int)(n < sizeof text ? n : sizeof text - 1), p);
    if (!strncmp(text, "as=", 3))
        (void)snprintf(m->as, sizeof m->as, "%.60s", text + 3);
    else if (!strncmp(text, "g=", 2))
        (void)snprintf(m->group, sizeof m->group, "%.60s", text + 2);
    else if (!strncmp(text, "v=", 2))
        (void)snprintf(m->version, sizeof m->version, "%.30s", text + 2);
}

static const char *media_next(const char *p, struct media *m)
{
    size_t n, end = strcspn(p, ",");
    const char *stop = p + end;

    memset(m, 0, sizeof *m);
    while (*p == ' ')
        p++;
    n = strcspn(p, ",;");
    (void)snprintf(m->type, sizeof m->type, "%.*s", (int)(n < 60 ? n : 60), p);
    for (p += n; p < stop && *p == ';'; p += n) {
        p++;
        n = strcspn(p, ",;");
        media_param(m, p, n);
    }
    for (n = strlen(m->type); n && m->type[n - 1] == ' '; n--)
        m->type[n - 1] = 0;
    return *stop ? stop + 1 : stop;
}

static bool media_fits(const struct media *m, struct repr *r)
{
    memset(r, 0, sizeof *r);
    r->yaml = !strcmp(m->type, "application/yaml") || !strcmp(m->type, "text/yaml");
    if (!r->yaml && strcmp(m->type, "application/json") != 0 && strcmp(m->type, "*/*") != 0 &&
        strcmp(m->type, "application/*") != 0 && strcmp(m->type, "text/json") != 0)
        return false;
    if (!*m->as)
        return true;
    if (strcmp(m->group, "meta.k8s.io") != 0 ||
        (strcmp(m->version, "v1") != 0 && strcmp(m->version, "v1beta1") != 0))
        return false;
    r->v1beta1 = !strcmp(m->version, "v1beta1");
    if (!strcmp(m->as, "Table"))
        r->form = FORM_TABLE;
    else if (!strcmp(m->as, "PartialObjectMetadata") || !strcmp(m->as, "PartialObjectMetadataList"))
        r->form = FORM_PARTIAL;
    else
        return false;
    return true;
}

int repr_choose(struct call *c, struct err *err)
{
    const char *accept = http_header_get(c->rq, "accept"),
               *include = call_param(c, "includeObject");
    struct media m;

    if (!accept || !*accept)
        accept = "application/json";
    for (const char *p = accept; *p;) {
        p = media_next(p, &m);
        if (!media_fits(&m, &c->repr))
            continue;
        if (!strcmp(include, "None"))
            c->repr.include = INCLUDE_NONE;
        else if (!strcmp(include, "Object"))
            c->repr.include = INCLUDE_OBJECT;
        return 0;
    }
    memset(&c->repr, 0, sizeof c->repr);
    return err_set(err, E_NOTACCEPT, "only application/json and application/yaml can be produced");
}

/* ---- objects ---- */
static void secret_data(struct api *a, const struct object *o, cJSON *j)
{
    struct err e = {0};
    AUTO_BUF b = {0};

    buf_init(&b, (size_t)LIMIT_OBJECT_MAX_BYTES * 2);
    cJSON_DeleteItemFromObjectCaseSensitive(j, "data");
    cJSON_DeleteItemFromObjectCaseSensitive(j, "stringData");
    if (a->ops->secret_open(a->b, o, &b, &e) || !b.n)
        return;
    cJSON *data = cJSON_ParseWithLength(b.p, b.n);
    if (data)
        cJSON_AddItemToObject(j, "data", data);
    explicit_bzero(b.p, b.n);
}

int object_tree(struct api *a, const struct object *o, cJSON **ret, struct err *err)
{
    int r = object_to_json(o, ret, err);

    if (r == 0 && o->kind->id == KIND_SECRET)
        secret_data(a, o, *ret);
    return r;
}

static void object_text(struct api *a, const struct object *o, struct buf *out)
{
    if (o->kind->id != KIND_SECRET) {
        object_print_json(o, out);
        return;
    }
    cJSON *j = NULL;
    if (object_tree(a, o, &j, NULL) < 0) {
        out->failed = true; /* as if it had no room */
        return;
    }
    char *text = cJSON_PrintUnformatted(j);
    buf_str(out, text ? text : "{}");
    cJSON_free(text);
    cJSON_Delete(j);
}

static void partial(const struct repr *r, const struct object *o, struct buf *out)
{
    cJSON *j = NULL;
    if (object_to_json(o, &j, NULL) < 0) {
        out->failed = true;
        return;
    }
    char *text = cJSON_PrintUnformatted(cJSON_GetObjectItemCaseSensitive(j, "metadata"));

    buf_printf(
        out,
        "{\"kind\":\"PartialObjectMetadata\",\"apiVersion\":\"meta.k8s.io/%s\",\"metadata\":%s}",
        r->v1beta1 ? "v1beta1" : "v1", text ? text : "{}");
    cJSON_free(text);
    cJSON_Delete(j);
}

/* An Event's own name says nothing; kubectl shows it only when asked for everything. */
void table_columns(const struct kind *k, struct buf *out)
{
    buf_char(out, '[');
    for (unsigned i = 0; i < k->n_columns; i++) {
        const struct column *col = &k->columns[i];
        bool name = !strcmp(col->name, "NAME"), own = name || !strcmp(col->name, "AGE");
        buf_str(out, i ? ",{" : "{");
        json_pair(out, "name", col->name, true);
        json_pair(out, "type", strcmp(col->type, "date") ? col->type : "string", true);
        json_pair(out, "format", name ? "name" : "", true);
        json_pair(out, "description", col->doc, true);
        buf_printf(out, "\"priority\":%d}", own && k->id == KIND_EVENT ? 1 : col->priority);
    }
    buf_char(out, ']');
}

static bool is_number(const char *s)
{
    char *end;

    if (!*s || !strchr("-0123456789", *s))
        return false;
    (void)strtod(s, &end);
    return !*end;
}

static void cell(const struct column *col, const struct object *o, int64_t now, struct buf *out)
{
    AUTO_BUF b = {0};

    buf_init(&b, 1 << 16);
    column_cell(col, o, now, &b);
    const char *text = b.n ? b.p : "";
    if ((!strcmp(col->type, "integer") || !strcmp(col->type, "number")) && is_number(text))
        buf_str(out, text);
    else
        json_text(out, text);
}

static void table_row(struct api *a, const struct repr *r, const struct object *o, struct buf *out)
{
    int64_t now = a->ops->now(a->b);

    buf_str(out, "{\"cells\":[");
    for (unsigned i = 0; i < o->kind->n_columns; i++) {
        if (i)
            buf_char(out, ',');
        cell(&o->kind->columns[i], o, now, out);
    }
    buf_char(out, ']');
    if (r->include == INCLUDE_OBJECT) {
        buf_str(out, ",\"object\":");
        object_text(a, o, out);
    } else if (r->include == INCLUDE_METADATA) {
        buf_str(out, ",\"object\":");
        partial(r, o, out);
    }
    buf_char(out, '}');
}

static void table_open(const struct repr *r, const struct kind *k, struct buf *out)
{
    buf_printf(out, "{\"kind\":\"Table\",\"apiVersion\":\"meta.k8s.io/%s\",\"columnDefinitions\":",
               r->v1beta1 ? "v1beta1" : "v1");
    table_columns(k, out);
    buf_str(out, ",\"rows\":[");
}

static void object_show(struct api *a, const struct repr *r, const struct object *o,
                        struct buf *out)
{
    if (r->form == FORM_OBJECT) {
        object_text(a, o, out);
    } else if (r->form == FORM_PARTIAL) {
        partial(r, o, out);
    } else {
        table_open(r, o->kind, out);
        table_row(a, r, o, out);
        buf_printf(out, "],\"metadata\":{\"resourceVersion\":\"%lld\"}}",
                   (long long)o->meta->resourceVersion);
    }
}

void repr_list_begin(const struct repr *r, const struct kind *k, struct buf *out)
{
    if (r->form == FORM_TABLE)
        table_open(r, k, out);
    else if (r->form == FORM_PARTIAL)
        buf_printf(
            out,
            "{\"kind\":\"PartialObjectMetadataList\",\"apiVersion\":\"meta.k8s.io/%s\",\"items\":[",
            r->v1beta1 ? "v1beta1" : "v1");
    else
        buf_printf(out, "{\"kind\":\"%sList\",\"apiVersion\":\"%s\",\"items\":[", k->kind,
                   kind_api_version(k));
}

/* Metadata alone has no figures. */
static struct object *figured(struct api *a, const struct view *v, const struct repr *r,
                              const struct object *o)
{
    return v && a->ops->shown && r->form != FORM_PARTIAL ? a->ops->shown(a->b, v, o) : NULL;
}

void repr_object(struct api *a, const struct view *v, const struct repr *r, const struct object *o,
                 struct buf *out)
{
    struct object *now = figured(a, v, r, o);

    object_show(a, r, now ? now : o, out);
    (void)object_unref(now);
}

void repr_list_item(struct api *a, const struct view *v, const struct repr *r,
                    const struct object *o, struct buf *out)
{
    struct object *now = figured(a, v, r, o);

    if (r->form == FORM_TABLE)
        table_row(a, r, now ? now : o, out);
    else
        object_show(a, r, now ? now : o, out);
    (void)object_unref(now);
}

void repr_list_end(const struct repr *r, uint64_t rv, const char *token, int64_t remaining,
                   struct buf *out)
{
    (void)r;
    buf_printf(out, "],\"metadata\":{\"resourceVersion\":\"%llu\"", (unsigned long long)rv);
    if (token) {
        buf_char(out, ',');
        json_pair(out, "continue", token, false);
        if (remaining > 0)
            buf_printf(out, ",\"remainingItemCount\":%lld", (long long)remaining);
    }
    buf_str(out, "}}\n");
}
