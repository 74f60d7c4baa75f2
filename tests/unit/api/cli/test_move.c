/* What the CLI prints of moves and checkpoints. Golden texts; and the flags of submit that become
 * the checkpoint contract. */
#include "api/cli/cli_internal.h"
#include "tests/support/unit.h"

#include <unistd.h>

static cJSON *parse(const char *text)
{
    cJSON *j = NULL;
    struct err e = {0};

    if (json_parse(text, strlen(text), &j, &e))
        fail_msg("%s", e.text);
    return j;
}

static void line_is(const char *status, const char *text)
{
    AUTO_ARENA mem = arena_create(0);
    AUTO_BUF b = {0}, doc = {0};

    buf_init(&b, 65536);
    buf_init(&doc, 65536);
    buf_printf(&doc, "{\"spec\":{\"workload\":\"train\"},\"status\":{%s}}", status);
    cJSON *m = parse(doc.p);
    move_line(m, mem, &b);
    assert_string_equal(b.n ? b.p : "", text);
    cJSON_Delete(m);
}

static void each_phase_has_a_sentence(void **state)
{
    (void)state;
    line_is("", "asked for");
    line_is("\"phase\":\"Pending\"", "asked for");
    line_is("\"phase\":\"Reserving\"", "waits for room");
    line_is("\"phase\":\"Reserving\",\"reason\":\"GpusInUse\",\"message\":\"0 of 8 are free\"",
            "GpusInUse: 0 of 8 are free");
    line_is("\"phase\":\"Quiescing\",\"to\":\"par\",\"message\":\"drained\"", "par is held for it");
    line_is("\"phase\":\"Quiescing\"", "no destination: it goes back to its queue");
    line_is("\"phase\":\"Verifying\",\"to\":\"par\"",
            "told to save and stop; what it saves is verified");
    line_is("\"phase\":\"Staging\",\"to\":\"par\",\"step\":400",
            "par reads step 400 and checks its digests");
    line_is("\"phase\":\"Fencing\",\"fromEpoch\":1", "until epoch 1 is proved ended");
    line_is("\"phase\":\"Starting\",\"fromEpoch\":1,\"toEpoch\":2,\"to\":\"par\"",
            "epoch 1 is proved ended; epoch 2 starts on par");
    line_is(
        "\"phase\":\"Succeeded\",\"from\":\"fra\",\"to\":\"par\",\"fromEpoch\":1,"
        "\"toEpoch\":2,\"checkpoint\":\"train-e1-s400\",\"step\":400,\"pause\":\"1.2s\","
        "\"lostGpuSeconds\":12.4",
        "fra epoch 1 \u2192 par epoch 2, from step 400, paused 1.2s, 12 GPU-seconds to do again");
    line_is("\"phase\":\"Succeeded\",\"from\":\"fra\",\"fromEpoch\":1",
            "fra epoch 1 ended; it waits in its queue with its place");
    line_is("\"phase\":\"Failed\",\"reason\":\"CheckpointAltered\",\"message\":\"state.bin\"",
            "CheckpointAltered: state.bin");
}

/* Between the logs of epochs 1 and 2. */
static void joined_is(const char *moves, const char *status, const char *text)
{
    AUTO_BUF b = {0}, doc = {0};

    buf_init(&b, 65536);
    buf_init(&doc, 65536);
    buf_printf(&doc, "{\"metadata\":{\"uid\":\"u\"},\"status\":{%s}}", status);
    cJSON *w = parse(doc.p), *m = moves ? parse(moves) : NULL;
    buf_str(&b, "amid a line\n");
    epoch_line(w, m, 1, 2, &b);
    cJSON_Delete(w);
    cJSON_Delete(m);
    assert_true(!strncmp(b.p, "amid a line\n", 12));
    assert_string_equal(b.p + 12, text);
}

static void logs_of_two_epochs_are_joined_by_a_line(void **state)
{
    (void)state;
    static const char moves[] =
        "{\"items\":[{\"metadata\":{\"name\":\"other\"},\"spec\":{\"cause\":\"asked\"},"
        "\"status\":{\"workloadUid\":\"v\",\"toEpoch\":2}},"
        "{\"metadata\":{\"name\":\"train-move\"},\"spec\":{\"cause\":\"drain\"},"
        "\"status\":{\"workloadUid\":\"u\",\"toEpoch\":2}}]}";
    static const char moved[] =
        "\"phaseSince\":\"2026-11-28T08:00:00Z\",\"placement\":{\"target\":\"right\"},\"ends\":"
        "[{\"epoch\":1,\"target\":\"left\",\"reason\":\"Lost\",\"message\":\"no\\nlease\"}]";

    joined_is(moves, moved,
              "--- epoch 2 on right since 2026-11-28T08:00:00Z: moved: drain (train-move)\n");
    joined_is(NULL, moved,
              "--- epoch 2 on right since 2026-11-28T08:00:00Z: moved: Lost: no lease\n");
    joined_is("{}", "\"ends\":[{\"epoch\":1,\"target\":\"left\",\"message\":\"exit status 3\"},"
              "{\"epoch\":2,\"target\":\"left\",\"at\":\"2026-11-28T08:00:00Z\"}]",
              "--- epoch 2 on left until 2026-11-28T08:00:00Z: started again: exit status 3\n");
    joined_is(NULL, "\"placement\":{\"target\":\"left\"}", "--- epoch 2 on left: started again\n");
}

static void a_failed_move_tells_every_step_and_its_way_back(void **state)
{
    AUTO_ARENA mem = arena_create(0);
    AUTO_BUF b = {0};
    cJSON *m = parse(
        "{\"spec\":{\"workload\":\"train\",\"cause\":\"drain\"},\"status\":{\"phase\":\"Failed\","
        "\"from\":\"fra\",\"to\":\"par\",\"fromEpoch\":1,\"toEpoch\":2,\"reason\":\"TargetLost\","
        "\"message\":\"par fell silent\",\"lostGpuSeconds\":3.25,\"cost\":0.5,"
        "\"startedAt\":\"2026-11-21T05:00:00Z\",\"endedAt\":\"2026-11-21T05:00:04.200Z\","
        "\"phases\":[{\"phase\":\"Quiescing\",\"at\":\"2026-11-21T05:00:00Z\"},"
        "{\"phase\":\"Staging\",\"at\":\"2026-11-21T05:00:01.300Z\"},"
        "{\"phase\":\"Failed\",\"at\":\"2026-11-21T05:00:04.200Z\"}]}}");

    (void)state;
    buf_init(&b, 65536);
    move_render(m, mem, &b);
    assert_string_equal(
        b.p, "Workload:       train\n"
             "Cause:          drain\n"
             "Phase:          Failed, after 4.2s\n"
             "What:           TargetLost: par fell silent\n"
             "From:           fra, epoch 1\n"
             "To:             par, epoch 2\n"
             "Lost work:      3.2 GPU-seconds\n"
             "Cost:           $0.5000\n"
             "Way back:       the destination was let go; the program had been told to stop: the "
             "workload is placed anew once its end is proved, from its newest verified checkpoint\n"
             "\n"
             "STEP       SINCE                     AFTER\n"
             "Quiescing  2026-11-21T05:00:00Z      0.0s\n"
             "Staging    2026-11-21T05:00:01.300Z  1.3s\n"
             "Failed     2026-11-21T05:00:04.200Z  4.2s\n"
             "\n");
    cJSON_Delete(m);
}

static void a_workload_tells_what_it_resumes_from(void **state)
{
    AUTO_ARENA mem = arena_create(0);
    AUTO_BUF b = {0};
    cJSON *w = parse(
        "{\"spec\":{\"checkpoint\":{}},\"status\":{\"resumedFrom\":\"t-e1-s20\",\"resumedStep\":20,"
        "\"migration\":\"m2\",\"nominated\":{\"target\":\"fra\",\"domain\":\"eu/fra1\"},"
        "\"checkpoint\":{\"name\":\"t-e1-s20\",\"interval\":\"90s\"}}}");
    cJSON *checkpoints = parse(
        "[{\"metadata\":{\"name\":\"t-e1-s20\",\"creationTimestamp\":\"2026-11-21T05:00:00Z\"},"
        "\"spec\":{\"epoch\":1,\"step\":20,\"bytes\":\"19360\"},"
        "\"status\":{\"verifiedAt\":\"2026-11-21T05:00:00Z\"}},"
        "{\"metadata\":{\"name\":\"t-e2-s30\",\"creationTimestamp\":\"2026-11-21T05:00:09Z\"},"
        "\"spec\":{\"epoch\":2,\"step\":30,\"bytes\":\"19360\"},\"status\":{\"verifiedAt\":"
        "\"2026-11-21T05:00:09Z\",\"reason\":\"CheckpointTorn\",\"message\":\"state is short\"}}]");
    cJSON *moves =
        parse("[{\"metadata\":{\"name\":\"m1\",\"creationTimestamp\":\"2026-11-21T05:00:01Z\"},"
              "\"spec\":{\"cause\":\"asked\"},\"status\":{\"phase\":\"Succeeded\",\"from\":\"fra\","
              "\"to\":\"par\",\"fromEpoch\":1,\"toEpoch\":2}},"
              "{\"metadata\":{\"name\":\"m2\",\"creationTimestamp\":\"2026-11-21T05:00:20Z\"},"
              "\"spec\":{\"cause\":\"drain\"},\"status\":{\"phase\":\"Reserving\"}}]");
    int64_t now;

    (void)state;
    buf_init(&b, 65536);
    assert_int_equal(time_parse("2026-11-21T05:00:30Z", &now, NULL), 0);
    workload_moves_render(w, checkpoints, moves, now, mem, &b);
    assert_string_equal(b.p,
                        "Resumed from:   t-e1-s20, step 20\n"
                        "Moving by:      m2\n"
                        "Room is made:   on fra, eu/fra1\n"
                        "Save every:     90s (advice from its write time and the hazard)\n"
                        "\n"
                        "CHECKPOINT  EPOCH  STEP  BYTES  AGE  VERIFIED        \n"
                        "t-e2-s30    2      30    19360  21s  CheckpointTorn  state is short\n"
                        "t-e1-s20    1      20    19360  30s  yes             resumes from here\n"
                        "\n"
                        "MOVE  CAUSE  PHASE      AGE  WHAT\n"
                        "m2    drain  Reserving  10s  waits for room\n"
                        "m1    asked  Succeeded  29s  fra epoch 1 \u2192 par epoch 2\n"
                        "\n");
    cJSON_Delete(w);
    cJSON_Delete(checkpoints);
    cJSON_Delete(moves);
}

/* A command line of submit with --dry-run; its exit status, and what it printed. */
static int submit_prints(const char *words, char *out, size_t size)
{
    char line[1024], *argv[32];
    int argc = 0, fds[2], saved = dup(STDOUT_FILENO);

    (void)snprintf(line, sizeof line, "submit --dry-run %s -- /bin/true", words);
    for (char *save = NULL, *w = strtok_r(line, " ", &save); w; w = strtok_r(NULL, " ", &save))
        argv[argc++] = w;
    assert_int_equal(pipe(fds), 0);
    assert_true(dup2(fds[1], STDOUT_FILENO) >= 0);
    int status = cli_main(argc, argv);
    (void)fflush(stdout);
    assert_true(dup2(saved, STDOUT_FILENO) >= 0);
    (void)close(saved);
    (void)close(fds[1]);
    ssize_t n = read(fds[0], out, size - 1);
    out[n > 0 ? n : 0] = 0;
    (void)close(fds[0]);
    return status;
}

static void flags_become_the_checkpoint_contract(void **state)
{
    char out[8192];

    (void)state;
    assert_int_equal(
        submit_prints("--checkpoint-store /srv/c --checkpoint-interval 10m --grace 90s "
                      "--keep 4 --required --priority batch --partition "
                      "replaceAfter=2m",
                      out, sizeof out),
        0);
    static const char *const lines[] = {
        "store: /srv/c",  "interval: \"10m\"",    "grace: \"90s\"",          "keep: 4",
        "required: true", "replaceAfter: \"2m\"", "priorityClassName: batch"};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        if (!strstr(out, lines[i]))
            fail_msg("no \"%s\" in\n%s", lines[i], out);
    assert_int_equal(submit_prints("--partition wait", out, sizeof out), 0);
    assert_non_null(strstr(out, "partition: wait"));
    assert_int_equal(submit_prints("--partition sometimes", out, sizeof out), 2);
    assert_int_equal(submit_prints("--partition replaceAfter=soon", out, sizeof out), 2);
    assert_int_equal(submit_prints("--keep 0", out, sizeof out), 2);
}

/* What it shows is what would be sent. */
static void a_dry_run_names_and_checks(void **state)
{
    char out[8192];

    (void)state;
    assert_int_equal(submit_prints("--name resnet", out, sizeof out), 0);
    assert_non_null(strstr(out, "name: resnet"));
    assert_int_equal(submit_prints("--name resnet --checkpoint-store /a/../b", out, sizeof out), 2);
    assert_null(strstr(out, "store"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_phase_has_a_sentence),
        cmocka_unit_test(logs_of_two_epochs_are_joined_by_a_line),
        cmocka_unit_test(a_failed_move_tells_every_step_and_its_way_back),
        cmocka_unit_test(a_workload_tells_what_it_resumes_from),
        cmocka_unit_test(flags_become_the_checkpoint_contract),
        cmocka_unit_test(a_dry_run_names_and_checks)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
