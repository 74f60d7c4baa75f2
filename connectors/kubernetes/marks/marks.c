/* Names, what is signed, and which rank is where. Must never take for ours what somebody without
 * this cluster's keys could have written. */
#include "connectors/kubernetes/marks/marks.h"

#include "api/base/failpoint.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PREFIX "hanse-kube-1/"
#define PARTS 8 /* behind the prefix, with the MAC */
#define MAC_DIGITS ((size_t)2 * HOME_MAC_BYTES)
#define RANKS_MAX ((int64_t)1 << 20)

bool kube_key_newer(const struct run_key *a, const struct run_key *b)
{
    return a->epoch != b->epoch ? a->epoch > b->epoch : a->try_ > b->try_;
}

/* Of an Indexed Job: with "-RANK" behind it, it is the host name of a pod. */
int kube_run_name(const struct run_key *k, int64_t ranks, char ret[KUBE_NAME_MAX], struct err *err)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789-";
    char last[24];
    int n = snprintf(ret, KUBE_NAME_MAX, "hanse-%s-%lld-%lld", k->uid, (long long)k->epoch,
                     (long long)k->try_);
    int index = snprintf(last, sizeof last, "-%lld", (long long)(ranks > 0 ? ranks - 1 : 0));

    if (n < 0 || n + index >= KUBE_NAME_MAX || ret[strspn(ret, letters)])
        return err_set(err, E_INVALID,
                       "no Job can be named for %.63s: a name has 63 letters at most, of a-z, 0-9 "
                       "and -",
                       k->uid);
    return 0;
}

bool kube_run_named(const char *name, struct run_key *ret)
{
    char text[KUBE_NAME_MAX];
    unsigned dots = 0;

    if (strncmp(name, "hanse-", 6) != 0 || strlen(name) >= sizeof text)
        return false;
    str_copy(text, sizeof text, name + 6);
    for (size_t i = strlen(text); i > 0 && dots < 2; i--)
        if (text[i - 1] == '-') {
            text[i - 1] = '.';
            dots++;
        }
    return run_key_parse(text, ret, NULL) == 0;
}

/* ---- marks ---- */
static void hex_print(const unsigned char mac[HOME_MAC_BYTES], char *out)
{
    for (unsigned i = 0; i < HOME_MAC_BYTES; i++)
        (void)snprintf(out + (size_t)2 * i, 3, "%02x", mac[i]);
}

#define BESIDE_DIGITS 32
#define MADE_DIGITS 20 /* names of pods that its controllers make have to fit behind it */
bool kube_beside_name(const struct connector_env *e, const struct run_key *k, const char *place,
                      unsigned i, char ret[KUBE_NAME_MAX])
{
    unsigned char mac[HOME_MAC_BYTES];
    char key[RUN_KEY_MAX], digits[MAC_DIGITS + 1];
    AUTO_BUF text;

    buf_init(&text, 512);
    run_key_print(k, key);
    buf_printf(&text, "hanse-kube-beside-1/%s/%s", place, key);
    if (text.failed || !e->keys || !e->keys->again || !e->keys->again(e->keys->arg, i, text.p, mac))
        return false;
    hex_print(mac, digits);
    (void)snprintf(ret, KUBE_NAME_MAX, "hanse-%.*s", BESIDE_DIGITS, digits);
    return true;
}

bool kube_made_name(const struct home_keys *keys, const struct kube_mark *m, unsigned i,
                    char ret[KUBE_NAME_MAX])
{
    unsigned char mac[HOME_MAC_BYTES];
    char key[RUN_KEY_MAX], digits[MAC_DIGITS + 1];
    AUTO_BUF text;

    buf_init(&text, 512);
    run_key_print(&m->key, key);
    buf_printf(&text, "hanse-kube-made-1/%s/%s/%s", m->cluster, m->place, key);
    if (text.failed || !keys || !keys->again || !keys->again(keys->arg, i, text.p, mac))
        return false;
    hex_print(mac, digits);
    (void)snprintf(ret, KUBE_NAME_MAX, "hanse-%.*s", MADE_DIGITS, digits);
    return true;
}

static bool hex_read(const char *s, unsigned char ret[HOME_MAC_BYTES])
{
    if (strlen(s) != MAC_DIGITS || strspn(s, "0123456789abcdef") != MAC_DIGITS)
        return false;
    for (unsigned i = 0; i < HOME_MAC_BYTES; i++) {
        const char two[3] = {s[(size_t)2 * i], s[(size_t)2 * i + 1], '\0'};
        ret[i] = (unsigned char)strtoul(two, NULL, 16);
    }
    return true;
}

int kube_mark_make(const struct kube_mark *m, const struct home_keys *keys, char ret[KUBE_MARK_MAX],
                   struct err *err)
{
    unsigned char mac[HOME_MAC_BYTES];
    char key[RUN_KEY_MAX];

    if (!keys || !keys->sign)
        return err_set(err, E_UNAVAIL, "this hub has no keys by which it could mark what it makes");
    run_key_print(&m->key, key);
    int n =
        snprintf(ret, KUBE_MARK_MAX, PREFIX "%s/%s/%s/%s/%s/%lld/%llu", m->cluster, key, m->place,
                 m->ns, m->name, (long long)m->ranks, (unsigned long long)m->state_rv);
    INV(n > 0 && (size_t)n + 2 + MAC_DIGITS < KUBE_MARK_MAX);
    keys->sign(keys->arg, ret, mac);
    ret[n] = '/';
    hex_print(mac, ret + n + 1);
    return 0;
}

static bool number(const char *s, uint64_t *ret)
{
    char *end;

    if (*s < '0' || *s > '9')
        return false;
    errno = 0;
    *ret = strtoull(s, &end, 10);
    return !*end && errno == 0;
}

static bool taken(const char *from, char *to, size_t n)
{
    if (strlen(from) >= n)
        return false;
    str_copy(to, n, from);
    return true;
}

/* What is read is borrowed from nobody. */
bool kube_mark_read(const char *text, const struct home_keys *keys, struct kube_mark *ret)
{
    unsigned char mac[HOME_MAC_BYTES];
    char copy[KUBE_MARK_MAX], *part[PARTS], *at = copy + strlen(PREFIX);
    uint64_t ranks = 0;
    unsigned n = 0;

    if (!keys || !keys->holds || strlen(text) >= sizeof copy ||
        strncmp(text, PREFIX, strlen(PREFIX)) != 0)
        return false;
    str_copy(copy, sizeof copy, text);
    for (char *slash = at; at && n < PARTS; at = slash) {
        part[n++] = at;
        slash = strchr(at, '/');
        if (slash)
            *slash++ = '\0';
    }
    if (n != PARTS || at || !hex_read(part[PARTS - 1], mac))
        return false;
    *ret = (struct kube_mark){.ranks = 0};
    if (!taken(part[0], ret->cluster, sizeof ret->cluster) ||
        run_key_parse(part[1], &ret->key, NULL) < 0 ||
        !taken(part[2], ret->place, sizeof ret->place) ||
        !taken(part[3], ret->ns, sizeof ret->ns) || !taken(part[4], ret->name, sizeof ret->name) ||
        !number(part[5], &ranks) || ranks > RANKS_MAX || !number(part[6], &ret->state_rv))
        return false;
    ret->ranks = (int64_t)ranks;
    str_copy(copy, sizeof copy, text);
    copy[strlen(copy) - MAC_DIGITS - 1] = '\0';
    return keys->holds(keys->arg, copy, mac) || PLANTED("kube.any-mark");
}

/* Its controller is the Job of that name. Who deletes that one and not its pods takes this from
 * them: then they are known by the names that it gave them. */
static bool is_made_by(const cJSON *pod, const char *job)
{
    const char *name = kube_text(pod, "metadata.name");
    size_t n = strlen(job);
    const cJSON *o;

    cJSON_ArrayForEach(o, kube_at(pod, "metadata.ownerReferences"))
    {
        if (cJSON_IsTrue(kube_at(o, "controller")))
            return strcmp(kube_text(o, "kind"), "Job") == 0 &&
                   strcmp(kube_text(o, "name"), job) == 0;
    }
    return strncmp(name, job, n) == 0 && name[n] == '-';
}

/* Its controller is the object that the Job stands for, or one that begins with its name, as those
 * do that its controller makes. Nobody can tell that name ahead, and no manifest can give its pods
 * the mark of another run. */
static bool is_made_for(const cJSON *pod, const struct kube_mark *m, const struct home_keys *keys)
{
    const char *name = kube_text(pod, "metadata.name");
    char made[KUBE_NAME_MAX];
    const cJSON *o;

    if (!*kube_annotation(pod, KUBE_PART_ANNOTATION))
        return false;
    cJSON_ArrayForEach(o, kube_at(pod, "metadata.ownerReferences"))
    {
        if (cJSON_IsTrue(kube_at(o, "controller")))
            name = kube_text(o, "name");
    }
    for (unsigned i = 0; kube_made_name(keys, m, i, made); i++)
        if (strncmp(name, made, strlen(made)) == 0 &&
            (name[strlen(made)] == '-' || !name[strlen(made)]))
            return true;
    return false;
}

/* Of a Job, or of a pod that it made: the mark is for this namespace, key and name. */
bool kube_mark_of(const cJSON *object, bool job, const struct home_keys *keys,
                  struct kube_mark *ret)
{
    char name[KUBE_NAME_MAX], key[RUN_KEY_MAX];

    if (!kube_mark_read(kube_annotation(object, KUBE_MARK_ANNOTATION), keys, ret))
        return false;
    run_key_print(&ret->key, key);
    return strcmp(kube_label(object, KUBE_RUN_LABEL), key) == 0 &&
           strcmp(kube_text(object, "metadata.namespace"), ret->place) == 0 &&
           kube_run_name(&ret->key, ret->ranks, name, NULL) == 0 &&
           (job ? strcmp(kube_text(object, "metadata.name"), name) == 0
                : is_made_by(object, name) || is_made_for(object, ret, keys));
}

bool kube_sign(const char *text, const struct home_keys *keys, char ret[KUBE_MARK_MAX])
{
    unsigned char mac[HOME_MAC_BYTES];

    if (!keys || !keys->sign)
        return false;
    keys->sign(keys->arg, text, mac);
    hex_print(mac, ret);
    return true;
}

bool kube_signed(const char *text, const char *mac, const struct home_keys *keys)
{
    unsigned char bytes[HOME_MAC_BYTES];

    return keys && keys->holds && hex_read(mac, bytes) && keys->holds(keys->arg, text, bytes);
}

/* ---- ends ---- */
/* What is signed of it: neither another Job's nor another text. */
static void end_text_print(const char *uid, const char *end, struct buf *out)
{
    buf_init(out, WIRE_OBSERVATION_MAX + 256);
    buf_printf(out, "hanse-kube-end-1/%s/%s", uid, end);
}

bool kube_end_mark_make(const char *uid, const char *end, const struct home_keys *keys,
                        char ret[KUBE_MARK_MAX])
{
    AUTO_BUF text = {0};

    end_text_print(uid, end, &text);
    return !text.failed && kube_sign(text.p, keys, ret);
}

const char *kube_end_of(const cJSON *job, const struct home_keys *keys)
{
    const char *end = kube_annotation(job, KUBE_END_ANNOTATION);
    AUTO_BUF text = {0};

    end_text_print(kube_text(job, "metadata.uid"), end, &text);
    return *end && !text.failed &&
                   kube_signed(text.p, kube_annotation(job, KUBE_END_MARK_ANNOTATION), keys)
               ? end
               : "";
}

/* ---- which rank is where ---- */
/* "node-a*8 node-b": names of nodes by rank, each as often as it comes in a row. */
void kube_nodes_print(const char *const *nodes, uint32_t n, struct buf *out)
{
    for (uint32_t i = 0; i < n;) {
        uint32_t same = 1;

        while (i + same < n && strcmp(nodes[i], nodes[i + same]) == 0)
            same++;
        buf_printf(out, same > 1 ? "%s%s*%u" : "%s%s", i ? " " : "", nodes[i], same);
        i += same;
    }
}

/* The node of that rank, in the arena; NULL: it is not told. */
const char *kube_nodes_of_rank(const char *text, int64_t rank, struct arena *a)
{
    int64_t at = 0;

    for (const char *s = text; *s && rank >= 0;) {
        size_t n = strcspn(s, " "), name = strcspn(s, " *");
        long long times = name < n ? strtoll(s + name + 1, NULL, 10) : 1;
        if (times < 1 || times > RANKS_MAX)
            return NULL;
        at += times;
        if (rank < at)
            return arena_strndup(a, s, name);
        s += n + (s[n] == ' ');
    }
    return NULL;
}

/* ---- namespaces ---- */
const char *kube_place_of(const struct target_spec *s, const char *ns)
{
    const struct target_kubernetes *k = s->kubernetes;

    for (uint32_t i = 0; k && i < k->n_namespaces; i++)
        if (strcmp(k->namespaces[i].namespace_, ns) == 0)
            return k->namespaces[i].as;
    return s->connection && *s->connection->namespace_ ? s->connection->namespace_ : ns;
}
