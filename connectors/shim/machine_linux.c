/* The machine as Linux and the NVIDIA driver tell it, and the table of runner_os.h. NVML is opened
 * at run time: where there is no driver there are no GPUs, and nothing to install. */
#include "connectors/shim/tree_linux.h"
#include "connectors/shim/will_linux.h"

#include "api/base/mem.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/sysinfo.h>
#include <unistd.h>

static void machine_boot_id(struct runner_os *os, char out[64])
{
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, out, 63);

    (void)os;
    if (fd >= 0)
        (void)close(fd);
    out[n > 0 ? n : 0] = '\0';
    out[strcspn(out, "\n")] = '\0';
}

static int64_t machine_self(struct runner_os *os)
{
    (void)os;
    return getpid();
}

static const char *machine_program(struct runner_os *os)
{
    static char path[4096]; /* does not change while we live */

    (void)os;
    if (!path[0]) {
        ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
        path[n > 0 ? n : 0] = '\0';
        char *gone =
            strstr(path, " (deleted)"); /* upgraded beneath us: the new one is at the same place */
        if (gone)
            *gone = '\0';
    }
    return path;
}

static const char *machine_getenv(struct runner_os *os, const char *name)
{
    (void)os;
    return getenv(name);
}

static void machine_size(struct runner_os *os, int64_t *ret_cpu_milli, int64_t *ret_memory_bytes,
                         char hostname[256])
{
    struct sysinfo si;
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);

    (void)os;
    *ret_cpu_milli = (cpus > 0 ? cpus : 1) * 1000;
    *ret_memory_bytes = sysinfo(&si) == 0 ? (int64_t)si.totalram * (int64_t)si.mem_unit : 0;
    if (gethostname(hostname, 255) != 0)
        (void)snprintf(hostname, 256, "localhost");
    hostname[255] = '\0';
}

/* Bound and closed again: nothing listens there, and no connection that lingers has it. */
static bool machine_port_free(struct runner_os *os, uint16_t port)
{
    struct sockaddr_in6 at = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    struct sockaddr_in at4 = {.sin_family = AF_INET, .sin_port = htons(port)};
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0); /* of both families */
    bool six = fd >= 0, free;

    (void)os;
    if (!six)
        fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return false;
    free = (six ? bind(fd, (struct sockaddr *)&at, sizeof at)
                : bind(fd, (struct sockaddr *)&at4, sizeof at4)) == 0;
    (void)close(fd);
    return free;
}

/* ---- NVML: the few calls that are needed, by their stable names ---- */
struct nvml_memory {
    unsigned long long total, free, used;
};
struct nvml {
    void *lib;
    int (*init)(void);
    int (*shutdown)(void);
    int (*count)(unsigned *n);
    int (*handle)(unsigned i, void **dev);
    int (*name)(void *dev, char *out, unsigned n);
    int (*uuid)(void *dev, char *out, unsigned n);
    int (*memory)(void *dev, struct nvml_memory *m);
};

static bool nvml_open(struct nvml *n)
{
    const struct {
        const char *name;
        void *slot;
    } calls[] = {{"nvmlInit_v2", &n->init},
                 {"nvmlShutdown", &n->shutdown},
                 {"nvmlDeviceGetCount_v2", &n->count},
                 {"nvmlDeviceGetHandleByIndex_v2", &n->handle},
                 {"nvmlDeviceGetName", &n->name},
                 {"nvmlDeviceGetUUID", &n->uuid},
                 {"nvmlDeviceGetMemoryInfo", &n->memory}};

    n->lib = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    for (size_t i = 0; n->lib && i < sizeof calls / sizeof *calls; i++) {
        void *f = dlsym(n->lib, calls[i].name);
        if (!f)
            return false;
        memcpy(calls[i].slot, &f, sizeof f);
    }
    return n->lib != NULL;
}

static int nvml_list(const struct nvml *n, struct runner_gpu ret[RUN_GPUS_MAX], struct err *err)
{
    unsigned count = 0;
    int rc = n->count(&count);

    if (rc != 0)
        return err_set(err, E_IO, "NVML cannot count the devices (status %d)", rc);
    if (count > RUN_GPUS_MAX)
        return err_set(err, E_LIMIT, "%u GPUs are more than %d", count, RUN_GPUS_MAX);
    for (unsigned i = 0; i < count; i++) {
        struct nvml_memory m = {0};
        void *dev = NULL;
        struct runner_gpu *g = &ret[i];
        memset(g, 0, sizeof *g);
        if (n->handle(i, &dev) != 0 || n->name(dev, g->model, sizeof g->model) != 0 ||
            n->memory(dev, &m) != 0)
            return err_set(err, E_IO, "NVML does not tell about device %u", i);
        (void)n->uuid(dev, g->uuid, sizeof g->uuid);
        g->memory_bytes = (int64_t)m.total;
    }
    return (int)count;
}

static int machine_gpus(struct runner_os *os, struct runner_gpu ret[RUN_GPUS_MAX], struct err *err)
{
    struct nvml n = {0};
    int rc;

    (void)os;
    if (!nvml_open(&n)) {
        rc = err_set(err, E_NOTFOUND,
                     "libnvidia-ml.so.1 is not here: install the NVIDIA driver, or declare the "
                     "GPUs in the inventory");
    } else if ((rc = n.init()) != 0) {
        rc = err_set(err, E_IO,
                     "the NVIDIA driver does not answer (NVML status %d): see nvidia-smi", rc);
    } else {
        rc = nvml_list(&n, ret, err);
        (void)n.shutdown();
    }
    if (n.lib)
        (void)dlclose(n.lib);
    return rc;
}

#define FILES_LOOKED_AT 65536 /* where the kernel cannot do it at once (before 5.11) */

void runner_os_keep_files(void)
{
    if (close_range(STDERR_FILENO + 1, ~0u, CLOSE_RANGE_CLOEXEC) == 0)
        return;
    for (int fd = STDERR_FILENO + 1; fd < FILES_LOOKED_AT; fd++)
        if (fcntl(fd, F_GETFD) >= 0)
            (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
}

struct runner_os *runner_os_linux(void)
{
    static const struct runner_os_ops ops = {.adopt_orphans = tree_adopt_orphans,
                                             .processes_probe = held_probe,
                                             .group_place = tree_group_place,
                                             .group_remove = tree_group_remove,
                                             .group_hit_memory = tree_group_hit_memory,
                                             .tenants_probe = tree_tenants_probe,
                                             .tree_process_count = tree_process_count,
                                             .tree_signal = tree_signal,
                                             .tree_ask = tree_ask,
                                             .tree_commits = tree_commits,
                                             .exit_seen = will_exit_seen,
                                             .exit_reap = will_exit_reap,
                                             .will_begin = will_begin,
                                             .will_flag = will_flag,
                                             .keeper_died = will_keeper_died,
                                             .deadline_tell = will_deadline_tell,
                                             .deadline_read = will_deadline_read,
                                             .last_words = will_last_words,
                                             .orphans_reap = will_orphans_reap,
                                             .will_pid = will_pid,
                                             .boot_id = machine_boot_id,
                                             .self = machine_self,
                                             .program = machine_program,
                                             .getenv = machine_getenv,
                                             .machine = machine_size,
                                             .port_free = machine_port_free,
                                             .gpus = machine_gpus};
    static struct runner_os os = {.ops = &ops};

    return &os;
}
