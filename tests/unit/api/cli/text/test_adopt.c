/* `hanse adopt --shadow`: what a ShadowReport looks like to people. Golden texts. */
#include "api/cli/cli_internal.h"
#include "tests/support/unit.h"

#define NOW 1764547200000 /* 2025-12-01T00:00:00Z */

static const char report[] =
    "{\"kind\":\"ShadowReport\",\"target\":\"k8s\",\"namespace\":\"\",\"observeOnly\":true,"
    "\"jobs\":["
    "{\"kind\":\"Job\",\"namespace\":\"vision\",\"name\":\"train\",\"state\":\"Running\",\"since\":"
    "\"2025-11-30T23:30:00Z\",\"workers\":2,\"gpusAsked\":8,\"pods\":2,\"gpus\":8,\"class\":"
    "\"h100\","
    "\"nodes\":[{\"name\":\"n1\",\"gpus\":4},{\"name\":\"n2\",\"gpus\":4}],\"moreNodes\":3,"
    "\"costPerHour\":20,\"currency\":\"EUR\",\"adoptable\":true,\"hanse\":{\"namespace\":"
    "\"vision\","
    "\"outcome\":\"Placed\",\"queue\":\"research\",\"policy\":\"first\",\"reason\":\"Placed\","
    "\"message\":\"m\",\"target\":\"east\",\"class\":\"a100\",\"gpus\":8,\"nodes\":[{\"name\":"
    "\"e1\","
    "\"gpus\":8}],\"costPerHour\":8,\"currency\":\"EUR\"},\"warnings\":[{\"field\":"
    "\"spec.template.spec.nodeSelector\",\"message\":\"kept\"}]},"
    "{\"kind\":\"Job\",\"namespace\":\"vision\",\"name\":\"wide\",\"state\":\"Waiting\","
    "\"created\":"
    "\"2025-11-30T22:00:00Z\",\"workers\":1,\"gpusAsked\":1,\"pods\":0,\"gpus\":0,\"class\":\"\","
    "\"nodes\":[],\"adoptable\":true,\"hanse\":{\"outcome\":\"Pending\",\"queue\":\"\",\"policy\":"
    "\"\","
    "\"reason\":\"NoRoom\",\"message\":\"m\"},\"warnings\":[{\"field\":"
    "\"spec.template.spec.nodeSelector\",\"message\":\"kept\"}]},"
    "{\"kind\":\"Job\",\"namespace\":\"vision\",\"name\":\"net\",\"state\":\"Running\",\"pods\":1,"
    "\"gpus\":1,\"adoptable\":false,\"why\":\"it shares its node's network\",\"warnings\":[]}],"
    "\"omittedJobs\":2,\"others\":[{\"kind\":\"ReplicaSet\",\"namespace\":\"web\",\"name\":"
    "\"serve\","
    "\"since\":\"2025-11-30T23:59:00Z\",\"pods\":3,\"gpus\":1.5,\"reason\":\"Controller\",\"why\":"
    "\"it makes it again\"}],\"omittedOthers\":1,\"totals\":{\"jobs\":5,\"adoptable\":{\"jobs\":4,"
    "\"gpus\":9},\"notAdoptable\":{\"jobs\":1,\"gpus\":1},\"here\":{\"jobs\":0,\"gpus\":0},"
    "\"elsewhere\":{\"jobs\":1,\"gpus\":8},\"waiting\":{\"jobs\":3,\"gpus\":1},\"others\":[{"
    "\"reason\":\"Controller\",\"pods\":3,\"gpus\":1.5}],\"podsWithoutGpus\":40,\"cost\":{\"jobs\":"
    "1,"
    "\"notCompared\":2,\"now\":20,\"hanse\":8,\"currency\":\"EUR\"}},\"lacks\":\"10 Jobs beyond\"}";

static const char empty[] =
    "{\"kind\":\"ShadowReport\",\"target\":\"k8s\",\"namespace\":\"dev\",\"observeOnly\":false,"
    "\"jobs\":[],\"omittedJobs\":0,\"others\":[],\"omittedOthers\":0,\"totals\":{\"jobs\":0,"
    "\"others\":[],\"podsWithoutGpus\":0,\"cost\":{\"jobs\":0,\"notCompared\":0}},\"lacks\":\"\"}";

static void rendered(const char *text, bool wide, const char *expected)
{
    AUTO_ARENA mem = arena_create(0);
    AUTO_BUF b = {0};
    cJSON *j = NULL;

    assert_int_equal(json_parse(text, strlen(text), &j, NULL), 0);
    buf_init(&b, 65536);
    adopt_render(j, wide, NOW, mem, &b);
    assert_string_equal(b.p, expected);
    cJSON_Delete(j);
}

static void test_report(void **state)
{
    (void)state;
    rendered(report, false,
             "NAMESPACE  JOB    STATE    AGE  GPUS  CLASS  COST/H  HANSE          "
             "ITS-CLASS  ITS-COST/H  ITS-QUEUE  NOTES\n"
             "vision     train  Running  30m     8  h100    20.00  east           a100     "
             "        8.00  research       1\n"
             "vision     wide   Waiting  2h    (1)  –           –  waits: NoRoom  –        "
             "           –  none           1\n"
             "\n"
             "Not kept as it is:\n"
             "  vision/train and 1 more: spec.template.spec.nodeSelector: kept\n"
             "\n"
             "Cannot be handed over:\n"
             "NAMESPACE  WHAT              PODS  GPUS  AGE  WHY\n"
             "vision     Job/net              1     1  –    it shares its node's network\n"
             "web        ReplicaSet/serve     3   1.5  60s  it makes it again\n"
             "\n"
             "Could be handed over: 4 Jobs with 9 GPUs; Hanse would run 0 Jobs with 0 GPUs "
             "on k8s and 1 Job with 8 GPUs elsewhere, and 3 Jobs with 1 GPU would wait\n"
             "Cost: 20.00 EUR an hour where they are, 8.00 where Hanse would have put them "
             "(1 Job of which both prices are known)\n"
             "Not compared: 2 Jobs, a price is not known, or in another currency\n"
             "Could not: 1 Job with 1 GPU\n"
             "Pods of controllers: 3 with 1.5 GPUs\n"
             "Pods without GPUs that no such Job has made: 40, not listed\n"
             "Not shown: 3 further rows (--limit), they are in the sums\n"
             "Missing: 10 Jobs beyond\n"
             "Target k8s is observeOnly: nothing is placed there; this is how it would be "
             "without that\n"
             "Nothing was changed: neither there nor here.\n");
}

static void test_wide(void **state)
{
    (void)state;
    rendered(report, true,
             "NAMESPACE  JOB    STATE    AGE  GPUS  CLASS  COST/H  HANSE          "
             "ITS-CLASS  ITS-COST/H  ITS-QUEUE  NOTES  NODES                 ITS-NODES  "
             "ITS-POLICY\n"
             "vision     train  Running  30m     8  h100    20.00  east           a100     "
             "        8.00  research       1  n1:4,n2:4 and 3 more  e1:8       first\n"
             "vision     wide   Waiting  2h    (1)  –           –  waits: NoRoom  –        "
             "           –  none           1  –                     –          –\n"
             "\n"
             "Not kept as it is:\n"
             "  vision/train and 1 more: spec.template.spec.nodeSelector: kept\n"
             "\n"
             "Cannot be handed over:\n"
             "NAMESPACE  WHAT              PODS  GPUS  AGE  WHY\n"
             "vision     Job/net              1     1  –    it shares its node's network\n"
             "web        ReplicaSet/serve     3   1.5  60s  it makes it again\n"
             "\n"
             "Could be handed over: 4 Jobs with 9 GPUs; Hanse would run 0 Jobs with 0 GPUs "
             "on k8s and 1 Job with 8 GPUs elsewhere, and 3 Jobs with 1 GPU would wait\n"
             "Cost: 20.00 EUR an hour where they are, 8.00 where Hanse would have put them "
             "(1 Job of which both prices are known)\n"
             "Not compared: 2 Jobs, a price is not known, or in another currency\n"
             "Could not: 1 Job with 1 GPU\n"
             "Pods of controllers: 3 with 1.5 GPUs\n"
             "Pods without GPUs that no such Job has made: 40, not listed\n"
             "Not shown: 3 further rows (--limit), they are in the sums\n"
             "Missing: 10 Jobs beyond\n"
             "Target k8s is observeOnly: nothing is placed there; this is how it would be "
             "without that\n"
             "Nothing was changed: neither there nor here.\n");
}

static void test_nothing(void **state)
{
    (void)state;
    rendered(empty, false,
             "No Jobs of others on target k8s in namespace dev could be handed over.\n"
             "\n"
             "Nothing was changed: neither there nor here.\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_report),
        cmocka_unit_test(test_wide),
        cmocka_unit_test(test_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
