/* One request to S3 with libcurl: signed anew for each attempt, sent again where that may help,
 * with backoff, jitter and what Retry-After says, until nothing has moved for the store's patience.
 *
 * This file must never follow a redirect (it would carry the signature elsewhere), take an answer
 * that did not come whole for one that did, or name a key in an error. TLS is always verified; what
 * is not TLS was asked for by an http:// endpoint. */
#include "connectors/checkpoint/files/sealfs.h"
#include "connectors/checkpoint/store/s3.h"
#include "connectors/web/web_rules.h"

#include <curl/curl.h>
#include <openssl/evp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#define STALL_MS 20000 /* one attempt without a byte */
#define RETRY_AFTER_MAX_MS 60000
#define ERROR_TEXT_MAX (64u << 10) /* of an error document; the rest is dropped */
#define SLOWEST_BYTES_PER_MS 256   /* a link slower than this is taken for one that hangs */
#define URL_MAX (16u << 10)

struct attempt {
    struct s3 *s3;
    struct s3_call *call;
    CURL *curl;
    EVP_MD_CTX *sent; /* what was read from call->fd */
    int64_t at;       /* of the body: the next byte */
    curl_off_t moved; /* both ways, as libcurl told last */
    bool began, refused, timed_out;
    struct buf error_text;
    char retry_after[64], date[64]; /* as the headers say it */
    struct err err;                 /* of our own callbacks */
};

static uint64_t now_ms(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

void s3_begin(struct s3 *s, int64_t bytes)
{
    s->moved_ms = now_ms();
    s->until_ms = s->moved_ms + s->patience_ms + (uint64_t)bytes / SLOWEST_BYTES_PER_MS;
}

/* Patience is counted from the last byte that moved. */
static bool given_up(const struct s3 *s, uint64_t now)
{
    return now >= s->until_ms || now - s->moved_ms >= s->patience_ms;
}

static bool cancelled(const struct s3 *s)
{
    return s->store.progress && atomic_load(&s->store.progress->cancel);
}

/* ---- the call ---- */
void s3_call_init(struct s3_call *c, const char *method, const char *key)
{
    *c = (struct s3_call){.method = method, .key = key, .fd = -1, .payload = S3_EMPTY_SHA256};
}

void s3_call_query(struct s3_call *c, const char *name, const char *value)
{
    PRE(c->n_query < S3_PAIRS_MAX);
    c->query[c->n_query++] = (struct s3_pair){name, value};
}

void s3_call_header(struct s3_call *c, const char *name, const char *value)
{
    PRE(c->n_headers < S3_PAIRS_MAX);
    c->headers[c->n_headers++] = (struct s3_pair){name, value};
}

static void answer_reset(struct s3_call *c)
{
    c->status = 0;
    c->length = -1;
    c->modified = 0;
    c->sent_other = false;
    c->etag[0] = c->checksum[0] = c->upload_region[0] = c->code[0] = c->message[0] = '\0';
}

/* ---- libcurl's callbacks ---- */
static size_t send_body(char *to, size_t size, size_t n, void *arg)
{
    struct attempt *a = arg;
    struct s3_call *c = a->call;
    int64_t left = c->bytes - a->at;
    size_t want = size * n;

    want = (uint64_t)left < want ? (size_t)left : want;
    if (want == 0)
        return 0;
    if (c->fd < 0) {
        memcpy(to, (const char *)c->body + a->at, want);
        a->at += (int64_t)want;
        return want;
    }
    ssize_t got = pread(c->fd, to, want, (off_t)(c->offset + a->at));
    if (got <= 0 || EVP_DigestUpdate(a->sent, to, (size_t)got) != 1) {
        (void)err_field(&a->err, E_CHECKPOINT, CHECKPOINT_TORN,
                        "a sealed file could not be read to its end");
        return CURL_READFUNC_ABORT;
    }
    a->at += got;
    return (size_t)got;
}

/* A connection that was kept turned out to be closed: the same once more. */
static int send_again(void *arg, curl_off_t offset, int origin)
{
    struct attempt *a = arg;

    if (origin != SEEK_SET || offset != 0 || EVP_DigestInit_ex(a->sent, EVP_sha256(), NULL) != 1)
        return CURL_SEEKFUNC_FAIL;
    a->at = 0;
    return CURL_SEEKFUNC_OK;
}

static size_t take_body(char *p, size_t size, size_t n, void *arg)
{
    struct attempt *a = arg;
    struct s3_call *c = a->call;
    size_t bytes = size * n;
    long status = 0;

    (void)curl_easy_getinfo(a->curl, CURLINFO_RESPONSE_CODE, &status);
    if (status < 200 || status > 299 || (!c->data && !c->answer)) {
        size_t room = ERROR_TEXT_MAX - a->error_text.n;
        buf_add(&a->error_text, p, bytes < room ? bytes : room);
        return bytes;
    }
    if (c->data && !a->began) {
        c->status = status;
        a->began = true;
        a->refused = c->begin && !c->begin(c, c->arg);
    }
    if (a->refused)
        return 0;
    if (c->data)
        return c->data(p, bytes, c->arg) < 0 ? 0 : bytes;
    buf_add(c->answer, p, bytes);
    if (!c->answer->failed)
        return bytes;
    (void)err_set(&a->err, E_TOOLARGE, "the answer is larger than %zu bytes", c->answer->max);
    return 0;
}

static void keep(char *out, size_t max, const char *value, size_t n)
{
    (void)snprintf(out, max, "%.*s", (int)(n < max ? n : max - 1), value);
}

static size_t take_header(char *p, size_t size, size_t n, void *arg)
{
    struct attempt *a = arg;
    struct s3_call *c = a->call;
    size_t bytes = size * n, name = 0, end = bytes;
    char text[64];

    while (name < bytes && p[name] != ':')
        name++;
    size_t at = name + 1;
    while (at < bytes && p[at] == ' ')
        at++;
    while (end > at && (p[end - 1] == '\r' || p[end - 1] == '\n'))
        end--;
    if (at >= end)
        return bytes;
    keep(text, sizeof text, p + at, end - at);
    if (name == 4 && !strncasecmp(p, "etag", 4))
        keep(c->etag, sizeof c->etag, p + at, end - at);
    else if (name == 21 && !strncasecmp(p, "x-amz-checksum-sha256", 21))
        keep(c->checksum, sizeof c->checksum, p + at, end - at);
    else if (name == 19 && !strncasecmp(p, "x-amz-bucket-region", 19))
        keep(c->upload_region, sizeof c->upload_region, p + at, end - at);
    else if (name == 14 && !strncasecmp(p, "content-length", 14))
        c->length = strtoll(text, NULL, 10);
    else if (name == 13 && !strncasecmp(p, "last-modified", 13))
        c->modified = curl_getdate(text, NULL);
    else if (name == 11 && !strncasecmp(p, "retry-after", 11))
        str_copy(a->retry_after, sizeof a->retry_after, text);
    else if (name == 4 && !strncasecmp(p, "date", 4))
        str_copy(a->date, sizeof a->date, text);
    return bytes;
}

static int watch(void *arg, curl_off_t down_all, curl_off_t down, curl_off_t up_all, curl_off_t up)
{
    struct attempt *a = arg;
    struct s3 *s = a->s3;
    uint64_t now = now_ms();

    (void)down_all;
    (void)up_all;
    if (down + up > a->moved) {
        if (s->store.progress)
            atomic_fetch_add(&s->store.progress->bytes, (uint64_t)(down + up - a->moved));
        s->moved_ms = now;
    }
    a->moved = down + up;
    a->timed_out = given_up(s, now) || now - s->moved_ms >= STALL_MS;
    return cancelled(s) || a->timed_out;
}

/* ---- one attempt ---- */
static bool is_signed(const char *name)
{
    return strncmp(name, "x-amz-", 6) == 0;
}

static bool header_add(struct curl_slist **list, const char *name, const char *value)
{
    char small[S3_TEXT_MAX];
    AUTO_BUF b;

    buf_init(&b, S3_SECRET_MAX + 256);
    (void)snprintf(small, sizeof small, "%s: ", name);
    buf_str(&b, small);
    buf_str(&b, value);
    struct curl_slist *more = b.failed ? NULL : curl_slist_append(*list, b.p);
    if (more)
        *list = more;
    return more != NULL;
}

/* All headers of the request, the signature among them. */
static int headers_make(const struct s3 *s, const struct s3_call *c, const char *path,
                        const char *query, struct curl_slist **ret, struct err *err)
{
    static const char *const silent[] = {"Expect:", "Transfer-Encoding:", "Accept:"};
    struct s3_pair own[S3_PAIRS_MAX + 4];
    char date[32];
    time_t at = time(NULL) + (time_t)s->skew_s;
    struct tm tm;
    size_t n = 0;
    bool good = true;
    AUTO_BUF authorization;

    buf_init(&authorization, 4096);
    if (!gmtime_r(&at, &tm) || !strftime(date, sizeof date, "%Y%m%dT%H%M%SZ", &tm))
        return err_set(err, E_INTERNAL, "the time cannot be told");
    own[n++] = (struct s3_pair){"host", s->config.host};
    own[n++] = (struct s3_pair){"x-amz-date", date};
    own[n++] = (struct s3_pair){"x-amz-content-sha256", c->payload};
    if (s->config.token[0])
        own[n++] = (struct s3_pair){"x-amz-security-token", s->config.token};
    for (size_t i = 0; i < c->n_headers; i++) {
        if (is_signed(c->headers[i].name))
            own[n++] = c->headers[i];
        else
            good = good && header_add(ret, c->headers[i].name, c->headers[i].value);
    }
    struct s3_signing r = {
        c->method,        path, query, own, n, c->payload, s->config.region, s->config.key_id,
        s->config.secret, date};
    int rc = s3_sign(&r, &authorization, err);
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < n; i++)
        good = good && header_add(ret, own[i].name, own[i].value);
    good = good && header_add(ret, "authorization", authorization.p);
    for (size_t i = 0; good && i < sizeof silent / sizeof *silent; i++) {
        struct curl_slist *more = curl_slist_append(*ret, silent[i]);
        good = more != NULL;
        *ret = more ? more : *ret;
    }
    return good ? 0 : err_set(err, E_NOMEM, "there is no memory for a request");
}

static void method_set(CURL *h, struct attempt *a)
{
    struct s3_call *c = a->call;
    bool puts = strcmp(c->method, "PUT") == 0 || strcmp(c->method, "POST") == 0;

    if (puts) { /* POST, too: the same way of sending a body */
        (void)curl_easy_setopt(h, CURLOPT_UPLOAD, 1L);
        (void)curl_easy_setopt(h, CURLOPT_INFILESIZE_LARGE, (curl_off_t)c->bytes);
        (void)curl_easy_setopt(h, CURLOPT_READFUNCTION, send_body);
        (void)curl_easy_setopt(h, CURLOPT_READDATA, a);
        (void)curl_easy_setopt(h, CURLOPT_SEEKFUNCTION, send_again);
        (void)curl_easy_setopt(h, CURLOPT_SEEKDATA, a);
    } else if (strcmp(c->method, "HEAD") == 0) {
        (void)curl_easy_setopt(h, CURLOPT_NOBODY, 1L);
    }
    if (strcmp(c->method, "HEAD") != 0)
        (void)curl_easy_setopt(h, CURLOPT_CUSTOMREQUEST, c->method);
}

static void options_set(CURL *h, struct attempt *a, const char *url, struct curl_slist *headers)
{
    const struct s3_config *config = &a->s3->config;
    const struct web_trust trust = {.tls = strncmp(config->origin, "https:", 6) == 0,
                                    .ca_file = config->ca_file};

    curl_easy_reset(h); /* keeps its connections */
    web_easy_secure(h, &trust);
    (void)curl_easy_setopt(h, CURLOPT_URL, url);
    (void)curl_easy_setopt(h, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    (void)curl_easy_setopt(h, CURLOPT_BUFFERSIZE, 262144L);
    (void)curl_easy_setopt(h, CURLOPT_UPLOAD_BUFFERSIZE, 262144L);
    (void)curl_easy_setopt(h, CURLOPT_HTTPHEADER, headers);
    (void)curl_easy_setopt(h, CURLOPT_WRITEFUNCTION, take_body);
    (void)curl_easy_setopt(h, CURLOPT_WRITEDATA, a);
    (void)curl_easy_setopt(h, CURLOPT_HEADERFUNCTION, take_header);
    (void)curl_easy_setopt(h, CURLOPT_HEADERDATA, a);
    (void)curl_easy_setopt(h, CURLOPT_NOPROGRESS, 0L);
    (void)curl_easy_setopt(h, CURLOPT_XFERINFOFUNCTION, watch);
    (void)curl_easy_setopt(h, CURLOPT_XFERINFODATA, a);
    method_set(h, a);
}

static void sent_check(struct attempt *a)
{
    unsigned char digest[32];
    char hex[65];

    if (a->call->fd < 0 || EVP_DigestFinal_ex(a->sent, digest, NULL) != 1)
        return;
    sealfs_hex(digest, hex);
    a->call->sent_other = a->at == a->call->bytes && strcmp(hex, a->call->payload) != 0;
}

static void error_read(struct attempt *a)
{
    struct s3_call *c = a->call;
    struct slice text = slice_make(a->error_text.p, a->error_text.n), in;

    (void)curl_easy_getinfo(a->curl, CURLINFO_RESPONSE_CODE, &c->status);
    if (!s3_xml_root(text, "Error", &in))
        return;
    if (!s3_xml_text(in, "Code", c->code, sizeof c->code))
        c->code[0] = '\0';
    if (!s3_xml_text(in, "Message", c->message, sizeof c->message))
        c->message[0] = '\0';
}

/* CURLE_OK: there is an answer. An error of our own making is in a->err. */
static CURLcode attempt(struct attempt *a, struct err *err, int *ret_rc)
{
    struct s3_call *c = a->call;
    const struct s3_config *config = &a->s3->config;
    struct curl_slist *headers = NULL;
    CURLcode code = CURLE_OUT_OF_MEMORY;
    AUTO_BUF path;
    AUTO_BUF query;
    AUTO_BUF url;

    buf_init(&path, URL_MAX);
    buf_init(&query, URL_MAX);
    buf_init(&url, URL_MAX);
    answer_reset(c);
    s3_encode(config->root, true, &path);
    if (c->key)
        s3_encode(c->key, true, &path);
    buf_str(&query, "");
    s3_query_print(c->query, c->n_query, &query);
    buf_str(&url, config->origin);
    buf_str(&url, path.p);
    if (query.n) {
        buf_char(&url, '?');
        buf_str(&url, query.p);
    }
    if (path.failed || query.failed || url.failed ||
        EVP_DigestInit_ex(a->sent, EVP_sha256(), NULL) != 1)
        *ret_rc = err_set(err, E_TOOLARGE, "the request is too large");
    else
        *ret_rc = headers_make(a->s3, c, path.p, query.n ? query.p : "", &headers, err);
    if (*ret_rc == 0) {
        options_set(a->curl, a, url.p, headers);
        code = curl_easy_perform(a->curl);
        error_read(a);
        sent_check(a);
        (void)curl_easy_setopt(a->curl, CURLOPT_HTTPHEADER, NULL);
    }
    curl_slist_free_all(headers);
    return code;
}

/* ---- again, or not ---- */
static bool code_is_final(CURLcode code)
{
    return web_easy_code((int)code) == E_TLS || code == CURLE_URL_MALFORMAT ||
           code == CURLE_UNSUPPORTED_PROTOCOL || code == CURLE_OUT_OF_MEMORY ||
           code == CURLE_NOT_BUILT_IN;
}

/* Answers after which the same request may do better. */
static bool answer_is_passing(struct attempt *a)
{
    struct s3_call *c = a->call;

    if (c->status == 403 && !strcmp(c->code, "RequestTimeTooSkewed") && a->s3->skew_s == 0) {
        time_t server = curl_getdate(a->date, NULL);
        a->s3->skew_s = server > 0 ? (int64_t)(server - time(NULL)) : 0;
        return a->s3->skew_s != 0;
    }
    return web_status_passes((int)c->status) ||
           (c->status == 409 && !strcmp(c->code, "ConditionalRequestConflict")) ||
           (c->status == 409 && !strcmp(c->code, "OperationAborted")) ||
           (c->status == 400 && !strcmp(c->code, "RequestTimeout"));
}

/* False: cancelled, or nothing is left to wait for. */
static bool wait_before_next(struct s3 *s, const struct attempt *a)
{
    uint64_t random = 0, now = now_ms();

    (void)!getrandom(&random, sizeof random, 0);
    uint64_t wait = web_backoff_ms(a->call->attempts, random);
    uint64_t said = web_retry_after_ms(a->retry_after, a->date, (uint64_t)time(NULL) * 1000);
    said = said < RETRY_AFTER_MAX_MS ? said : RETRY_AFTER_MAX_MS;
    wait = wait > said ? wait : said;
    for (uint64_t until = now + wait; now < until; now = now_ms()) {
        if (cancelled(s) || given_up(s, now))
            return false;
        uint64_t left = until - now;
        (void)poll(NULL, 0, left < 100 ? (int)left : 100);
    }
    return !given_up(s, now);
}

static int out_of_reach(const struct s3 *s, const struct attempt *a, CURLcode code, struct err *err)
{
    const struct s3_call *c = a->call;

    if (cancelled(s))
        return err_set(err, E_CANCELLED, "nobody waits for it any more");
    if (code == CURLE_OK)
        return s3_refused(s, c, "asking", c->key ? c->key : "", err);
    return err_field(err, code_is_final(code) ? E_TLS : E_CONNECT, CHECKPOINT_UNREACHABLE,
                     "the store s3://%.63s at %.100s did not answer: %.100s",
                     s->config.bucket, s->config.origin,
                     a->timed_out ? "nothing has moved for too long" : curl_easy_strerror(code));
}

int s3_perform(struct s3 *s, struct s3_call *c, struct err *err)
{
    size_t had = c->answer ? c->answer->n : 0;
    struct attempt a = {.s3 = s, .call = c, .curl = s->curl, .sent = EVP_MD_CTX_new()};
    int rc = a.sent ? 0 : err_set(err, E_NOMEM, "SHA-256 is not to be had from OpenSSL");

    buf_init(&a.error_text, ERROR_TEXT_MAX);
    for (c->attempts = 0; rc == 0;) {
        buf_reset(&a.error_text);
        if (c->answer)
            c->answer->n = had;
        a.at = a.moved = 0;
        a.retry_after[0] = a.date[0] = '\0';
        a.began = a.refused = a.timed_out = false;
        c->attempts++;
        CURLcode code = attempt(&a, err, &rc);
        if (rc < 0)
            break;
        if (a.err.code) {
            rc = a.err.code;
            if (err)
                *err = a.err;
            break;
        }
        if (code == CURLE_OK && !answer_is_passing(&a))
            break;
        if (code == CURLE_WRITE_ERROR && !a.refused) { /* the caller's own: it knows why */
            rc = err_set(err, E_IO, "what came could not be kept");
            break;
        }
        if (code_is_final(code) || cancelled(s) || !wait_before_next(s, &a))
            rc = out_of_reach(s, &a, code, err);
    }
    buf_fini(&a.error_text);
    EVP_MD_CTX_free(a.sent);
    return rc;
}

int s3_refused(const struct s3 *s, const struct s3_call *c, const char *doing, const char *name,
               struct err *err)
{
    const char *const secrets[] = {s->config.secret, s->config.token};
    const char *remedy = "";
    int rc, code = c->status == 403 || c->status == 401 ? E_UNAUTH : E_UNAVAIL;

    if (c->status == 403 || c->status == 401)
        remedy = ": may this key read, write, list and delete below the prefix?";
    else if (!strcmp(c->code, "NoSuchBucket"))
        remedy = ": there is no such bucket";
    else if (c->status == 301 || c->status == 307 || c->status == 400)
        remedy = c->upload_region[0] ? ": the bucket is in another region; set AWS_REGION" : "";
    rc = err_field(err, code, CHECKPOINT_UNREACHABLE,
                   "s3://%.63s: %s %.150s: the store answered %ld %.40s%s%.80s%s", s->config.bucket,
                   doing, name, c->status, c->code, *c->message ? " " : "", c->message, remedy);
    if (err) /* the message is the server's: it may repeat what it was sent */
        web_redact_texts(secrets, sizeof secrets / sizeof *secrets, err->text);
    return rc;
}

bool s3_no_such_key(const struct s3_call *c)
{
    return c->status == 404 && !strcmp(c->code, "NoSuchKey");
}
