/* What a pod proves: each state that real kubelets, schedulers and controllers were seen to leave
 * it in (tests/peers/lib/kubelet), and what must not be made of it. */
#include "connectors/kubernetes/runs/runs_internal.h"
#include "tests/support/unit.h"

#include <stdio.h>
#include <string.h>

#define META(more)                                                                                 \
    "\"metadata\":{\"labels\":{\"" KUBE_INDEX_LABEL "\":\"2\"},"                                   \
    "\"finalizers\":[\"a/b\",\"" KUBE_FINALIZER "\"]" more "}"
#define DELETING ",\"deletionTimestamp\":\"2026-11-28T02:00:00Z\""
#define NODE "\"nodeName\":\"n1\","
#define SPEC(more) "\"spec\":{" more "\"containers\":[{\"name\":\"main\"}]}"
#define STATUS(phase, more) "\"status\":{\"phase\":\"" phase "\"" more "}"
#define MAIN(state) ",\"containerStatuses\":[{\"name\":\"main\",\"state\":{" state "}}]"
#define INIT(state)                                                                                \
    ",\"initContainerStatuses\":[{\"name\":\"hanse-install\",\"state\":{" state "}}]"
#define RUNNING "\"running\":{\"startedAt\":\"2026-11-28T02:00:01Z\"}"
#define WAITING(reason, message)                                                                   \
    "\"waiting\":{\"reason\":\"" reason "\",\"message\":\"" message "\"}"
#define OVER(code, reason)                                                                         \
    "\"terminated\":{\"exitCode\":" #code ",\"reason\":\"" reason "\",\"message\":\"left\","       \
    "\"startedAt\":\"2026-11-28T02:00:01Z\",\"finishedAt\":\"2026-11-28T02:00:09Z\"}"
#define IS(type, status, reason)                                                                   \
    "{\"type\":\"" type "\",\"status\":\"" status "\",\"reason\":\"" reason                        \
    "\",\"message\":\"why\"}"
#define KUBELET_OVER CONDITIONS(IS("ContainersReady", "False", "PodFailed"))
#define CONDITIONS(list) ",\"conditions\":[" list "]"

static const struct {
    const char *name, *json;
    enum kube_pod_is is;
    int exit_code;
    const char *reason;
} rows[] = {
    {"our gate",
     META("") "," SPEC("\"schedulingGates\":[{\"name\":\"" KUBE_GATE "\"}],") "," STATUS(
         "Pending", CONDITIONS(IS("PodScheduled", "False", "SchedulingGated"))),
     POD_GATED, 0, "SchedulingGated"},
    {"a gate of somebody else",
     META("") "," SPEC("\"schedulingGates\":[{\"name\":\"a/b\"}],") "," STATUS("Pending", ""),
     POD_WAITS, 0, ""},
    {"no node has room",
     META("") "," SPEC("") "," STATUS("Pending",
                                      CONDITIONS(IS("PodScheduled", "False", "Unschedulable"))),
     POD_WAITS, 0, "Unschedulable"},
    {"deleted before it had a node", META(DELETING) "," SPEC("") "," STATUS("Pending", ""),
     POD_NEVER, 0, ""},
    {"deleted, its gate still there",
     META(DELETING) "," SPEC("\"schedulingGates\":[{\"name\":\"" KUBE_GATE
                             "\"}],") "," STATUS("Pending", ""),
     POD_NEVER, 0, ""},
    {"bound, and its kubelet has said nothing", META("") "," SPEC(NODE) "," STATUS("Pending", ""),
     POD_STARTS, 0, ""},
    {"bound, deleted, and its kubelet has said nothing",
     META(DELETING) "," SPEC(NODE) "," STATUS("Pending", ""), POD_STARTS, 0, ""},
    {"its image is pulled",
     META("") "," SPEC(NODE) "," STATUS("Pending", MAIN(WAITING("ContainerCreating", ""))),
     POD_STARTS, 0, ""},
    {"its image cannot be pulled",
     META("") "," SPEC(NODE) "," STATUS(
         "Pending", INIT(OVER(0, "Completed")) MAIN(WAITING("ImagePullBackOff", "no such"))),
     POD_STARTS, 0, "ImagePullBackOff"},
    {"the image of its runner cannot be pulled",
     META("") "," SPEC(NODE) "," STATUS("Pending", INIT(WAITING("ErrImagePull", "no"))
                                                       MAIN(WAITING("PodInitializing", ""))),
     POD_STARTS, 0, "ErrImagePull"},
    {"running",
     META("") "," SPEC(NODE) "," STATUS(
         "Running",
         MAIN(RUNNING) CONDITIONS(IS("Ready", "True", "") "," IS("ContainersReady", "True", ""))),
     POD_RUNS, 0, ""},
    {"running, and asked to end",
     META(DELETING) "," SPEC(NODE) "," STATUS("Running",
                                              MAIN(RUNNING) CONDITIONS(IS("Ready", "True", ""))),
     POD_RUNS, 0, ""},
    {"its node is silent",
     META("") "," SPEC(NODE) "," STATUS(
         "Running",
         MAIN(RUNNING) CONDITIONS(IS("Ready", "False", "") "," IS("ContainersReady", "True", ""))),
     POD_SILENT, 0, "NodeLost"},
    {"its node is silent, and it was evicted by the taint",
     META(DELETING) "," SPEC(NODE) "," STATUS(
         "Running", MAIN(RUNNING) CONDITIONS(
                        IS("Ready", "False", "") "," IS("ContainersReady", "True", "") "," IS(
                            "DisruptionTarget", "True", "DeletionByTaintManager"))),
     POD_SILENT, 0, "NodeLost"},
    {"deleted by force, and the kubelet has not said anything of it",
     META(DELETING ",\"deletionGracePeriodSeconds\":0") "," SPEC(NODE) "," STATUS("Running",
                                                                                  MAIN(RUNNING)),
     POD_RUNS, 0, ""},
    {"collected with its node, its containers as they were told last",
     META(DELETING) "," SPEC(NODE) "," STATUS(
         "Failed", MAIN(RUNNING) CONDITIONS(IS("DisruptionTarget", "True", "DeletionByPodGC"))),
     POD_LOST, 0, "DeletionByPodGC"},
    {"collected while it was starting",
     META(DELETING) "," SPEC(NODE) "," STATUS(
         "Failed", MAIN(WAITING("PodInitializing", ""))
                       CONDITIONS(IS("DisruptionTarget", "True", "DeletionByPodGC"))),
     POD_LOST, 0, "DeletionByPodGC"},
    {"collected before its kubelet said anything",
     META(DELETING) "," SPEC(NODE) "," STATUS(
         "Failed", CONDITIONS(IS("DisruptionTarget", "True", "DeletionByPodGC"))),
     POD_LOST, 0, "DeletionByPodGC"},
    {"collected, and its kubelet came back and told",
     META(DELETING) "," SPEC(NODE) "," STATUS(
         "Failed",
         MAIN(OVER(75, "Error")) CONDITIONS(IS("DisruptionTarget", "True", "DeletionByPodGC"))),
     POD_ENDED, 75, "RunnerKilled"},
    {"ended well", META("") "," SPEC(NODE) "," STATUS("Succeeded", MAIN(OVER(0, "Completed"))),
     POD_ENDED, 0, ""},
    {"ended, and its phase is not told yet",
     META("") "," SPEC(NODE) "," STATUS("Running", MAIN(OVER(3, "Error"))), POD_ENDED, 3, ""},
    {"ended, and may be begun again in its pod",
     META("") ",\"spec\":{" NODE "\"containers\":[{\"name\":\"main\",\"restartPolicyRules\":[]}]}"
              "," STATUS("Running", MAIN(OVER(3, "Error"))),
     POD_RUNS, 0, ""},
    {"out of memory", META("") "," SPEC(NODE) "," STATUS("Failed", MAIN(OVER(137, "OOMKilled"))),
     POD_ENDED, 137, "OutOfMemory"},
    {"killed after its grace",
     META(DELETING) "," SPEC(NODE) "," STATUS("Failed", MAIN(OVER(137, "Error"))), POD_ENDED, 137,
     ""},
    {"its node lost power, and is back",
     META("") "," SPEC(NODE) "," STATUS("Failed", MAIN(OVER(255, "Unknown"))), POD_ENDED, 255,
     "MachineRestarted"},
    {"its kubelet finds no such container",
     META("") "," SPEC(NODE) "," STATUS("Failed", MAIN(OVER(137, "ContainerStatusUnknown"))),
     POD_ENDED, 137, "RunnerKilled"},
    {"its program could not be started",
     META("") "," SPEC(NODE) "," STATUS("Failed", MAIN(OVER(128, "StartError"))), POD_ENDED, 128,
     "StartFailed"},
    {"past its activeDeadlineSeconds",
     META("") "," SPEC(NODE) "," STATUS("Failed",
                                        ",\"reason\":\"DeadlineExceeded\"" MAIN(OVER(85, "Error"))),
     POD_ENDED, 85, "DeadlineExceeded"},
    {"evicted by its kubelet",
     META("") "," SPEC(NODE) "," STATUS(
         "Failed",
         ",\"reason\":\"Evicted\",\"message\":\"low on memory\"" MAIN(OVER(137, "Error"))),
     POD_ENDED, 137, "RunnerKilled"},
    {"evicted, and its containers are not told yet",
     META("") "," SPEC(NODE) "," STATUS("Failed",
                                        ",\"reason\":\"Evicted\",\"message\":\"low on memory\""),
     POD_LOST, 0, ""},
    {"preempted",
     META(DELETING) "," SPEC(NODE) "," STATUS(
         "Failed", MAIN(OVER(143, "Error"))
                       CONDITIONS(IS("DisruptionTarget", "True", "PreemptionByScheduler"))),
     POD_ENDED, 143, "RunnerKilled"},
    {"preempted, and it ended well all the same",
     META(DELETING) "," SPEC(NODE) "," STATUS(
         "Succeeded", MAIN(OVER(0, "Completed"))
                          CONDITIONS(IS("DisruptionTarget", "True", "PreemptionByScheduler"))),
     POD_ENDED, 0, ""},
    {"turned away by its kubelet",
     META("") "," SPEC(NODE) "," STATUS("Failed", ",\"reason\":\"UnexpectedAdmissionError\","
                                                  "\"message\":\"Pod was rejected: x\""),
     POD_NEVER, 0, "TargetRefused"},
    {"called failed by nobody knows whom",
     META("") "," SPEC(NODE) "," STATUS("Failed", ",\"reason\":\"Odd\",\"message\":\"x\""),
     POD_LOST, 0, ""},
    {"its runner could not be installed",
     META("") "," SPEC(NODE) "," STATUS(
         "Failed", INIT(OVER(1, "Error")) MAIN(WAITING("PodInitializing", "")) KUBELET_OVER),
     POD_NEVER, 0, "TargetRefused"},
    {"deleted before its program was started",
     META(DELETING) "," SPEC(NODE) "," STATUS(
         "Failed", INIT(OVER(143, "Error")) MAIN(WAITING("PodInitializing", "")) KUBELET_OVER),
     POD_NEVER, 0, ""},
    {"called failed while it was starting, and nobody says by whom",
     META(DELETING) "," SPEC(NODE) "," STATUS(
         "Failed", MAIN(WAITING("PodInitializing", ""))
                       CONDITIONS(IS("ContainersReady", "False", "ContainersNotReady"))),
     POD_LOST, 0, ""},
    {"called failed, a container beside its program as it was told last",
     META(DELETING) "," SPEC(NODE) "," STATUS(
         "Failed",
         ",\"containerStatuses\":[{\"name\":\"main\",\"state\":{" OVER(
             0, "Completed") "}},{\"name\":\"mesh\",\"state\":{" WAITING("ContainerCreating",
                                                                         "") "}}]"),
     POD_LOST, 0, ""},
    {"its kubelet calls it over, and a container beside its program was never started",
     META(DELETING) "," SPEC(NODE) "," STATUS(
         "Failed",
         ",\"containerStatuses\":[{\"name\":\"main\",\"state\":{" OVER(
             3, "Error") "}},{\"name\":\"mesh\",\"state\":{" WAITING("ContainerCreating",
                                                                     "") "}}]" KUBELET_OVER),
     POD_ENDED, 3, ""},
    {"its program has ended, and a container beside it has not",
     META("") "," SPEC(NODE) "," STATUS(
         "Running", ",\"containerStatuses\":[{\"name\":\"main\",\"state\":{" OVER(
                        0, "Completed") "}},{\"name\":\"mesh\",\"state\":{" RUNNING "}}]"),
     POD_RUNS, 0, ""},
    {"nothing that can be read", META("") ",\"spec\":[],\"status\":7", POD_WAITS, 0, ""},
};

static cJSON *parsed(const char *text)
{
    char whole[4096];

    (void)snprintf(whole, sizeof whole, "{%s}", text);
    cJSON *o = cJSON_Parse(whole);
    assert_non_null(o);
    return o;
}

static void each_state_is_what_it_is(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        cJSON *o = parsed(rows[i].json);
        struct kube_pod_seen s;
        kube_pod_read(o, &s);
        if (s.is != rows[i].is || s.exit_code != rows[i].exit_code ||
            strcmp(s.reason, rows[i].reason) != 0)
            fail_msg("%s: %d, exit %d, \"%s\" (%s)", rows[i].name, s.is, s.exit_code, s.reason,
                     s.message);
        assert_int_equal(s.rank, 2);
        assert_true(s.held);
        cJSON_Delete(o);
    }
}

static const struct {
    const char *name, *word;
} words[] = {{"our gate", "SchedulingGated"},
             {"no node has room", "Unschedulable"},
             {"its image is pulled", "ContainerCreating"},
             {"its image cannot be pulled", "ImagePullBackOff"},
             {"the image of its runner cannot be pulled", "ErrImagePull"},
             {"running", ""},
             {"running, and asked to end", "Terminating"},
             {"its node is silent", "NodeLost"},
             {"collected with its node, its containers as they were told last", "DeletionByPodGC"},
             {"ended well", "Completed"},
             {"out of memory", "OOMKilled"},
             {"evicted by its kubelet", "Evicted"},
             {"preempted", "PreemptionByScheduler"},
             {"turned away by its kubelet", "UnexpectedAdmissionError"}};

/* People are told the cluster's own words, which tell these apart. */
static void each_state_has_its_word(void **state)
{
    unsigned n = 0;

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (size_t j = 0; j < sizeof words / sizeof *words; j++) {
            if (strcmp(rows[i].name, words[j].name) != 0)
                continue;
            cJSON *o = parsed(rows[i].json);
            struct kube_pod_seen s;
            kube_pod_read(o, &s);
            assert_string_equal(s.word, words[j].word);
            assert_string_equal(s.phase, kube_text(o, "status.phase"));
            cJSON_Delete(o);
            n++;
        }
    assert_int_equal(n, sizeof words / sizeof *words);
}

static void what_is_told_of_an_end(void **state)
{
    cJSON *o = parsed(META("") "," SPEC(NODE) "," STATUS("Failed", MAIN(OVER(3, "Error"))));
    struct kube_pod_seen s;

    (void)state;
    kube_pod_read(o, &s);
    assert_int_equal(s.ended_ms - s.started_ms, 8000);
    assert_string_equal(kube_pod_left(o), "left");
    cJSON_Delete(o);
}

static void a_rank_is_a_number(void **state)
{
    static const char *const bad[] = {"", "-1", "x", "1x", "99999999999999999999", "4096"};
    struct kube_pod_seen s;

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char text[200];
        (void)snprintf(text, sizeof text, "\"metadata\":{\"labels\":{\"%s\":\"%s\"}}",
                       KUBE_INDEX_LABEL, bad[i]);
        cJSON *o = parsed(text);
        kube_pod_read(o, &s);
        assert_int_equal(s.rank, -1);
        assert_false(s.held);
        cJSON_Delete(o);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_state_is_what_it_is), cmocka_unit_test(each_state_has_its_word),
        cmocka_unit_test(what_is_told_of_an_end), cmocka_unit_test(a_rank_is_a_number)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
