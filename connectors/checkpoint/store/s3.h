/* What the files of the S3 driver share. Private to it.
 *
 *   s3.c          the driver: names and keys, small objects, lists, removal, fetching
 *   s3_upload.c   files on their way in, in one piece or in parts
 *   s3_request.c  one request: signed, sent, sent again where that may help, its answer read
 *   s3_sign.c     AWS Signature Version 4
 *   s3_config.c   URL and environment
 *   s3_xml.c      the few elements of answers that matter */
#ifndef HANSE_CONNECTORS_CHECKPOINT_STORE_S3_H
#define HANSE_CONNECTORS_CHECKPOINT_STORE_S3_H

#include "connectors/checkpoint/store/store.h"

#define S3_KEY_MAX 1024 /* S3's own limit */
#define S3_TEXT_MAX 256
#define S3_SECRET_MAX 4096 /* session tokens are long */
#define S3_EMPTY_SHA256 "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

/* ---- where (s3_config.c) ---- */
struct s3_config {
    char bucket[64], prefix[S3_KEY_MAX]; /* prefix: without slashes around it; "" = none */
    char region[64];
    char origin[S3_TEXT_MAX]; /* scheme and host: https://host[:port] */
    char host[S3_TEXT_MAX];   /* as the Host header has it */
    char root[S3_TEXT_MAX];   /* path of the bucket's root, "/" or "/bucket/" */
    char ca_file[1024];       /* "" = the system's */
    char key_id[S3_TEXT_MAX], secret[S3_TEXT_MAX], token[S3_SECRET_MAX];
};
int s3_config_read(const struct checkpoint_store *at, struct s3_config *ret,
                   struct err *err) MUST_CHECK;

/* ---- signing (s3_sign.c) ---- */
struct s3_pair {
    const char *name, *value;
};
struct s3_signing {
    const char *method, *path; /* as sent: encoded */
    const char *query;         /* as sent: s3_query_print */
    struct s3_pair *headers;   /* lower-case names; sorted in place */
    size_t n_headers;
    const char *payload; /* SHA-256 of the body in hex */
    const char *region, *key_id, *secret;
    const char *date; /* 20130524T000000Z */
};
/* Each byte that is not unreserved becomes %XX; '/' only when slashes are not kept. */
void s3_encode(const char *s, bool keep_slashes, struct buf *out);
/* name=value&…, encoded, sorted by name. Sorts pairs in place. */
void s3_query_print(struct s3_pair *pairs, size_t n, struct buf *out);
/* The value of the Authorization header. */
int s3_sign(const struct s3_signing *r, struct buf *out, struct err *err) MUST_CHECK;
void s3_base64(const unsigned char *p, size_t n, char *out); /* out: 4 * ((n + 2) / 3) + 1 */
bool s3_unhex(const char hex[65], unsigned char out[32]);

/* ---- XML (s3_xml.c) ---- */
/* The inside of the next element of that name in [*at, end), and *at behind it. NULL-safe for
 * whatever bytes come: what is no XML has no elements. */
bool s3_xml_next(struct slice *at, const char *name, struct slice *ret_inside);
/* Is it one whole document with that root? *ret: its inside. */
bool s3_xml_root(struct slice text, const char *name, struct slice *ret);
/* The text of the first element of that name, entities decoded; false: there is none, it does not
 * fit, or it is no plain text. */
bool s3_xml_text(struct slice in, const char *name, char *out, size_t max);

/* ---- one request (s3_request.c) ---- */
#define S3_PAIRS_MAX 12
struct s3_call {
    const char *method;
    const char *key; /* in the bucket; NULL = the bucket itself */
    struct s3_pair query[S3_PAIRS_MAX], headers[S3_PAIRS_MAX];
    size_t n_query, n_headers;
    /* What is sent: memory, or bytes of a file; and its SHA-256 in hex. */
    const void *body;
    int fd; /* -1 = none */
    int64_t offset, bytes;
    char payload[65];
    /* What comes: into buf, at most its maximum; or handed on. When a transfer is begun again (or
     * resumed, see range) `begin` is called first; false = that attempt is of no use. */
    struct buf *answer;
    bool (*begin)(struct s3_call *c, void *arg);
    int (*data)(const void *p, size_t n, void *arg);
    void *arg;
    /* The answer. */
    long status;
    unsigned attempts;        /* that were begun; above 1: an earlier one may have had its effect */
    bool sent_other;          /* what was read from fd is not what payload says */
    int64_t length, modified; /* -1 = not told; UTC seconds, 0 = not told */
    char etag[S3_TEXT_MAX], checksum[S3_TEXT_MAX], upload_region[64];
    char code[64], message[S3_TEXT_MAX]; /* of an error document */
};
struct s3 {
    struct store store;
    struct s3_config config;
    void *curl;
    int64_t skew_s; /* the server's clock, against ours */
    uint64_t patience_ms;
    uint64_t moved_ms, until_ms; /* the call that is under way: last sign of life, and its end */
};
void s3_call_init(struct s3_call *c, const char *method, const char *key);
void s3_call_query(struct s3_call *c, const char *name, const char *value);
void s3_call_header(struct s3_call *c, const char *name, const char *value);
/* A call of the interface begins, which moves that many bytes. */
void s3_begin(struct s3 *s, int64_t bytes);
/* 0: there is an answer, with c->status; it is not one of those after which asking again helps. */
int s3_perform(struct s3 *s, struct s3_call *c, struct err *err) MUST_CHECK;
/* An answer that is no good: StoreUnreachable, and what it said. */
int s3_refused(const struct s3 *s, const struct s3_call *c, const char *doing, const char *name,
               struct err *err);
/* The store itself says that there is no such key. */
bool s3_no_such_key(const struct s3_call *c);
/* "PREFIX/name" */
int s3_key(const struct s3 *s, const char *name, char out[S3_KEY_MAX + 1],
           struct err *err) MUST_CHECK;

/* ---- uploads (s3_upload.c) ---- */
int s3_put(struct store *s, const char *name, int fd, const struct checkpoint_file *f,
           struct err *err);
int s3_copy(struct store *s, const char *from, const char *name, const struct checkpoint_file *f,
            bool *ret_copied, struct err *err);

#endif
