/* What a run may use: memory, processes, CPU, devices. It uses controllers of version 2, and those
 * of version 1 beside them where a machine has them there; a group has the same name in each
 * hierarchy. A limit that the kernel did not take must never be reported as set. */
#include "connectors/shim/tenant_linux.h"
#include "connectors/shim/tree_linux.h"

#include <errno.h>
#include <inttypes.h>
#include <linux/bpf.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define DEVICES_MAX 320
#define CPU_SHARE_LEAST 2
#define CPU_WEIGHT_MOST 10000
#define NVIDIA 195 /* character devices: 0..: one each, 254 modeset, 255 control */

static const char *const controllers[LIMITS_NR] = {"memory", "pids", "cpu", "devices"};

const char *limits_text(enum limit_kind k)
{
    return controllers[k];
}

/* Its group in version 1, below a mount of its own. */
static bool old_path(const char *group, enum limit_kind k, char out[RUN_GROUP_MAX])
{
    const char *name = strrchr(group, '/') + 1;
    char path[128];

    (void)snprintf(path, sizeof path, "/sys/fs/cgroup/%s/cgroup.procs", controllers[k]);
    if (access(path, F_OK) != 0 || access("/sys/fs/cgroup/cgroup.controllers", F_OK) == 0)
        return false; /* a group of version 2 may have that name */
    return snprintf(out, RUN_GROUP_MAX, "/sys/fs/cgroup/%s" GROUP_TOP "%s", controllers[k], name) <
           RUN_GROUP_MAX;
}

static bool is_ours(const char *group)
{
    return group && strstr(group, GROUP_TOP) != NULL;
}

bool limits_join(const char *group)
{
    char old[RUN_GROUP_MAX];

    for (int k = 0; is_ours(group) && k < LIMITS_NR; k++)
        if (old_path(group, (enum limit_kind)k, old) && access(old, F_OK) == 0 &&
            !group_write(old, "cgroup.procs", "0"))
            return false;
    return true;
}

void limits_remove(const char *group)
{
    char old[RUN_GROUP_MAX];

    for (int k = 0; is_ours(group) && k < LIMITS_NR; k++)
        if (old_path(group, (enum limit_kind)k, old)) {
            (void)rmdir(old);
            *strrchr(old, '/') = '\0';
            (void)rmdir(old); /* with its last group, and not before */
        }
}

/* ---- one controller ---- */
/* In version 2 it has to be handed down, from the top on. */
static bool hand_down(const char *group, enum limit_kind k)
{
    char top[RUN_GROUP_MAX], all[64];
    char *end;

    str_copy(top, sizeof top, group);
    (void)snprintf(all, sizeof all, "+%s", controllers[k]);
    if (!(end = strstr(top, GROUP_TOP)))
        return false;
    *end = '\0';
    if (!group_write(top, "cgroup.subtree_control", all))
        return false;
    end[0] = '/';
    end[strlen(GROUP_TOP) - 1] = '\0';
    return group_write(top, "cgroup.subtree_control", all);
}

/* Where its files are; false: this machine does not give it. */
static bool place_of(const char *group, enum limit_kind k, bool *ret_old, char out[RUN_GROUP_MAX])
{
    *ret_old = old_path(group, k, out);
    if (*ret_old)
        return group_make(out);
    str_copy(out, RUN_GROUP_MAX, group);
    return k == LIMIT_DEVICES || hand_down(group, k);
}

static bool put(const char *at, const char *file, int64_t value)
{
    char text[32];

    (void)snprintf(text, sizeof text, "%" PRId64, value);
    return group_write(at, file, text);
}

static bool memory_set(const char *at, bool old, int64_t bytes)
{
    if (!put(at, old ? "memory.limit_in_bytes" : "memory.max", bytes))
        return false;
    /* Nor may it go on in swap, where that is counted. */
    if (old)
        (void)put(at, "memory.memsw.limit_in_bytes", bytes);
    else
        (void)group_write(at, "memory.swap.max", "0");
    return true;
}

static bool cpu_set(const char *at, bool old, int64_t milli)
{
    int64_t shares = milli * 1024 / 1000, weight = milli / 10;

    if (old)
        return put(at, "cpu.shares", shares < CPU_SHARE_LEAST ? CPU_SHARE_LEAST : shares);
    return put(at, "cpu.weight",
               weight < 1                 ? 1
               : weight > CPU_WEIGHT_MOST ? CPU_WEIGHT_MOST
                                          : weight);
}

/* ---- devices ---- */
struct device {
    unsigned major, minor;
    bool any; /* minor */
};

static size_t devices_list(const struct run_limits *l, struct device out[DEVICES_MAX])
{
    static const struct device always[] = {
        {1, 3, false}, {1, 5, false}, {1, 7, false}, {1, 8, false}, /* null zero full random */
        {1, 9, false}, {5, 0, false}, {5, 2, false}, {136, 0, true} /* urandom tty ptmx pts */
    };
    static const char *const shared[] = {"/dev/nvidiactl", "/dev/nvidia-uvm",
                                         "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset"};
    size_t n = sizeof always / sizeof *always;
    const char *p = l->gpus;
    struct stat st;

    memcpy(out, always, sizeof always);
    out[n++] = (struct device){231, 0, true}; /* InfiniBand: by user and network, not by device */
    for (size_t i = 0; p && *p && i < sizeof shared / sizeof *shared; i++)
        if (stat(shared[i], &st) == 0 && S_ISCHR(st.st_mode))
            out[n++] = (struct device){major(st.st_rdev), minor(st.st_rdev), false};
    while (p && *p && n < DEVICES_MAX) {
        char *end;
        out[n++] = (struct device){NVIDIA, (unsigned)strtoul(p, &end, 10), false};
        p = *end == ',' ? end + 1 : "";
    }
    return n;
}

static bool devices_old(const char *at, const struct device *d, size_t n)
{
    char text[64];
    bool ok = group_write(at, "devices.deny", "a");

    for (size_t i = 0; ok && i < n; i++) {
        if (d[i].any)
            (void)snprintf(text, sizeof text, "c %u:* rw", d[i].major);
        else
            (void)snprintf(text, sizeof text, "c %u:%u rw", d[i].major, d[i].minor);
        ok = group_write(at, "devices.allow", text);
    }
    return ok;
}

/* A program of the kernel's that says yes to those, and to nothing else. r1: the question. */
static bool devices_new(const char *at, const struct device *d, size_t n)
{
    static const char license[] = "GPL";
    struct bpf_insn p[DEVICES_MAX * 4 + 16];
    size_t k = 0;

#define INSN(c, dst, src, o, i)                                                                    \
    p[k++] =                                                                                       \
        (struct bpf_insn){.code = (c), .dst_reg = (dst), .src_reg = (src), .off = (o), .imm = (i)}
    INSN(BPF_LDX | BPF_MEM | BPF_W, 2, 1, 0, 0); /* access and type */
    INSN(BPF_LDX | BPF_MEM | BPF_W, 3, 1, 4, 0); /* major */
    INSN(BPF_LDX | BPF_MEM | BPF_W, 4, 1, 8, 0); /* minor */
    INSN(BPF_ALU | BPF_MOV | BPF_X, 5, 2, 0, 0);
    INSN(BPF_ALU | BPF_AND | BPF_K, 5, 0, 0, BPF_DEVCG_ACC_MKNOD << 16);
    INSN(BPF_ALU | BPF_AND | BPF_K, 2, 0, 0, 0xffff);
    INSN(BPF_ALU64 | BPF_MOV | BPF_K, 0, 0, 0, 0);
    INSN(BPF_JMP | BPF_JEQ | BPF_K, 5, 0, 1, 0);
    INSN(BPF_JMP | BPF_EXIT, 0, 0, 0, 0);
    INSN(BPF_JMP | BPF_JEQ | BPF_K, 2, 0, 1, BPF_DEVCG_DEV_CHAR);
    INSN(BPF_JMP | BPF_EXIT, 0, 0, 0, 0);
    INSN(BPF_ALU64 | BPF_MOV | BPF_K, 0, 0, 0, 1);
    for (size_t i = 0; i < n; i++) {
        INSN(BPF_JMP | BPF_JNE | BPF_K, 3, 0, d[i].any ? 1 : 2, (int)d[i].major);
        if (!d[i].any)
            INSN(BPF_JMP | BPF_JNE | BPF_K, 4, 0, 1, (int)d[i].minor);
        INSN(BPF_JMP | BPF_EXIT, 0, 0, 0, 0);
    }
    INSN(BPF_ALU64 | BPF_MOV | BPF_K, 0, 0, 0, 0);
    INSN(BPF_JMP | BPF_EXIT, 0, 0, 0, 0);
#undef INSN
    union bpf_attr load = {.prog_type = BPF_PROG_TYPE_CGROUP_DEVICE,
                           .insn_cnt = (unsigned)k,
                           .insns = (uint64_t)(uintptr_t)p,
                           .license = (uint64_t)(uintptr_t)license};
    int dir = open(at, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int prog = dir < 0 ? -1 : (int)syscall(SYS_bpf, BPF_PROG_LOAD, &load, sizeof load);
    union bpf_attr attach = {.target_fd = (unsigned)dir,
                             .attach_bpf_fd = (unsigned)prog,
                             .attach_type = BPF_CGROUP_DEVICE};
    bool ok = prog >= 0 && syscall(SYS_bpf, BPF_PROG_ATTACH, &attach, sizeof attach) == 0;
    if (prog >= 0)
        (void)close(prog);
    if (dir >= 0)
        (void)close(dir);
    return ok;
}

static bool devices_set(const char *at, bool old, const struct run_limits *l)
{
    struct device d[DEVICES_MAX + 16];
    size_t n = devices_list(l, d);

    return old ? devices_old(at, d, n) : devices_new(at, d, n);
}

/* ---- all ---- */
unsigned limits_set(const char *group, const struct run_limits *l)
{
    const int64_t wanted[LIMITS_NR] = {l->memory_bytes, l->pids, l->cpu_milli, l->devices};
    char at[RUN_GROUP_MAX];
    unsigned held = 0;
    bool old;

    for (int k = 0; is_ours(group) && k < LIMITS_NR; k++) {
        bool ok = wanted[k] > 0 && place_of(group, (enum limit_kind)k, &old, at);
        if (k == LIMIT_MEMORY)
            ok = ok && memory_set(at, old, l->memory_bytes);
        else if (k == LIMIT_PIDS)
            ok = ok && put(at, "pids.max", l->pids);
        else if (k == LIMIT_CPU)
            ok = ok && cpu_set(at, old, l->cpu_milli);
        else
            ok = ok && devices_set(at, old, l);
        held |= ok ? 1u << k : 0;
    }
    return held;
}

bool limits_hit_memory(const char *group)
{
    char at[RUN_GROUP_MAX], path[RUN_GROUP_MAX + 32], s[1024];

    if (!is_ours(group))
        return false;
    bool old = old_path(group, LIMIT_MEMORY, at);
    (void)snprintf(path, sizeof path, "%s/%s", old ? at : group,
                   old ? "memory.oom_control" : "memory.events");
    const char *p = group_text(path, s, sizeof s) > 0 ? strstr(s, "oom_kill ") : NULL;
    return p && strtol(p + strlen("oom_kill "), NULL, 10) > 0;
}

bool tree_group_hit_memory(struct runner_os *os, const char *group)
{
    (void)os;
    return limits_hit_memory(group);
}

const char *tree_tenants_probe(struct runner_os *os, const char *state, char ret_lacks[128])
{
    const struct run_limits all = {
        .memory_bytes = 1 << 20, .pids = 16, .cpu_milli = 100, .devices = true};
    char name[64], group[RUN_GROUP_MAX];
    size_t n = 0;

    (void)snprintf(name, sizeof name, "probe.%lld.limits", (long long)getpid());
    tree_group_create(os, name, group);
    unsigned held = limits_set(group, &all);
    tree_group_remove(os, group);
    ret_lacks[0] = '\0';
    for (int k = 0; k < LIMITS_NR; k++)
        if (!(held & 1u << k))
            n += (size_t)snprintf(ret_lacks + n, 128 - n, "%s%s", n ? "," : "", controllers[k]);
    const char *why = tenant_try(state);
    if (!why && !(held & 1u << LIMIT_MEMORY))
        why = "no limit of memory can be set: there is no memory controller that root may use";
    if (!why && !(held & 1u << LIMIT_PIDS))
        why = "no limit of processes can be set: there is no pids controller that root may use";
    return why;
}
