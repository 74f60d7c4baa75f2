/* Targets repeat what they were given: a refused environment, a command line, a request's body.
 * What of it are values of Secrets must reach neither status nor Event nor log. This is the one
 * place where they are taken out: each answer of a connector about a workload, and all that it
 * tells of one unasked, passes here before anybody reads it. */
#include "controlplane/leader/context/hide.h"

#include <string.h>

#define TEXT_MAX 2048

/* How much of the value the text ends with, where it was cut in the midst of it; 0: nothing. */
static size_t cut_value(const char *text, size_t n, const char *value, size_t n_value)
{
    size_t k = n_value - 1 < n ? n_value - 1 : n;

    while (k >= HIDE_LEAST && memcmp(text + n - k, value, k) != 0)
        k--;
    return k >= HIDE_LEAST ? k : 0;
}

static void value_mark(const char *text, size_t n, const char *value, bool *hit)
{
    size_t n_value = strlen(value), cut;

    if (n_value < HIDE_LEAST)
        return;
    for (const char *p = text; (p = strstr(p, value)) != NULL; p++)
        memset(hit + (p - text), true, n_value);
    cut = cut_value(text, n, value, n_value);
    memset(hit + n - cut, true, cut);
}

/* Three characters never need more room than the four that they stand for. */
static void marked_drop(char *text, size_t n, const bool *hit)
{
    size_t to = 0;

    for (size_t i = 0; i < n; i++) {
        if (!hit[i]) {
            text[to++] = text[i];
        } else if (!i || !hit[i - 1]) {
            memcpy(text + to, "***", 3);
            to += 3;
        }
    }
    text[to] = '\0';
}

/* What is left is one line, and brings no control codes to a terminal: neither ASCII's nor those of
 * ISO 6429 at U+0080 to U+009F. */
void hide_controls(char *text)
{
    for (unsigned char *p = (unsigned char *)text; *p; p++) {
        if (*p < 0x20 || *p == 0x7f)
            *p = ' ';
        else if (p[0] == 0xc2 && p[1] >= 0x80 && p[1] <= 0x9f)
            p[0] = p[1] = ' ';
    }
}

/* What the principal in whose name it runs has; the target got it with the order. */
static const char *token_of(struct brain *b, const struct object *workload)
{
    const struct workload_status *s = object_as(workload, workload)->status;
    const struct object *t = s && s->placement && b->root
                                 ? root_get(b->root, KIND_TARGET, "", s->placement->target)
                                 : NULL;
    const struct target_principal *p =
        t ? target_principal_of(object_as(t, target)->spec, workload->meta->namespace_,
                                s->queue ? s->queue : "")
          : NULL;

    return p && p->credentialsFrom ? b->cfg.secret_get(b->cfg.arg, "hanse-system",
                                                       p->credentialsFrom->secret, PRINCIPAL_TOKEN)
                                   : NULL;
}

void hide_text(struct brain *b, const struct object *workload, char *text)
{
    const struct run_spec *run = object_as(workload, workload)->spec->run;
    size_t n = strlen(text);
    bool hit[TEXT_MAX] = {false}, any = false;

    INV(n < TEXT_MAX);
    for (uint32_t i = 0; n >= HIDE_LEAST && run && b->cfg.secret_get && i < run->n_env; i++) {
        const struct secret_key_ref *ref = run->env[i].valueFrom;
        const char *value =
            ref ? b->cfg.secret_get(b->cfg.arg, workload->meta->namespace_, ref->secret, ref->key)
                : NULL;

        if (!value)
            continue;
        value_mark(text, n, value, hit);
        b->cfg.secret_put(b->cfg.arg, value);
        any = true;
    }
    const char *token = n >= HIDE_LEAST && b->cfg.secret_get ? token_of(b, workload) : NULL;
    if (token) {
        value_mark(text, n, token, hit);
        b->cfg.secret_put(b->cfg.arg, token);
        any = true;
    }
    if (any)
        marked_drop(text, n, hit);
    hide_controls(text);
}

void hide_observation(struct brain *b, const struct object *workload, struct observation *o)
{
    hide_text(b, workload, o->reason);
    hide_text(b, workload, o->message);
}
