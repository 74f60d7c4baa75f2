/* Targets repeat what they were given: a refused environment, a command line, a request's body.
 * What of it are values of Secrets, or tokens, must reach neither status nor Event nor log. Here
 * they are taken out: each answer of a connector about a workload, and all that it tells of one
 * unasked, passes here before anybody reads it. A driver takes out its own credentials, which also
 * its logs and what it tells of nodes and machines must not have, where an answer comes in. */
#include "controlplane/leader/context/hide.h"

#include <string.h>

#define TARGET_VALUES 4 /* beside the principal's */

/* What is left is one line, and brings no control codes to a terminal: neither ASCII's nor those of
 * ISO 6429 at U+0080 to U+009F, nor those of Unicode that turn the direction of what follows. */
static void controls_drop(char *text)
{
    for (unsigned char *p = (unsigned char *)text; *p; p++) {
        if (*p < 0x20 || *p == 0x7f)
            *p = ' ';
        else if (p[0] == 0xc2 && p[1] >= 0x80 && p[1] <= 0x9f)
            p[0] = p[1] = ' ';
        else if (p[0] == 0xe2 && ((p[1] == 0x80 && p[2] >= 0xaa && p[2] <= 0xae) ||
                                  (p[1] == 0x81 && p[2] >= 0xa6 && p[2] <= 0xa9)))
            p[0] = p[1] = p[2] = ' ';
    }
}

void hide_controls(char *text)
{
    hide_values(text, NULL, 0);
    controls_drop(text);
}

/* Its target got the principal's with the order, and holds or has seen the others. */
static void values_of_target(struct brain *b, const struct object *workload,
                             const char *v[TARGET_VALUES + 1])
{
    static const char *const entries[TARGET_VALUES] = {"key", "key.other", "token", "proxy"};
    const struct workload_status *s = object_as(workload, workload)->status;
    const struct object *t = s && s->placement && b->root
                                 ? root_get(b->root, KIND_TARGET, "", s->placement->target)
                                 : NULL;
    const struct target_spec *spec = t ? object_as(t, target)->spec : NULL;
    const struct target_connection *c = spec ? spec->connection : NULL;
    const struct target_principal *p =
        t ? target_principal_of(spec, workload->meta->namespace_, s->queue ? s->queue : "") : NULL;

    for (size_t i = 0; c && c->credentialsFrom && i < TARGET_VALUES; i++)
        v[i] = b->cfg.secret_get(b->cfg.arg, "hanse-system", c->credentialsFrom->secret,
                                 entries[i]);
    if (p && p->credentialsFrom)
        v[TARGET_VALUES] = b->cfg.secret_get(b->cfg.arg, "hanse-system",
                                             p->credentialsFrom->secret, PRINCIPAL_TOKEN);
}

struct hidden {
    struct brain *b;
    const char **v; /* NULL: nobody has Secrets here */
    uint32_t n;
};

struct hidden *hide_open(struct brain *b, const struct object *workload)
{
    const struct run_spec *run = object_as(workload, workload)->spec->run;
    struct hidden *h = mem_new(struct hidden);
    uint32_t n = run ? run->n_env : 0;

    h->b = b;
    if (!b->cfg.secret_get)
        return h;
    h->n = n + TARGET_VALUES + 1;
    h->v = mem_zalloc(h->n * sizeof *h->v);
    for (uint32_t i = 0; i < n; i++) {
        const struct secret_key_ref *ref = run->env[i].valueFrom;
        h->v[i] = ref ? b->cfg.secret_get(b->cfg.arg, workload->meta->namespace_, ref->secret,
                                          ref->key)
                      : NULL;
    }
    values_of_target(b, workload, h->v + n);
    return h;
}

struct hidden *hide_close(struct hidden *h)
{
    for (uint32_t i = 0; h && i < h->n; i++)
        if (h->v[i])
            h->b->cfg.secret_put(h->b->cfg.arg, h->v[i]);
    if (h)
        mem_free(h->v);
    mem_free(h);
    return NULL;
}

void hide_with(const struct hidden *h, char *text)
{
    hide_values_cut(text, h ? h->v : NULL, h ? h->n : 0);
    controls_drop(text);
}

static void hide(struct brain *b, const struct object *workload, char *text,
                 void (*values)(char *, const char *const *, size_t))
{
    struct hidden *h = strlen(text) >= HIDE_LEAST ? hide_open(b, workload) : NULL;

    values(text, h ? h->v : NULL, h ? h->n : 0);
    controls_drop(text);
    (void)hide_close(h);
}

void hide_text(struct brain *b, const struct object *workload, char *text)
{
    hide(b, workload, text, hide_values_cut);
}

/* Where a letter of four bytes did not fit, that much is empty. */
void hide_word(struct brain *b, const struct object *workload, char *word, size_t size)
{
    hide(b, workload, word, strlen(word) + 4 < size ? hide_values : hide_values_cut);
}

void hide_observation(struct brain *b, const struct object *workload, struct observation *o)
{
    hide_word(b, workload, o->reason, sizeof o->reason);
    hide_text(b, workload, o->message);
}
