/* The line that a runner leaves behind: printed by the runner, read by whoever it comes back to.
 * The reader looks at the signature ahead of anything else; it must never give back a word of a
 * text whose signature does not hold. */
#include "connectors/report/report.h"
#include "connectors/report/report_internal.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PURPOSE "hanse-report-1\n"
#define NAME_PLACE ",\"of\":\""
#define MAC_PLACE ",\"mac\":\""
#define MAC_DIGITS ((size_t)2 * HOME_MAC_BYTES)
#define TAIL_BYTES (sizeof MAC_PLACE - 1 + MAC_DIGITS + 2) /* with "} */

static void mac_print(const char *token, const char *p, size_t n, char ret[MAC_DIGITS + 1])
{
    unsigned char mac[HOME_MAC_BYTES];
    unsigned size = 0;
    AUTO_BUF text;

    buf_init(&text, REPORT_LINE_MAX + sizeof PURPOSE);
    buf_str(&text, PURPOSE);
    buf_add(&text, p, n);
    INV(!text.failed);
    INV(HMAC(EVP_sha256(), token, (int)strlen(token), (const unsigned char *)text.p, text.n, mac,
             &size) &&
        size == sizeof mac);
    for (unsigned i = 0; i < HOME_MAC_BYTES; i++)
        (void)snprintf(ret + (size_t)2 * i, 3, "%02x", mac[i]);
}

/* ---- printing ---- */
/* A pod's status takes no other text. */
void report_text_clean(char *s)
{
    while (*s) {
        size_t n = utf8_length(s, strnlen(s, 4));
        if (n < 2 && ((unsigned char)*s < 0x20 || (unsigned char)*s >= 0x7f))
            *s = *s == '\n' || *s == '\t' ? ' ' : '?';
        s += n ? n : 1;
    }
}

/* At most n bytes of it, whole characters. */
static void text_cut(char *s, size_t n)
{
    if (strlen(s) <= n)
        return;
    while (n && ((unsigned char)s[n] & 0xc0) == 0x80)
        n--;
    s[n] = '\0';
}

/* What is told of a run that holds no lease, or whose lease is over. */
static struct run_report told(const struct run_report *r)
{
    struct run_report t = *r;

    t.checkpoint = (struct checkpoint_sealed){0};
    t.save = (struct run_save){0};
    t.lease_ms = 0;
    t.grant = 0;
    t.ready = false;
    report_text_clean(t.reason);
    report_text_clean(t.message);
    if (!utf8_valid(t.cut.path, strlen(t.cut.path)) ||
        !utf8_valid(t.cut.digest, strlen(t.cut.digest)))
        t.cut = (struct run_checkpoint_report){0};
    return t;
}

static bool line_try(const char *token, const struct run_report *r, int64_t number, int64_t at_ms,
                     struct buf *line)
{
    const char *mac_of = strrchr(token, '/');
    char mac[MAC_DIGITS + 1];
    AUTO_BUF body;

    buf_init(&body, WIRE_REPORT_MAX);
    if (body_print_json(&schema_run_report, r, &body, NULL) < 0)
        return false;
    INV(body.n > 2 && body.p[0] == '{' && body.p[body.n - 1] == '}');
    buf_reset(line);
    buf_printf(line, "{\"hanse\":%d" NAME_PLACE "%.*s\",\"number\":%lld,\"at\":%lld,%.*s",
               REPORT_VERSION, (int)(mac_of - token), token, (long long)number, (long long)at_ms,
               (int)(body.n - 2), body.p + 1);
    if (line->failed)
        return false;
    mac_print(token, line->p, line->n, mac);
    buf_printf(line, MAC_PLACE "%s\"}\n", mac);
    return !line->failed;
}

void report_line_print(const char *token, const struct run_report *r, int64_t number, int64_t at_ms,
                       struct buf *out)
{
    struct run_report t = told(r);
    AUTO_BUF line;

    PRE(number > 0 && at_ms >= 0 && strrchr(token, '/'));
    buf_init(&line, REPORT_LINE_MAX);
    while (!line_try(token, &t, number, at_ms, &line)) {
        INV(*t.message || t.cut.present);
        if (*t.message)
            text_cut(t.message, strlen(t.message) / 2);
        else
            t.cut = (struct run_checkpoint_report){0};
    }
    buf_add(out, line.p, line.n);
}

/* ---- reading ---- */
/* The first line, without its end. */
static int line_of(const char *text, size_t n, struct slice *ret, struct err *err)
{
    const char *end = memchr(text, '\n', n < REPORT_LINE_MAX ? n : REPORT_LINE_MAX);

    *ret = slice_make(text, end ? (size_t)(end - text) : n);
    if (ret->n >= REPORT_LINE_MAX)
        return err_set(err, E_TOOLARGE, "a report has at most %d bytes", REPORT_LINE_MAX);
    if (memchr(ret->p, '\0', ret->n))
        return err_set(err, E_SYNTAX, "it is no report: it has a zero byte");
    return 0;
}

static bool begins(const char **at, const char *end, const char *with)
{
    size_t n = strlen(with);

    if ((size_t)(end - *at) < n || memcmp(*at, with, n) != 0)
        return false;
    *at += n;
    return true;
}

/* What stands where it always stands: the version, the token's name, and ahead of MAC_PLACE all
 * that is signed. */
static int frame_read(struct slice line, char name[HOME_TOKEN_MAX], size_t *ret_signed,
                      struct err *err)
{
    const char *at = line.p, *end = at + line.n;
    unsigned version = 0;
    size_t n = 0;

    if (line.n < TAIL_BYTES || !begins(&at, end, "{\"hanse\":"))
        return err_set(err, E_SYNTAX, "it is no report of a runner");
    while (at < end && *at >= '0' && *at <= '9' && version < 100000)
        version = version * 10 + (unsigned)(*at++ - '0');
    if (version != REPORT_VERSION)
        return err_set(err, version ? E_NOTIMPL : E_SYNTAX,
                       "it is a report of version %u; this is %d", version, REPORT_VERSION);
    if (!begins(&at, end, NAME_PLACE))
        return err_set(err, E_SYNTAX, "it is no report of a runner");
    while (at + n < end && at[n] != '"')
        n++;
    if ((size_t)(end - at) < n + 1 + TAIL_BYTES || n >= HOME_TOKEN_MAX)
        return err_set(err, E_SYNTAX, "it is no report of a runner, or half of one");
    memcpy(name, at, n);
    name[n] = '\0';
    const char *mac = end - TAIL_BYTES;
    if (!begins(&mac, end, MAC_PLACE) || memcmp(end - 2, "\"}", 2) != 0)
        return err_set(err, E_UNAUTH, "it is not signed");
    *ret_signed = line.n - TAIL_BYTES;
    return 0;
}

static bool is_signed(struct slice line, size_t n_signed, const char *name,
                      const struct home_keys *keys)
{
    const char *mac = (const char *)line.p + n_signed + sizeof MAC_PLACE - 1;
    char token[HOME_TOKEN_MAX], wanted[MAC_DIGITS + 1];
    bool holds = false;

    for (unsigned i = 0; !holds && home_token_again(name, keys, i, token); i++) {
        mac_print(token, (const char *)line.p, n_signed, wanted);
        holds = CRYPTO_memcmp(wanted, mac, MAC_DIGITS) == 0;
    }
    OPENSSL_cleanse(token, sizeof token);
    return holds;
}

bool report_line_is_by(const char *token, const char *text, size_t n)
{
    char name[HOME_TOKEN_MAX], wanted[MAC_DIGITS + 1];
    const char *mac_of = strrchr(token, '/');
    size_t n_signed = 0;
    struct slice line;

    PRE(mac_of);
    if (line_of(text, n, &line, NULL) < 0 || frame_read(line, name, &n_signed, NULL) < 0 ||
        strlen(name) != (size_t)(mac_of - token) || memcmp(name, token, strlen(name)) != 0)
        return false;
    mac_print(token, (const char *)line.p, n_signed, wanted);
    return CRYPTO_memcmp(wanted, (const char *)line.p + n_signed + sizeof MAC_PLACE - 1,
                         MAC_DIGITS) == 0;
}

static int body_read(struct slice line, struct report_line *ret, struct err *err)
{
    struct report_head *head = NULL;
    struct run_report *report = NULL;
    AUTO_ARENA a = arena_create(0);
    int rc = wire_read(report_head, line, a, &head, err);

    if (rc == 0)
        rc = wire_read(run_report, line, a, &report, err);
    if (rc < 0)
        return rc;
    INV(head && report);
    ret->number = head->number;
    ret->at_ms = head->at_ms;
    ret->report = *report;
    checkpoint_settle(&ret->report.cut);
    return 0;
}

int report_line_read(const char *text, size_t n, const struct run_key *key, int64_t rank,
                     int64_t ranks, const struct home_keys *keys, struct report_line *ret,
                     struct err *err)
{
    struct report_line read = {.number = 0};
    struct slice line;
    char name[HOME_TOKEN_MAX];
    size_t n_signed = 0;
    int rc = line_of(text, n, &line, err);

    if (rc == 0)
        rc = frame_read(line, name, &n_signed, err);
    if (rc == 0)
        rc = home_token_name_read(name, &read.of, err);
    if (rc < 0)
        return rc;
    const struct run_key *k = &read.of.key;
    if (strcmp(k->uid, key->uid) != 0 || k->epoch != key->epoch || k->try_ != key->try_ ||
        read.of.rank != rank || (ranks && read.of.ranks != ranks))
        return err_set(err, E_CONFLICT, "it is the report of another run or rank");
    if (!is_signed(line, n_signed, name, keys))
        return err_set(err, E_UNAUTH, "its signature does not hold");
    rc = body_read(line, &read, err);
    if (rc < 0)
        return rc;
    *ret = read;
    return 0;
}
