/* An sbatch script as a Workload. Reads only what placement needs (workers, GPUs, CPU, memory,
 * time); what it does not know stays in the script untouched. */
#include "api/cli/cli_internal.h"

#include <ctype.h>

#define ARRAY_COUNT_MAX 100000

static cJSON *object_in(cJSON *o, const char *key)
{
    cJSON *v = cJSON_GetObjectItemCaseSensitive(o, key);
    return v ? v : cJSON_AddObjectToObject(o, key);
}

static cJSON *workload_new(const char *name)
{
    cJSON *j = cJSON_CreateObject(), *meta;

    (void)cJSON_AddStringToObject(j, "apiVersion", "hanse.dev/v1alpha1");
    (void)cJSON_AddStringToObject(j, "kind", "Workload");
    meta = cJSON_AddObjectToObject(j, "metadata");
    if (name)
        (void)cJSON_AddStringToObject(meta, "name", name);
    (void)cJSON_AddObjectToObject(j, "spec");
    return j;
}

static void text_set(cJSON *o, const char *key, const char *value)
{
    cJSON_DeleteItemFromObjectCaseSensitive(o, key);
    (void)cJSON_AddStringToObject(o, key, value);
}

static void number_set(cJSON *o, const char *key, double value)
{
    cJSON_DeleteItemFromObjectCaseSensitive(o, key);
    (void)cJSON_AddNumberToObject(o, key, value);
}

/* ---- sbatch ---- */
struct sbatch {
    char name[254], time[64], class_[64];
    int64_t mem; /* bytes of a node */
    long nodes, tasks, per_node, cpus, gpus, gpus_per_task;
    long array, at_once;
};

/* Slurm's 0-9 and 0-9%4: indexes begin at 0 and have no gaps. */
static int array_parse(const char *v, struct sbatch *s, struct err *err)
{
    char *end = NULL;
    long last = !strncmp(v, "0-", 2) && isdigit((unsigned char)v[2]) ? strtol(v + 2, &end, 10)
                : !strcmp(v, "0")                                    ? 0
                                                                     : -1;

    s->at_once = 0;
    if (end && *end == '%' && isdigit((unsigned char)end[1])) {
        s->at_once = strtol(end + 1, &end, 10);
        if (s->at_once < 1 || s->at_once > ARRAY_COUNT_MAX)
            last = -1;
    }
    if (last < 0 || last >= ARRAY_COUNT_MAX || (end && *end))
        return err_set(err, E_NOTIMPL,
                       "#SBATCH --array=%s is not supported: say 0-LAST, or 0-LAST%%N for N at "
                       "once, up to 0-%d; indexes begin at 0 and have no gaps",
                       v, ARRAY_COUNT_MAX - 1);
    s->array = last + 1;
    return 0;
}

/* "gpu:h100:4", "h100:4", "4" → count, class. */
static int gpus_parse(const char *v, struct sbatch *s, long *ret, struct err *err)
{
    const char *last = strrchr(v, ':'), *count = last ? last + 1 : v;
    char *end;

    *ret = strtol(count, &end, 10);
    if (*end || end == count) { /* gpu:h100 is one */
        *ret = 1;
        last = v + strlen(v);
    }
    if (*ret < 1 || *ret > 256)
        return err_set(err, E_INVALID,
                       "#SBATCH GPUs \"%s\": expected [gpu:][CLASS:]N with N from 1 to 256", v);
    if (last && !strncmp(v, "gpu:", 4) && last > v + 4)
        (void)snprintf(s->class_, sizeof s->class_, "%.*s", (int)(last - v - 4), v + 4);
    else if (last && last > v && strncmp(v, "gpu", (size_t)(last - v)) != 0)
        (void)snprintf(s->class_, sizeof s->class_, "%.*s", (int)(last - v), v);
    return 0;
}

/* Digits, stepped over; false = none, or more than a year has seconds. */
static bool time_part(const char **at, long *ret)
{
    char *end;

    long v = strtol(*at, &end, 10);
    if (!isdigit((unsigned char)**at) || v > 366L * 86400)
        return false;
    *ret = v;
    *at = end;
    return true;
}

/* Slurm's forms: MIN, MIN:SEC, H:M:S, D-H, D-H:M, D-H:M:S. */
static int time_slurm(const char *v, char out[64], struct err *err)
{
    long d = 0, x[3] = {0}, seconds;
    bool days = strchr(v, '-') != NULL, good = true;
    const char *p = v;
    int n = 0;

    if (days)
        good = time_part(&p, &d) && *p++ == '-';
    while (good && n < 3 && (good = time_part(&p, &x[n++])) && *p == ':' && n < 3)
        p++;
    seconds = days || n == 3 ? x[0] * 3600 + x[1] * 60 + x[2] : x[0] * 60 + x[1];
    seconds += d * 86400;
    if (!good || *p || seconds <= 0 || seconds > 366L * 86400)
        return err_set(err, E_INVALID,
                       "#SBATCH --time=%s: expected [DAYS-]HOURS:MINUTES:SECONDS or minutes", v);
    (void)snprintf(out, 64, "%lds", seconds);
    return 0;
}

/* Slurm's 16G are Gi, a bare number is Mi; of a whole node. */
static int memory_parse(const char *v, int64_t *ret, struct err *err)
{
    char text[64];
    size_t n = strlen(v);
    char last = n ? v[n - 1] : '\0';

    if (last >= '0' && last <= '9')
        (void)snprintf(text, sizeof text, "%sMi", v);
    else
        (void)snprintf(text, sizeof text, "%.*s%ci", (int)(n ? n - 1 : 0), v,
                       last == 'k' || last == 'K'   ? 'K'
                       : last >= 'a' && last <= 'z' ? last - 32
                                                    : last);
    if (quantity_parse(text, 1, ret, NULL) || *ret <= 0)
        return err_set(err, E_INVALID, "#SBATCH --mem=%s: expected a size such as 64G", v);
    return 0;
}

static int number(const char *key, const char *v, long *ret, struct err *err)
{
    char *end;

    *ret = strtol(v, &end, 10);
    if (!*v || *end || *ret < 1 || *ret > 1000000)
        return err_set(err, E_INVALID, "#SBATCH --%s=%s: expected a number from 1", key, v);
    return 0;
}

static int directive(struct sbatch *s, const char *key, const char *v, struct err *err)
{
    if (!strcmp(key, "job-name") || !strcmp(key, "J"))
        str_copy(s->name, sizeof s->name, v);
    else if (!strcmp(key, "time") || !strcmp(key, "t"))
        return time_slurm(v, s->time, err);
    else if (!strcmp(key, "nodes") || !strcmp(key, "N"))
        return number(key, v, &s->nodes, err);
    else if (!strcmp(key, "ntasks") || !strcmp(key, "n"))
        return number(key, v, &s->tasks, err);
    else if (!strcmp(key, "ntasks-per-node"))
        return number(key, v, &s->per_node, err);
    else if (!strcmp(key, "cpus-per-task") || !strcmp(key, "c"))
        return number(key, v, &s->cpus, err);
    else if (!strcmp(key, "gpus") || !strcmp(key, "G")) {
        int rv = gpus_parse(v, s, &s->gpus, err);
        s->gpus = -s->gpus; /* of the whole job */
        return rv;
    } else if (!strcmp(key, "gpus-per-node") || !strcmp(key, "gres"))
        return gpus_parse(v, s, &s->gpus, err);
    else if (!strcmp(key, "gpus-per-task"))
        return gpus_parse(v, s, &s->gpus_per_task, err);
    else if (!strcmp(key, "mem"))
        return memory_parse(v, &s->mem, err);
    else if (!strcmp(key, "array") || !strcmp(key, "a"))
        return array_parse(v, s, err);
    else if (!strcmp(key, "dependency") || !strcmp(key, "d"))
        return err_set(err, E_NOTIMPL, "#SBATCH --%s is not supported: submit each job by itself",
                       key);
    else if (!strcmp(key, "mem-per-cpu") || !strcmp(key, "mem-per-gpu"))
        return err_set(err, E_NOTIMPL, "#SBATCH --%s is not supported: say --mem (per node)", key);
    return 0;
}

/* "--key=value", "--key value", "-k value", "-kvalue" or "-k=value"; a value ends at a blank. */
static void directive_split(const char *p, char *key, size_t key_size, char *value,
                            size_t value_size)
{
    bool word = p[0] == '-' && p[1] == '-';
    const char *from = p + (word ? 2 : *p == '-');
    size_t n = word ? strspn(from, "abcdefghijklmnopqrstuvwxyz-")
                    : (size_t)(*p == '-' && isalpha((unsigned char)*from));

    (void)snprintf(key, key_size, "%.*s", (int)(n < key_size ? n : key_size - 1), from);
    from += n;
    from += *from == '=' ? 1 : strspn(from, " \t");
    n = strcspn(from, " \t\r");
    (void)snprintf(value, value_size, "%.*s", (int)(n < value_size ? n : value_size - 1), from);
}

static int directives_read(const char *script, size_t n, struct sbatch *s, struct err *err)
{
    const char *end = script + n;

    for (const char *line = script; line < end;) {
        const char *stop = memchr(line, '\n', (size_t)(end - line));
        size_t len = stop ? (size_t)(stop - line) : (size_t)(end - line);
        char text[1024], key[64] = "", value[256] = "";
        (void)snprintf(text, sizeof text, "%.*s", (int)(len < 1023 ? len : 1023), line);
        line += len + (stop != NULL);
        if (strncmp(text, "#SBATCH", 7) != 0) {
            if (*text && *text != '#')
                return 0; /* as sbatch: directives end at the first command */
            continue;
        }
        directive_split(text + 7 + strspn(text + 7, " \t"), key, sizeof key, value, sizeof value);
        int rv = directive(s, key, value, err);
        if (rv)
            return rv;
    }
    return 0;
}

static void name_clean(char *name)
{
    for (char *p = name; *p; p++) {
        if (*p >= 'A' && *p <= 'Z')
            *p = (char)(*p + 32);
        else if (!((*p >= 'a' && *p <= 'z') || (*p >= '0' && *p <= '9')))
            *p = '-';
    }
    while (*name && name[strlen(name) - 1] == '-')
        name[strlen(name) - 1] = '\0';
}

int sbatch_wrap(const char *script, size_t n, const char *name, cJSON **ret, struct err *err)
{
    struct sbatch s = {0};
    int rv = directives_read(script, n, &s, err);

    if (rv)
        return rv;
    if (name)
        str_copy(s.name, sizeof s.name, name);
    else
        name_clean(s.name);
    long workers = s.tasks ? s.tasks : (s.nodes ? s.nodes : 1) * (s.per_node ? s.per_node : 1);
    long gpus = s.gpus_per_task ? s.gpus_per_task : s.gpus;
    if (gpus < 0 && -gpus % workers != 0)
        return err_set(err, E_INVALID, "#SBATCH --gpus=%ld does not divide by %ld tasks", -gpus,
                       workers);
    if (gpus < 0)
        gpus = -gpus / workers;
    else if (!s.gpus_per_task && s.per_node > 1)
        gpus = gpus / s.per_node;
    cJSON *j = workload_new(*s.name ? s.name : NULL), *spec = object_in(j, "spec");
    if (!*s.name)
        (void)cJSON_AddStringToObject(object_in(j, "metadata"), "generateName", "sbatch-");
    (void)cJSON_AddStringToObject(spec, "type", "batch");
    if (workers > 1)
        number_set(object_in(spec, "gang"), "workers", (double)workers);
    if (gpus > 0)
        number_set(object_in(object_in(spec, "resources"), "gpu"), "count", (double)gpus);
    if (gpus > 0 && *s.class_) {
        cJSON *classes =
            cJSON_AddArrayToObject(object_in(object_in(spec, "resources"), "gpu"), "classes");
        (void)cJSON_AddItemToArray(classes, cJSON_CreateString(s.class_));
    }
    if (s.cpus)
        number_set(object_in(spec, "resources"), "cpu", (double)s.cpus);
    if (s.mem) {
        char bytes[32];
        long on_a_node = s.per_node           ? s.per_node
                         : s.tasks && s.nodes ? (s.tasks + s.nodes - 1) / s.nodes
                                              : 1;
        quantity_print_bytes(s.mem / on_a_node, bytes);
        text_set(object_in(spec, "resources"), "memory", bytes);
    }
    if (s.array)
        number_set(object_in(spec, "array"), "count", (double)s.array);
    if (s.at_once)
        number_set(object_in(spec, "array"), "parallelism", (double)s.at_once);
    if (*s.time)
        text_set(object_in(spec, "expected"), "duration", s.time);
    char *text = mem_alloc(n + 1);
    memcpy(text, script, n);
    text[n] = '\0';
    text_set(object_in(spec, "run"), "script", text);
    mem_free(text);
    *ret = j;
    return 0;
}
