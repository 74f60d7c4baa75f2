/* See checkpoint.h. State file: eight bytes of magic, then little-endian 64-bit words: seed, rank,
 * world, step, random, data digest, number of weights, and the weights' bits. */
#include "deploy/examples/three-tier/trainer/checkpoint.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    HEAD_WORDS = 7,
    STATE_BYTES = 8 + 8 * (HEAD_WORDS + MODEL_WEIGHTS),
    MANIFEST_MAX = 65536,
    PATH_BYTES = 4096,
};

static const uint8_t magic[8] = {'D', 'I', 'G', 'I', 'T', 'S', '0', '1'};

static uint8_t *put_word(uint8_t *at, uint64_t word)
{
    for (unsigned b = 0; b < 8; b++) {
        *at++ = (uint8_t)(word >> (8 * b));
    }
    return at;
}

static uint64_t get_word(const uint8_t *at)
{
    uint64_t word = 0;
    for (unsigned b = 0; b < 8; b++) {
        word |= (uint64_t)at[b] << (8 * b);
    }
    return word;
}

static void state_encode(const struct model *m, uint64_t data_digest, uint8_t *state)
{
    memcpy(state, magic, sizeof magic);
    uint64_t head[HEAD_WORDS] = {m->seed,   m->rank,     m->world,     m->step,
                                 m->random, data_digest, MODEL_WEIGHTS};
    uint8_t *at = state + sizeof magic;
    for (unsigned i = 0; i < HEAD_WORDS; i++) {
        at = put_word(at, head[i]);
    }
    for (unsigned i = 0; i < MODEL_WEIGHTS; i++) {
        uint64_t bits;
        memcpy(&bits, &m->weight[i], sizeof bits);
        at = put_word(at, bits);
    }
}

static int state_decode(const uint8_t *state, uint64_t data_digest, struct model *m)
{
    const uint8_t *at = state + sizeof magic;
    uint64_t head[HEAD_WORDS];
    for (unsigned i = 0; i < HEAD_WORDS; i++, at += 8) {
        head[i] = get_word(at);
    }
    if (memcmp(state, magic, sizeof magic) != 0 || head[0] != m->seed || head[1] != m->rank ||
        head[2] != m->world || head[5] != data_digest || head[6] != MODEL_WEIGHTS) {
        return -1;
    }
    m->step = head[3];
    m->random = head[4];
    for (unsigned i = 0; i < MODEL_WEIGHTS; i++, at += 8) {
        uint64_t bits = get_word(at);
        memcpy(&m->weight[i], &bits, sizeof bits);
    }
    return 0;
}

static int sha256_hex(const void *bytes, size_t size, char hex[65])
{
    unsigned char digest[32];
    if (EVP_Digest(bytes, size, digest, NULL, EVP_sha256(), NULL) != 1) {
        return -1;
    }
    for (unsigned i = 0; i < sizeof digest; i++) {
        (void)snprintf(hex + 2 * i, 3, "%02x", digest[i]);
    }
    return 0;
}

static int write_all(int fd, const uint8_t *bytes, size_t size)
{
    while (size > 0) {
        ssize_t n = write(fd, bytes, size);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return -1;
        }
        bytes += n;
        size -= (size_t)n;
    }
    return 0;
}

/* Whole or not at all: temporary name, sync, rename, sync of the folder. */
static int file_replace(int dir_fd, const char *name, const void *bytes, size_t size)
{
    char temporary[80];
    (void)snprintf(temporary, sizeof temporary, ".%s.tmp", name);
    int fd = openat(dir_fd, temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0) {
        return -1;
    }
    bool good = write_all(fd, bytes, size) == 0 && fsync(fd) == 0;
    good = close(fd) == 0 && good;
    good = good && renameat(dir_fd, temporary, dir_fd, name) == 0 && fsync(dir_fd) == 0;
    if (!good) {
        int saved = errno;
        (void)unlinkat(dir_fd, temporary, 0);
        errno = saved;
    }
    return good ? 0 : -1;
}

/* Reads at most `limit` bytes; more is an error. */
static int file_read(int dir_fd, const char *name, uint8_t *bytes, size_t limit, size_t *ret_size)
{
    int fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) {
        return -1;
    }
    size_t size = 0;
    ssize_t n = 1;
    while (n > 0 && size < limit) {
        n = read(fd, bytes + size, limit - size);
        if (n < 0 && errno == EINTR) {
            n = 1;
            continue;
        }
        size += n > 0 ? (size_t)n : 0;
    }
    (void)close(fd);
    if (n == 0) {
        *ret_size = size;
        return 0;
    }
    errno = n > 0 ? EFBIG : errno;
    return -1;
}

int checkpoint_save(const char *dir, const struct model *model, uint64_t data_digest,
                    struct checkpoint_history *history, char *why, size_t why_size)
{
    uint8_t state[STATE_BYTES];
    char hex[65], name[64], manifest[256];
    state_encode(model, data_digest, state);
    (void)snprintf(name, sizeof name, "state-%llu.bin", (unsigned long long)model->step);
    if (strcmp(name, history->current) == 0) {
        return 0;
    }
    if (sha256_hex(state, sizeof state, hex) < 0) {
        (void)snprintf(why, why_size, "checkpoint: SHA-256 is not to be had from OpenSSL");
        return -1;
    }
    int n =
        snprintf(manifest, sizeof manifest,
                 "{\"step\":%llu,\"files\":[{\"name\":\"%s\",\"bytes\":%d,\"sha256\":\"%s\"}]}\n",
                 (unsigned long long)model->step, name, STATE_BYTES, hex);
    int dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir_fd < 0 || file_replace(dir_fd, name, state, sizeof state) < 0 ||
        file_replace(dir_fd, "manifest.json", manifest, (size_t)n) < 0) {
        (void)snprintf(why, why_size, "checkpoint in %s: %m", dir);
        if (dir_fd >= 0) {
            (void)close(dir_fd);
        }
        return -1;
    }
    if (history->previous[0]) {
        (void)unlinkat(dir_fd, history->previous, 0);
    }
    memcpy(history->previous, history->current, sizeof history->previous);
    memcpy(history->current, name, sizeof history->current);
    (void)close(dir_fd);
    return 0;
}

/* The one file that this program saves; NULL and `why` when the manifest says anything else. */
static const char *manifest_check(const cJSON *manifest, const char *hex, size_t size, double step)
{
    const cJSON *files = cJSON_GetObjectItemCaseSensitive(manifest, "files");
    const cJSON *file = cJSON_GetArrayItem(files, 0);
    const cJSON *bytes = cJSON_GetObjectItemCaseSensitive(file, "bytes");
    const char *sha256 = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(file, "sha256"));
    const cJSON *said = cJSON_GetObjectItemCaseSensitive(manifest, "step");
    if (!cJSON_IsNumber(bytes) || bytes->valuedouble != (double)size || !sha256 ||
        strcmp(sha256, hex) != 0) {
        return "the file is not the one that the manifest names (size or SHA-256 differs)";
    }
    if (!cJSON_IsNumber(said) || said->valuedouble != step) {
        return "manifest and file disagree on the step";
    }
    return NULL;
}

static const char *load_by_manifest(int dir_fd, const cJSON *manifest, uint64_t data_digest,
                                    struct model *model)
{
    const cJSON *files = cJSON_GetObjectItemCaseSensitive(manifest, "files");
    const char *name = cJSON_GetStringValue(
        cJSON_GetObjectItemCaseSensitive(cJSON_GetArrayItem(files, 0), "name"));
    if (cJSON_GetArraySize(files) != 1 || !name || strchr(name, '/')) {
        return "manifest.json does not name the one file that this program saves";
    }
    uint8_t state[STATE_BYTES + 1]; /* one more, so that a longer file is noticed */
    size_t size = 0;
    if (file_read(dir_fd, name, state, sizeof state, &size) < 0) {
        return "the file that the manifest names cannot be read";
    }
    char hex[65];
    if (size != STATE_BYTES || sha256_hex(state, size, hex) < 0) {
        return "the file has not the size of a checkpoint";
    }
    struct model found = *model;
    if (state_decode(state, data_digest, &found) < 0) {
        return "it belongs to another run (seed, rank, world size or data differ)";
    }
    const char *fault = manifest_check(manifest, hex, size, (double)found.step);
    if (!fault) {
        *model = found;
    }
    return fault;
}

int checkpoint_load(const char *dir, uint64_t data_digest, struct model *model, char *why,
                    size_t why_size)
{
    uint8_t text[MANIFEST_MAX];
    size_t size = 0;
    const char *fault = "manifest.json cannot be read";
    int dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir_fd >= 0 && file_read(dir_fd, "manifest.json", text, sizeof text, &size) == 0) {
        cJSON *manifest = cJSON_ParseWithLength((const char *)text, size);
        fault = manifest ? load_by_manifest(dir_fd, manifest, data_digest, model)
                         : "manifest.json is not JSON";
        cJSON_Delete(manifest);
    }
    if (dir_fd >= 0) {
        (void)close(dir_fd);
    }
    if (fault) {
        (void)snprintf(why, why_size, "will not resume from %s: %s", dir, fault);
        return -1;
    }
    return 0;
}
