/* Manifests: written by programs, believed in nothing. A manifest that cannot be read whole is
 * torn; one that says what it must not is refused, and the sentence says which entry. */
#include "connectors/checkpoint/checkpoint_internal.h"
#include "api/schema/schema.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int checkpoint_name_check(const char *name, struct err *err)
{
    unsigned depth = 0;
    size_t n = strlen(name);

    if (n == 0 || n > CHECKPOINT_NAME_MAX || name[0] == '/')
        return err_field(err, E_CHECKPOINT, CHECKPOINT_TORN,
                         "the file name \"%.100s\" is empty, absolute or longer than %d bytes",
                         name, CHECKPOINT_NAME_MAX);
    for (const char *p = name; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f)
            return err_field(err, E_CHECKPOINT, CHECKPOINT_TORN,
                             "a file name holds a control character");
    for (const char *p = name;; p++) {
        size_t part = strcspn(p, "/");
        if (part == 0 || (part == 1 && p[0] == '.') || (part == 2 && p[0] == '.' && p[1] == '.'))
            return err_field(err, E_CHECKPOINT, CHECKPOINT_TORN,
                             "the file name \"%.100s\" leaves the folder, or has an empty part",
                             name);
        if (++depth > CHECKPOINT_DEPTH_MAX)
            return err_field(err, E_CHECKPOINT, CHECKPOINT_TORN,
                             "the file name \"%.100s\" is deeper than %d", name,
                             CHECKPOINT_DEPTH_MAX);
        p += part;
        if (!*p)
            break;
    }
    if (strcmp(name, CHECKPOINT_MANIFEST_FILE) == 0)
        return err_field(err, E_CHECKPOINT, CHECKPOINT_TORN, "the manifest names itself");
    return 0;
}

/* An integer from 0 to 2^53; json_scan has refused larger ones and fractions are refused here. */
static bool whole(const cJSON *v, int64_t *ret)
{
    if (!cJSON_IsNumber(v) || !(v->valuedouble >= 0) ||
        v->valuedouble > (double)CHECKPOINT_NUMBER_MAX)
        return false;
    *ret = (int64_t)v->valuedouble;
    return (double)*ret == v->valuedouble;
}

static bool hex64(const char *s)
{
    return s && strlen(s) == 64 && strspn(s, "0123456789abcdef") == 64;
}

static int only_keys(const cJSON *j, const char *const *keys, const char *what, struct err *err)
{
    const cJSON *v;

    cJSON_ArrayForEach(v, j)
    {
        size_t i = 0;
        while (keys[i] && strcmp(keys[i], v->string) != 0)
            i++;
        if (!keys[i])
            return err_field(err, E_CHECKPOINT, CHECKPOINT_TORN, "%s has an unknown key \"%.64s\"",
                             what, v->string);
    }
    return 0;
}

static int file_parse(const cJSON *j, struct arena *a, struct checkpoint_file *ret, struct err *err)
{
    static const char *const keys[] = {"name", "bytes", "sha256", NULL};
    const char *name = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(j, "name"));
    const char *sha = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(j, "sha256"));
    int rc = only_keys(j, keys, "a file of the manifest", err);

    if (rc < 0)
        return rc;
    if (!name)
        return err_field(err, E_CHECKPOINT, CHECKPOINT_TORN, "a file of the manifest has no name");
    rc = checkpoint_name_check(name, err);
    if (rc < 0)
        return rc;
    if (!whole(cJSON_GetObjectItemCaseSensitive(j, "bytes"), &ret->bytes))
        return err_field(err, E_CHECKPOINT, CHECKPOINT_TORN,
                         "%.100s: bytes is no whole number from 0 to 2^53", name);
    if (!hex64(sha))
        return err_field(err, E_CHECKPOINT, CHECKPOINT_TORN,
                         "%.100s: sha256 is not 64 lower-case hex digits", name);
    ret->name = arena_strdup(a, name);
    str_copy(ret->sha256, sizeof ret->sha256, sha);
    return 0;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct checkpoint_file *)a)->name,
                  ((const struct checkpoint_file *)b)->name);
}

/* No name twice, and none that is the folder of another: neither could be sealed. */
static int names_distinct(const struct checkpoint_manifest *m, struct err *err)
{
    for (size_t i = 0; i + 1 < m->n_files; i++) {
        const char *one = m->files[i].name;
        size_t n = strlen(one);
        if (strcmp(one, m->files[i + 1].name) == 0)
            return err_field(err, E_CHECKPOINT, CHECKPOINT_TORN, "the file %.100s is named twice",
                             one);
        for (size_t k = i + 1; k < m->n_files && strncmp(m->files[k].name, one, n) == 0; k++)
            if (m->files[k].name[n] == '/')
                return err_field(err, E_CHECKPOINT, CHECKPOINT_TORN,
                                 "%.100s is both a file and a folder", one);
    }
    return 0;
}

static int manifest_read(const cJSON *j, struct arena *a, struct checkpoint_manifest *m,
                         struct err *err)
{
    static const char *const keys[] = {"step", "files", NULL};
    const cJSON *files = cJSON_GetObjectItemCaseSensitive(j, "files"), *f;
    int n = cJSON_GetArraySize(files);
    int rc = only_keys(j, keys, "the manifest", err);

    if (rc < 0)
        return rc;
    if (!whole(cJSON_GetObjectItemCaseSensitive(j, "step"), &m->step))
        return err_field(err, E_CHECKPOINT, CHECKPOINT_TORN,
                         "step is no whole number from 0 to 2^53");
    if (!cJSON_IsArray(files) || n < 1 || n > CHECKPOINT_FILES_MAX)
        return err_field(err, E_CHECKPOINT, CHECKPOINT_TORN, "files is no list of 1 to %d files",
                         CHECKPOINT_FILES_MAX);
    m->files = arena_array(a, struct checkpoint_file, n);
    cJSON_ArrayForEach(f, files)
    {
        struct checkpoint_file *to = &m->files[m->n_files++];
        rc = file_parse(f, a, to, err);
        if (rc < 0)
            return rc;
        m->bytes += to->bytes;
        if (m->bytes > CHECKPOINT_NUMBER_MAX)
            return err_field(err, E_CHECKPOINT, CHECKPOINT_TORN,
                             "its files are larger than 2^53 bytes");
    }
    qsort(m->files, m->n_files, sizeof *m->files, by_name);
    return names_distinct(m, err);
}

int checkpoint_manifest_parse(const char *text, size_t n, struct arena *a,
                              struct checkpoint_manifest *ret, struct err *err)
{
    struct checkpoint_manifest m = {0};
    cJSON *j = NULL;
    struct err why;
    int rc = sealfs_digest(text, n, m.digest, err);

    if (rc < 0)
        return rc;
    if (n > CHECKPOINT_MANIFEST_MAX || json_parse(text, n, &j, &why) < 0)
        return err_field(err, E_CHECKPOINT, CHECKPOINT_TORN, "%s is not whole: %.300s",
                         CHECKPOINT_MANIFEST_FILE,
                         n > CHECKPOINT_MANIFEST_MAX ? "it is too large" : why.text);
    rc = cJSON_IsObject(j) ? manifest_read(j, a, &m, err)
                           : err_field(err, E_CHECKPOINT, CHECKPOINT_TORN,
                                       "%s holds no JSON object", CHECKPOINT_MANIFEST_FILE);
    cJSON_Delete(j);
    if (rc == 0)
        *ret = m;
    return rc;
}

void checkpoint_manifest_print(const struct checkpoint_manifest *m, struct buf *out)
{
    cJSON *j = cJSON_CreateObject(), *files;

    cJSON_AddNumberToObject(j, "step", (double)m->step);
    files = cJSON_AddArrayToObject(j, "files");
    for (size_t i = 0; i < m->n_files; i++) {
        cJSON *f = cJSON_CreateObject();
        cJSON_AddStringToObject(f, "name", m->files[i].name);
        cJSON_AddNumberToObject(f, "bytes", (double)m->files[i].bytes);
        cJSON_AddStringToObject(f, "sha256", m->files[i].sha256);
        cJSON_AddItemToArray(files, f);
    }
    json_print_tree(j, out);
    buf_char(out, '\n');
    cJSON_Delete(j);
}

int manifest_load(int dir, struct arena *a, struct file_facts *ret_facts, struct buf *text,
                  struct checkpoint_manifest *ret, struct err *err)
{
    int fd;
    int rc = sealfs_open(dir, CHECKPOINT_MANIFEST_FILE, &fd, ret_facts, err);

    if (rc < 0)
        return rc;
    rc = sealfs_read(fd, CHECKPOINT_MANIFEST_MAX, text, err);
    sealfs_close(fd);
    if (rc == E_TOOLARGE)
        return err_field(err, E_CHECKPOINT, CHECKPOINT_TORN, "manifest.json is too large");
    return rc < 0 ? rc : checkpoint_manifest_parse(text->p, text->n, a, ret, err);
}

int64_t checkpoint_manifest_step(const char *folder)
{
    struct checkpoint_manifest m = {.step = -1};
    struct file_facts facts;
    struct err err;
    AUTO_ARENA a = arena_create(0);
    AUTO_BUF text;
    int dir;

    buf_init(&text, CHECKPOINT_MANIFEST_MAX + (128u << 10));
    if (sealfs_dir_open(folder, &dir, &err) < 0)
        return -1;
    int rc = manifest_load(dir, a, &facts, &text, &m, &err);
    sealfs_close(dir);
    return rc < 0 ? -1 : m.step;
}
