/* The parts of the S3 driver that need no server: signatures against the examples that AWS's own
 * documentation publishes, what is taken for an answer, and the environment. */
#include "connectors/checkpoint/store/s3.h"
#include "tests/support/unit.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* ---- signatures ---- */
#define EXAMPLE_SECRET "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"

static void signs(const char *method, const char *key, struct s3_pair *query, size_t n_query,
                  struct s3_pair *headers, size_t n_headers, const char *payload,
                  const char *signature)
{
    char path[128] = "", text[256] = "";
    struct s3_signing r = {.method = method,
                           .headers = headers,
                           .n_headers = n_headers,
                           .payload = payload,
                           .region = "us-east-1",
                           .key_id = "AKIAIOSFODNN7EXAMPLE",
                           .secret = EXAMPLE_SECRET,
                           .date = "20130524T000000Z"};
    struct err e;
    AUTO_BUF out;
    AUTO_BUF b;

    buf_init(&out, 4096);
    buf_init(&b, 4096);
    s3_encode(key, true, &b);
    str_copy(path, sizeof path, b.p);
    buf_reset(&b);
    buf_str(&b, "");
    s3_query_print(query, n_query, &b);
    str_copy(text, sizeof text, b.n ? b.p : "");
    r.path = path;
    r.query = text;
    assert_int_equal(s3_sign(&r, &out, &e), 0);
    assert_non_null(strstr(out.p, "Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/"));
    const char *at = strstr(out.p, "Signature=");
    assert_non_null(at);
    assert_string_equal(at + 10, signature);
    assert_null(strstr(out.p, EXAMPLE_SECRET));
}

static void signatures_are_those_of_the_documentation(void **state)
{
    struct s3_pair object[] = {{"x-amz-date", "20130524T000000Z"},
                               {"x-amz-content-sha256", S3_EMPTY_SHA256},
                               {"host", "examplebucket.s3.amazonaws.com"},
                               {"range", "bytes=0-9"}};
    const char *hello = "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072";
    struct s3_pair put[] = {{"host", "examplebucket.s3.amazonaws.com"},
                            {"date", "Fri, 24 May 2013 00:00:00 GMT"},
                            {"x-amz-storage-class", "REDUCED_REDUNDANCY"},
                            {"x-amz-date", "20130524T000000Z"},
                            {"x-amz-content-sha256", hello}};
    struct s3_pair plain[] = {{"host", "examplebucket.s3.amazonaws.com"},
                              {"x-amz-content-sha256", S3_EMPTY_SHA256},
                              {"x-amz-date", "20130524T000000Z"}};
    struct s3_pair lifecycle[] = {{"lifecycle", ""}}, list[] = {{"prefix", "J"}, {"max-keys", "2"}};

    (void)state;
    signs("GET", "/test.txt", NULL, 0, object, 4, S3_EMPTY_SHA256,
          "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
    signs("PUT", "/test$file.text", NULL, 0, put, 5, hello,
          "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd");
    signs("GET", "/", lifecycle, 1, plain, 3, S3_EMPTY_SHA256,
          "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543");
    signs("GET", "/", list, 2, plain, 3, S3_EMPTY_SHA256,
          "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7");
}

static void all_but_the_unreserved_is_encoded(void **state)
{
    AUTO_BUF b;

    (void)state;
    buf_init(&b, 4096);
    s3_encode("az AZ09-_.~/+%&=*'(\xc3\xa9)", true, &b);
    assert_string_equal(b.p, "az%20AZ09-_.~/%2B%25%26%3D%2A%27%28%C3%A9%29");
    buf_reset(&b);
    s3_encode("a/b", false, &b);
    assert_string_equal(b.p, "a%2Fb");
}

/* ---- XML ---- */
static struct slice text_of(const char *s)
{
    return slice_make(s, strlen(s));
}

static void what_is_no_answer_has_no_elements(void **state)
{
    static const char *const bad[] = {
        "",
        "<html><body><Error><Code>NoSuchKey</Code></Error></body></html>",
        "<Error><Code>NoSuchKey</Code>",
        "<!-- <Error><Code>x</Code></Error> -->",
        "NoSuchKey",
        "<Error",
        "<",
        "<?xml",
        "</Error>",
        "<Error/>"};
    struct slice in;
    char out[32];

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(s3_xml_root(text_of(bad[i]), "Error", &in) &&
                     s3_xml_text(in, "Code", out, sizeof out));
    assert_false(s3_xml_root(slice_make(NULL, 0), "Error", &in));
}

static void elements_are_found_and_decoded(void **state)
{
    const char *page = "<?xml version=\"1.0\"?>\n<!-- c --><s:List xmlns:s='x'><Key>top</Key>"
                       "<C a='1'><Key>a &amp; &lt;b&gt;&quot;&apos; &#233;&#x1F600;</Key></C>"
                       "<C><Key/></C><C><Key>&#0;</Key></C><C><Key>&nope;</Key></C></s:List>";
    struct slice in, one;
    char out[64];

    (void)state;
    assert_true(s3_xml_root(text_of(page), "List", &in));
    assert_true(s3_xml_text(in, "Key", out, sizeof out));
    assert_string_equal(out, "top");
    assert_true(s3_xml_next(&in, "C", &one) && s3_xml_text(one, "Key", out, sizeof out));
    assert_string_equal(out, "a & <b>\"' \xc3\xa9\xf0\x9f\x98\x80");
    assert_false(s3_xml_text(one, "Key", out, 5));
    assert_true(s3_xml_next(&in, "C", &one) && s3_xml_text(one, "Key", out, sizeof out));
    assert_string_equal(out, "");
    for (int i = 0; i < 2; i++)
        assert_true(s3_xml_next(&in, "C", &one) && !s3_xml_text(one, "Key", out, sizeof out));
    assert_false(s3_xml_next(&in, "C", &one));
}

/* ---- the environment ---- */
static int config(const char *base, const char *const *env, struct s3_config *c, struct err *e)
{
    struct checkpoint_store at = {.base = base, .env = env};

    memset(c, 0, sizeof *c);
    memset(e, 0, sizeof *e);
    return s3_config_read(&at, c, e);
}

#define KEYS "AWS_ACCESS_KEY_ID=id", "AWS_SECRET_ACCESS_KEY=hush"

static void where_requests_go(void **state)
{
    static const struct {
        const char *base, *env[5], *origin, *host, *root, *prefix;
    } t[] = {{"s3://bucket/a/b/",
              {KEYS, "AWS_REGION=eu-central-1"},
              "https://bucket.s3.eu-central-1.amazonaws.com",
              "bucket.s3.eu-central-1.amazonaws.com",
              "/",
              "a/b"},
             {"s3://buc.ket",
              {KEYS, "AWS_REGION=eu-central-1"},
              "https://s3.eu-central-1.amazonaws.com",
              "s3.eu-central-1.amazonaws.com",
              "/buc.ket/",
              ""},
             {"s3://bucket//x",
              {KEYS, "AWS_DEFAULT_REGION=cn-north-1"},
              "https://bucket.s3.cn-north-1.amazonaws.com.cn",
              "bucket.s3.cn-north-1.amazonaws.com.cn",
              "/",
              "x"},
             {"s3://bucket/x",
              {KEYS, "AWS_ENDPOINT_URL=http://minio:9000"},
              "http://minio:9000",
              "minio:9000",
              "/bucket/",
              "x"},
             {"s3://bucket/x",
              {KEYS, "AWS_ENDPOINT_URL=http://no", "AWS_ENDPOINT_URL_S3=https://h:443/base/"},
              "https://h:443",
              "h",
              "/base/bucket/",
              "x"}};
    struct s3_config c;
    struct err e;

    (void)state;
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        if (config(t[i].base, t[i].env, &c, &e) < 0)
            fail_msg("%s: %s", t[i].base, e.text);
        assert_string_equal(c.origin, t[i].origin);
        assert_string_equal(c.host, t[i].host);
        assert_string_equal(c.root, t[i].root);
        assert_string_equal(c.prefix, t[i].prefix);
    }
}

static void what_is_not_said_right_is_refused(void **state)
{
    static const struct {
        const char *base, *env[5], *says;
    } t[] = {{"s3://b/x", {KEYS, "AWS_REGION=r"}, "3 to 63"},
             {"s3://Bucket/x", {KEYS, "AWS_REGION=r"}, "a-z"},
             {"s3://bucket/x", {KEYS}, "AWS_REGION"},
             {"s3://bucket/x", {"AWS_ACCESS_KEY_ID=id", "AWS_REGION=r"}, "AWS_SECRET_ACCESS_KEY"},
             {"s3://bucket/x", {KEYS, "AWS_ENDPOINT_URL=ftp://x"}, "http://HOST"},
             {"s3://bucket/x", {KEYS, "AWS_ENDPOINT_URL=https://u:hush@x"}, "alone"},
             {"s3://bucket/x",
              {"AWS_SECRET_ACCESS_KEY=hush\nx: y", "AWS_ACCESS_KEY_ID=id", "AWS_REGION=r"},
              "control character"}};
    struct s3_config c;
    struct err e;

    (void)state;
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        assert_true(config(t[i].base, t[i].env, &c, &e) < 0);
        if (!strstr(e.text, t[i].says))
            fail_msg("\"%s\" does not say \"%s\"", e.text, t[i].says);
        assert_null(strstr(e.text, "hush"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(signatures_are_those_of_the_documentation),
                                       cmocka_unit_test(all_but_the_unreserved_is_encoded),
                                       cmocka_unit_test(what_is_no_answer_has_no_elements),
                                       cmocka_unit_test(elements_are_found_and_decoded),
                                       cmocka_unit_test(where_requests_go),
                                       cmocka_unit_test(what_is_not_said_right_is_refused)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
