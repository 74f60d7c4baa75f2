/* What DCGM's exporter prints for Prometheus, line by line; and read for the question which GPUs
 * must be reset or replaced (how busy they are: use.c). DCGM_FI_DEV_XID_ERRORS is the last error
 * that a GPU had, and stays that until the driver or the exporter starts anew: only errors that
 * last as long themselves count. */
#include "connectors/kubernetes/dcgm/dcgm_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GPUS_MAX 256

static const struct {
    long number;
    const char *says;
} xids[] = {
#define XID(number, says, source) {number, says},
#include "connectors/kubernetes/nodes/dialects.def"
};
static const struct {
    const char *name, *reason, *says;
} metrics[] = {
#define METRIC(name, reason, says, source) {name, reason, says},
#include "connectors/kubernetes/nodes/dialects.def"
};

static bool sample_read(const char *line, size_t n, struct kube_sample *ret)
{
    const char *end = line + n, *p = line, *open;
    char number[32];
    size_t k = 0;

    *ret = (struct kube_sample){.name = line};
    while (p < end && *p != '{' && *p != ' ')
        p++;
    ret->n_name = (size_t)(p - line);
    if (p == end || *p != '{' || *line == '#')
        return false;
    open = p + 1;
    while (p < end && *p != '}') { /* a label's value may have braces and escaped quotes */
        if (*p != '"') {
            p++;
            continue;
        }
        for (p++; p < end && *p != '"'; p++)
            if (*p == '\\' && p + 1 < end)
                p++;
        p += p < end;
    }
    if (p >= end)
        return false;
    ret->labels = open;
    ret->n_labels = (size_t)(p - open);
    for (p++; p < end && *p == ' '; p++)
        ;
    while (p < end && *p >= '0' && *p <= '9' && k < sizeof number - 1)
        number[k++] = *p++;
    number[k] = '\0';
    ret->value = strtoll(number, NULL, 10);
    if (p < end && *p == '.') {
        int weight = 100;
        for (p++; p < end && *p >= '0' && *p <= '9'; p++, weight /= 10)
            ret->milli += (*p - '0') * weight;
    }
    if (p < end && *p != ' ' && *p != '\r')
        ret->milli = -1;
    return k > 0 && k < 18;
}

bool kube_sample_next(const char **text, const char *end, struct kube_sample *ret)
{
    const char *line = *text, *stop = memchr(line, '\n', (size_t)(end - line));
    size_t n = (size_t)((stop ? stop : end) - line);

    *text = line + n + (stop != NULL);
    return sample_read(line, n, ret);
}

bool kube_sample_named(const struct kube_sample *s, const char *name)
{
    return strlen(name) == s->n_name && memcmp(s->name, name, s->n_name) == 0;
}

/* Where its value begins, at or behind `from`; NULL: there is no such label. No value has a quote
 * that is not escaped, so what looks like a label is one. */
static const char *label_at(const struct kube_sample *s, const char *name, size_t from)
{
    size_t n = strlen(name);

    for (size_t i = from; i + n + 3 < s->n_labels + 1; i++) {
        const char *at = s->labels + i;
        if ((i == 0 || at[-1] == ',') && strncmp(at, name, n) == 0 && at[n] == '=' &&
            at[n + 1] == '"')
            return at + n + 2;
    }
    return NULL;
}

bool kube_sample_has(const struct kube_sample *s, const char *name)
{
    return label_at(s, name, 0) != NULL;
}

/* Of several of that name the first. */
static const char *first_label(const struct kube_sample *s, const char *name, char *ret, size_t n)
{
    const char *at = label_at(s, name, 0), *end = s->labels + s->n_labels;
    size_t k = 0;

    ret[0] = '\0';
    while (at && at + k < end && at[k] != '"' && at[k] != '\\')
        k++;
    if (!at || k >= n || at + k >= end || at[k] != '"')
        return at;
    memcpy(ret, at, k);
    ret[k] = '\0';
    return at;
}

void kube_sample_label(const struct kube_sample *s, const char *name, char *ret, size_t n)
{
    const char *at = first_label(s, name, ret, n);

    if (at && label_at(s, name, (size_t)(at - s->labels)))
        ret[0] = '\0';
}

/* A number in a label; -1: none. The exporter's own labels come first: those of a pod, which it may
 * print behind them, hide no sick GPU. */
static long label_number(const struct kube_sample *s, const char *name)
{
    char text[8];

    (void)first_label(s, name, text, sizeof text);
    return *text && text[strspn(text, "0123456789")] == '\0' ? strtol(text, NULL, 10) : -1;
}

static void sick(struct kube_dcgm *d, uint8_t seen[GPUS_MAX], long gpu, const char *reason,
                 const char *says)
{
    if (gpu < 0 || gpu >= GPUS_MAX || seen[gpu])
        return;
    seen[gpu] = 1;
    if (d->sick++)
        return;
    str_copy(d->reason, sizeof d->reason, reason);
    (void)snprintf(d->message, sizeof d->message, "GPU %ld: %s", gpu, says);
}

static void sample_take(const struct kube_sample *s, uint8_t seen[GPUS_MAX], struct kube_dcgm *d)
{
    long gpu = label_number(s, "gpu"), xid = -1;
    char reason[32];

    if (s->value == 0)
        return;
    if (kube_sample_named(s, "DCGM_FI_DEV_XID_ERRORS"))
        xid = s->value < 100000 ? (long)s->value : -1;
    else if (kube_sample_named(s, "DCGM_EXP_XID_ERRORS_COUNT"))
        xid = label_number(s, "xid");
    for (size_t i = 0; xid > 0 && i < sizeof xids / sizeof *xids; i++) {
        if (xids[i].number != xid)
            continue;
        (void)snprintf(reason, sizeof reason, "Xid%ld", xid);
        sick(d, seen, gpu, reason, xids[i].says);
    }
    for (size_t i = 0; i < sizeof metrics / sizeof *metrics; i++)
        if (kube_sample_named(s, metrics[i].name))
            sick(d, seen, gpu, metrics[i].reason, metrics[i].says);
}

void kube_dcgm_read(const char *text, size_t n, struct kube_dcgm *ret)
{
    const char *end = text + n;
    uint8_t seen[GPUS_MAX] = {0};

    *ret = (struct kube_dcgm){.sick = 0};
    while (text < end) {
        struct kube_sample s;

        if (kube_sample_next(&text, end, &s))
            sample_take(&s, seen, ret);
    }
}
