/* hanse archive verify [DIR]: reads every file of an archive, offline, and checks the chain: it
 * names wrong and missing segments, and the newest digest. It changes nothing. */
#include "controlplane/archive/archive_files.h"
#include "controlplane/store/archive/segment.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "usage: hanse archive verify [--digest SHA256 | --cluster UID] [DIR]\n"
    "\n"
    "Checks the archive of a member in DIR (its DATA_DIR/archive; here when none is given), "
    "offline:\n"
    "every record of every segment, the digest of each, and that each names the one before.\n"
    "  --digest SHA256  what the newest segment must have (hanse status shows it), so that the "
    "end\n"
    "                   of the chain cannot be cut off or written anew unseen\n"
    "  --cluster UID    the cluster that the first segment must be of\n"
    "Exit status: 0 all is well, 1 something is wrong or missing, 64 usage.\n";

struct verify {
    struct loop *loop;
    const char *dir, *digest, *cluster;
    uint64_t last; /* number of the file that came last */
    unsigned char prev[ARCHIVE_DIGEST];
    bool prev_known;
    uint64_t segments, records, bytes, counts[ARCHIVE_KINDS];
    unsigned wrong, missing;
};

static void wrong(struct verify *v, uint64_t number, const char *why)
{
    char path[ARCHIVE_PATH_MAX];

    archive_path(v->dir, number, path);
    (void)printf("segment %llu is wrong: %s: %s\n", (unsigned long long)number, path, why);
    v->wrong++;
}

static void gap(struct verify *v, uint64_t number)
{
    uint64_t n = number - v->last - 1;

    if (n == 0)
        return;
    if (n == 1)
        (void)printf("segment %llu is missing\n", (unsigned long long)v->last + 1);
    else
        (void)printf("segments %llu to %llu are missing\n", (unsigned long long)v->last + 1,
                     (unsigned long long)number - 1);
    v->missing++;
    v->prev_known = false;
}

static void sum(struct verify *v, const struct archive_info *i)
{
    v->segments++;
    v->records += i->records;
    v->bytes += i->bytes;
    for (int k = 0; k < ARCHIVE_KINDS; k++)
        v->counts[k] += i->counts[k];
}

static void verify_each(const char *name, void *arg)
{
    struct verify *v = arg;
    uint64_t number = archive_path_number(name);
    char path[ARCHIVE_PATH_MAX];
    struct archive_info i;
    struct err e = {0};
    AUTO_BUF b;

    buf_init(&b, SEGMENT_FILE_MAX_BYTES);
    if (!number || number <= v->last)
        return;
    gap(v, number);
    v->last = number;
    archive_path(v->dir, number, path);
    if (file_read(v->loop, path, SEGMENT_FILE_MAX_BYTES, &b, &e) < 0 ||
        segment_verify(slice_make(b.p, b.n), NULL, &i, &e) < 0) {
        wrong(v, number, e.text);
        v->prev_known = false;
        return;
    }
    if (i.number != number)
        wrong(v, number, "it holds another segment");
    else if (v->prev_known && memcmp(i.prev, v->prev, ARCHIVE_DIGEST) != 0)
        wrong(v, number,
              number == 1 ? "it is of another cluster"
                          : "it does not follow on the segment before it");
    else
        sum(v, &i);
    memcpy(v->prev, i.digest, ARCHIVE_DIGEST);
    v->prev_known = true;
}

static int verify(struct verify *v)
{
    char newest[2 * ARCHIVE_DIGEST + 8] = "none";
    struct err e = {0};

    if (v->cluster) {
        archive_chain_first(v->cluster, v->prev);
        v->prev_known = true;
    }
    if (file_list(v->loop, v->dir, verify_each, v, &e) < 0) {
        (void)fprintf(stderr, "hanse archive: %s\n", e.text);
        return 1;
    }
    if (v->last && v->prev_known)
        archive_digest_text(v->prev, newest);
    if (v->digest && strcmp(v->digest, newest) != 0 && strcmp(v->digest, newest + 7) != 0) {
        (void)printf("the newest digest is %s where %s is expected: the end is missing or was "
                     "written anew\n",
                     newest, v->digest);
        v->wrong++;
    }
    (void)printf("%llu segments verified: %llu records, %llu bytes; newest: segment %llu, %s\n",
                 (unsigned long long)v->segments, (unsigned long long)v->records,
                 (unsigned long long)v->bytes, (unsigned long long)v->last, newest);
    for (int k = 0; k < ARCHIVE_KINDS; k++)
        (void)printf("  %s: %llu\n", kind_by_id(archive_kinds[k])->kind,
                     (unsigned long long)v->counts[k]);
    if (v->wrong || v->missing)
        (void)printf("%u wrong, %u gaps: a member that runs fetches such segments from its peers\n",
                     v->wrong, v->missing);
    return v->wrong || v->missing;
}

int archive_main(int argc, char **argv)
{
    struct verify v = {.dir = "."};
    struct err e = {0};
    bool dir = false;
    int i = 2;

    if (argc > 1 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))) {
        (void)fputs(usage, stdout);
        return 0;
    }
    if (argc < 2 || strcmp(argv[1], "verify") != 0) {
        (void)fputs(usage, stderr);
        return 64;
    }
    for (; i < argc; i++) {
        if (!strcmp(argv[i], "--digest") && i + 1 < argc) {
            v.digest = argv[++i];
        } else if (!strcmp(argv[i], "--cluster") && i + 1 < argc && strlen(argv[i + 1]) < 64) {
            v.cluster = argv[++i];
        } else if (argv[i][0] != '-' && !dir && strlen(argv[i]) < 1000) {
            v.dir = argv[i];
            dir = true;
        } else {
            (void)fputs(usage, stderr);
            return 64;
        }
    }
    v.loop = loop_uv_create(&e);
    if (!v.loop) {
        (void)fprintf(stderr, "hanse archive: %s\n", e.text);
        return 1;
    }
    int rc = verify(&v);
    v.loop = loop_uv_destroy(v.loop);
    return rc;
}
