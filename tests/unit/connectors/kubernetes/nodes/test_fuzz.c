/* The fuzz target of nodes and pods, driven over mutated recorded nodes: bytes changed, values of
 * another type put in, members taken out. */
#define FUZZ_IN_TEST
#include "tests/fuzz/fuzz_kube.c"
#include "tests/support/unit.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

static uint64_t seed = 5;

static uint32_t rnd(uint32_t n)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (uint32_t)(seed >> 13) % n;
}

static void bytes_changed(const char *text, size_t n)
{
    static const unsigned char odd[] = {0, 1, 0x7f, 0x80, 0xff, '{', '}', '"', ',', '-', '.', '9'};

    for (int i = 0; i < 300; i++) {
        uint8_t *copy = mem_alloc(n);

        memcpy(copy, text, n);
        for (uint32_t m = 1 + rnd(4); m > 0; m--)
            copy[rnd((uint32_t)n)] = rnd(2) ? odd[rnd(sizeof odd)] : (uint8_t)rnd(256);
        (void)fuzz_kube(copy, n);
        mem_free(copy);
    }
}

/* One of all values below o, counted through; NULL: it has not as many. */
static cJSON *value_at(cJSON *o, uint32_t *left)
{
    for (cJSON *c = o->child; c; c = c->next) {
        cJSON *found;

        if ((*left)-- == 0)
            return c;
        if ((found = value_at(c, left)))
            return found;
    }
    return NULL;
}

static void values_changed(const char *text)
{
    static const char *const other[] = {"null",   "true",  "[]",     "{}",          "\"\"",
                                        "-1",     "1e300", "\"9e9\"", "[[[[{}]]]]",  "\"\xc3\x28\"",
                                        "\"a=b\"", "0.5",   "\"-\"",  "\"1Ei\"",     "[1,2]"};

    for (int i = 0; i < 300; i++) {
        cJSON *doc = cJSON_Parse(text);
        uint32_t left = rnd(60);
        cJSON *at = value_at(doc, &left);
        AUTO_BUF b;

        if (at) {
            cJSON *now = cJSON_Parse(other[rnd(sizeof other / sizeof *other)]);
            assert_non_null(now);
            at->type = (at->type & cJSON_StringIsConst) | (now->type & 0xff);
            if (at->child)
                cJSON_Delete(at->child);
            at->child = now->child;
            now->child = NULL;
            if (at->valuestring)
                cJSON_free(at->valuestring);
            at->valuestring = now->valuestring;
            now->valuestring = NULL;
            at->valuedouble = now->valuedouble;
            at->valueint = now->valueint;
            cJSON_Delete(now);
        }
        buf_init(&b, 1 << 20);
        json_print_tree(doc, &b);
        (void)fuzz_kube((const uint8_t *)b.p, b.n);
        cJSON_Delete(doc);
    }
}

static void recorded_nodes(void **state)
{
    static char text[32768];
    DIR *d = opendir("tests/golden/kube_nodes");
    struct dirent *e;
    int many = 0;

    (void)state;
    assert_non_null(d);
    while ((e = readdir(d))) {
        char path[512];
        size_t n;

        if (!strstr(e->d_name, ".json"))
            continue;
        (void)snprintf(path, sizeof path, "tests/golden/kube_nodes/%s", e->d_name);
        FILE *f = fopen(path, "r");
        assert_non_null(f);
        n = fread(text, 1, sizeof text - 1, f);
        (void)fclose(f);
        text[n] = '\0';
        assert_int_equal(fuzz_kube((const uint8_t *)text, n), 0);
        bytes_changed(text, n);
        values_changed(text);
        many++;
    }
    (void)closedir(d);
    assert_true(many > 20);
}

static void pods(void **state)
{
    static const char pod[] =
        "{\"spec\":{\"nodeName\":\"n1\",\"containers\":[{\"name\":\"a\",\"resources\":{"
        "\"requests\":{\"cpu\":\"1\",\"memory\":\"1Gi\",\"nvidia.com/gpu\":\"1\"}}}],"
        "\"initContainers\":[{\"restartPolicy\":\"Always\",\"resources\":{\"requests\":{"
        "\"cpu\":\"2\"}}},{\"resources\":{\"requests\":{\"memory\":\"2Gi\"}}}],\"overhead\":{"
        "\"cpu\":\"250m\"},\"resources\":{\"requests\":{\"cpu\":\"3\"}}},\"status\":{"
        "\"containerStatuses\":[{\"name\":\"a\",\"allocatedResources\":{\"cpu\":\"2\"}}]}}";

    (void)state;
    for (int i = 0; i < 20; i++) {
        bytes_changed(pod, sizeof pod - 1);
        values_changed(pod);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(recorded_nodes),
        cmocka_unit_test(pods),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
