/* What a backup says of itself, in JSON. Numbers that may be large are texts. */
#include "controlplane/backup/backup.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void put(cJSON *j, const char *key, uint64_t v)
{
    char text[24];

    (void)snprintf(text, sizeof text, "%llu", (unsigned long long)v);
    (void)cJSON_AddStringToObject(j, key, text);
}

void backup_about_print(const struct backup_about *a, struct buf *out)
{
    cJSON *j = cJSON_CreateObject();
    char at[32];

    time_print(a->time_ms, at);
    (void)cJSON_AddStringToObject(j, "kind", "Backup");
    (void)cJSON_AddStringToObject(j, "cluster", a->cluster);
    (void)cJSON_AddStringToObject(j, "time", at);
    put(j, "resourceVersion", a->rv);
    put(j, "knownResourceVersion", a->known);
    put(j, "entry", a->number);
    put(j, "objects", a->objects);
    (void)cJSON_AddStringToObject(j, "digest", a->digest);
    (void)cJSON_AddNumberToObject(j, "featureLevel", a->feature_level);
    (void)cJSON_AddStringToObject(j, "version", a->version);
    put(j, "archiveSegments", a->segments);
    put(j, "archiveAbsent", a->absent);
    char *text = cJSON_PrintUnformatted(j);
    buf_str(out, text);
    cJSON_free(text);
    cJSON_Delete(j);
}

static bool text_take(const cJSON *j, const char *key, char *ret, size_t n)
{
    const char *v = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(j, key));

    return v && snprintf(ret, n, "%s", v) < (int)n;
}

static bool number_take(const cJSON *j, const char *key, uint64_t *ret)
{
    const char *v = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(j, key));
    char *end;

    if (!v || *v < '0' || *v > '9')
        return false;
    *ret = strtoull(v, &end, 10);
    return !*end;
}

int backup_about_read(struct slice json, struct backup_about *ret, struct err *err)
{
    struct backup_about a = {0};
    char at[40] = "", kind[16] = "";
    cJSON *j = NULL;

    if (json_parse(json.p, json.n, &j, NULL))
        j = NULL;
    const cJSON *level = cJSON_GetObjectItemCaseSensitive(j, "featureLevel");
    bool good = text_take(j, "kind", kind, sizeof kind) && !strcmp(kind, "Backup") &&
                text_take(j, "cluster", a.cluster, sizeof a.cluster) && *a.cluster &&
                text_take(j, "time", at, sizeof at) && !time_parse(at, &a.time_ms, NULL) &&
                text_take(j, "digest", a.digest, sizeof a.digest) &&
                text_take(j, "version", a.version, sizeof a.version) &&
                number_take(j, "resourceVersion", &a.rv) && number_take(j, "entry", &a.number) &&
                number_take(j, "objects", &a.objects) &&
                number_take(j, "archiveSegments", &a.segments) &&
                number_take(j, "archiveAbsent", &a.absent) && cJSON_IsNumber(level) &&
                level->valuedouble >= 0 && level->valuedouble < 1e6;
    if (good)
        a.feature_level = (uint32_t)level->valuedouble;
    if (!number_take(j, "knownResourceVersion", &a.known) || a.known > a.rv)
        a.known = 0;
    cJSON_Delete(j);
    if (!good)
        return err_set(err, E_CORRUPT,
                       "it is no backup, or was changed: what it says of itself cannot be");
    *ret = a;
    return 0;
}
