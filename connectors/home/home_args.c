/* `hanse run` of a runner without an agent: its options of home, of reports and of where it is.
 * What they say is in no environment and on no command line of its program. */
#include "connectors/home/home_runner.h"
#include "connectors/signals.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WAIT_MS 600000ull /* for a hub that takes it, before the program starts */
#define WAIT_MAX_MS (366ull * 24 * 3600 * 1000)

static const char *env_take(const char *name)
{
    const char *v = getenv(name);
    char *kept = v && *v ? mem_strdup(v) : NULL; /* as long as the process */

    if (v)
        (void)unsetenv(name);
    return kept;
}

/* Takes ours out of argv; the shim reads the rest. */
static int args_take(int *argc, char **argv, struct home_args *a, struct err *err)
{
    const struct {
        const char *name, *env;
        const char **value;
    } options[] = {{"--home", "HANSE_HOME", &a->home},
                   {"--home-ca", "HANSE_HOME_CA", &a->ca},
                   {"--token-file", "HANSE_TOKEN_FILE", &a->token},
                   {"--home-wait", "HANSE_HOME_WAIT", &a->wait},
                   {"--home-proxy", "HANSE_HOME_PROXY", &a->proxy_url},
                   {"--home-proxy-auth", "HANSE_HOME_PROXY_AUTH", &a->proxy_auth},
                   {"--save-signal", NULL, &a->save_signal},
                   {"--node", NULL, &a->node},
                   {"--devices", NULL, &a->devices},
                   {"--installed", NULL, &a->installed},
                   {"--report", "HANSE_REPORT_FILE", &a->report}};
    const size_t n_options = sizeof options / sizeof *options;
    bool agents = false, command = false;
    int n = 0;

    for (int i = 0; i < *argc; i++) {
        size_t k = command ? n_options : 0;
        command = command || strcmp(argv[i], "--") == 0;
        while (k < n_options && strcmp(argv[i], options[k].name) != 0)
            k++;
        if (k == n_options) {
            agents = agents || (!command &&
                                (strcmp(argv[i], "--dir") == 0 || strcmp(argv[i], "--enter") == 0 ||
                                 strcmp(argv[i], "--attach") == 0));
            argv[n++] = argv[i];
            continue;
        }
        if (++i == *argc)
            return err_set(err, E_USAGE, "%s needs a value", argv[i - 1]);
        *options[k].value = argv[i];
    }
    argv[n] = NULL;
    *argc = n;
    for (size_t k = 0; k < n_options && !agents; k++) {
        const char *v = options[k].env ? env_take(options[k].env) : NULL;
        if (!*options[k].value)
            *options[k].value = v;
    }
    if (agents && (a->home || a->report || a->node || a->devices || a->installed))
        return err_set(err, E_USAGE,
                       "--home, --report, --node and --devices are for runners without an agent");
    return 0;
}

static const char *key_path(const struct home_args *a, const char *name)
{
    char path[HOME_FOLDER_MAX];

    (void)snprintf(path, sizeof path, "%.900s/" HOME_INSTALLED_KEY "/%s", a->installed, name);
    return mem_strdup(path); /* as long as the process */
}

/* What hanse-run install has left stands for the options that would name it. */
static int installed_take(struct home_args *a, struct err *err)
{
    if (!a->installed)
        return 0;
    if (a->token || a->ca || a->proxy_auth)
        return err_set(err, E_USAGE,
                       "--installed brings --token-file, --home-ca and --home-proxy-auth: give "
                       "either");
    if (*a->installed != '/' || strlen(a->installed) > 900)
        return err_set(err, E_USAGE, "--installed %.100s: expected an absolute path",
                       a->installed);
    a->token = key_path(a, "token");
    if (a->home)
        a->ca = key_path(a, "ca");
    if (!a->home || !a->proxy_url)
        return 0;
    a->proxy_auth = key_path(a, "proxy");
    if (access(a->proxy_auth, F_OK) != 0)
        a->proxy_auth = NULL;
    return 0;
}

/* "0,1,5", as HANSE_GPUS has them; "" where there are none. */
static bool devices_valid(const char *s)
{
    while (*s) {
        size_t n = strspn(s, "0123456789");
        if (n < 1 || n > 4 || (s[n] && (s[n] != ',' || !s[n + 1])))
            return false;
        s += n + (s[n] == ',');
    }
    return true;
}

static int report_check(struct home_args *a, struct err *err)
{
    if (a->report && report_place_read(a->report, &a->place, err) < 0)
        return err->code;
    bool signs = a->report && report_place_signs(&a->place);
    if (signs && !a->token)
        return err_set(err, E_USAGE, "--report %.100s needs --token-file: it is signed by it",
                       a->report);
    if (a->token && !a->home && !signs)
        return err_set(err, E_USAGE,
                       "--token-file belongs to --home, or to a --report that is signed");
    return 0;
}

static int args_check(struct home_args *a, struct err *err)
{
    char *end = NULL;

    if (!a->home != !a->ca || (a->home && !a->token))
        return err_set(err, E_USAGE, "--home, --home-ca and --token-file belong together");
    if (report_check(a, err) < 0)
        return err->code;
    if (a->save_signal && !a->home)
        return err_set(err, E_USAGE, "--save-signal belongs to --home: nobody else asks by it");
    a->save_signo = a->save_signal ? signal_number(a->save_signal) : 0;
    if (a->save_signal && a->save_signo <= 0)
        return err_set(err, E_USAGE, "--save-signal %.32s: no signal that is known",
                       a->save_signal);
    if (a->devices && !devices_valid(a->devices))
        return err_set(err, E_USAGE, "--devices %.64s: expected numbers with commas between them",
                       a->devices);
    a->wait_ms = WAIT_MS;
    if (a->wait) {
        errno = 0;
        a->wait_ms = strtoull(a->wait, &end, 10);
        if (*a->wait < '0' || *a->wait > '9' || *end || errno || a->wait_ms > WAIT_MAX_MS)
            return err_set(err, E_USAGE, "--home-wait %s: expected milliseconds", a->wait);
    }
    return home_proxy_read(a->home, a->proxy_url, a->proxy_auth, &a->proxy, &a->has_proxy, err);
}

int home_args_take(int *argc, char **argv, struct home_args *ret, struct err *err)
{
    int rc = args_take(argc, argv, ret, err);

    if (rc == 0)
        rc = installed_take(ret, err);
    return rc < 0 ? rc : args_check(ret, err);
}
