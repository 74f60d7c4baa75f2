/* The system calls that a tenant's program is refused (EPERM): mounts, namespaces, the kernel's own
 * code, clock and keys. All else passes: a list of what is allowed would break programs with each
 * new library. ptrace and its like are for its own processes (debuggers, sanitizers, MPI): those of
 * others it cannot name, its PID namespace has none, and init is another user's. Written for the
 * kernel as it takes it, so that nothing has to be linked. */
#include "connectors/shim/tenant_linux.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#if defined(__x86_64__)
#define ARCHITECTURE AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCHITECTURE AUDIT_ARCH_AARCH64
#else
#define ARCHITECTURE 0 /* not known: refused as a whole */
#endif
#define X32_BIT 0x40000000 /* the same calls by other numbers */
#define NAMESPACES                                                                                 \
    (CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID |  \
     CLONE_NEWNET)
#define PROGRAM_MAX 256

static const unsigned refused[] = {
    /* mounts and namespaces */
    SYS_mount, SYS_umount2, SYS_pivot_root, SYS_chroot, SYS_open_tree, SYS_move_mount, SYS_fsopen,
    SYS_fsconfig, SYS_fsmount, SYS_fspick, SYS_mount_setattr, SYS_setns, SYS_unshare,
    SYS_open_by_handle_at, SYS_quotactl, SYS_quotactl_fd, SYS_swapon, SYS_swapoff,
    /* the kernel */
    SYS_init_module, SYS_finit_module, SYS_delete_module, SYS_kexec_load,
#ifdef SYS_kexec_file_load
    SYS_kexec_file_load,
#endif
    SYS_bpf, SYS_perf_event_open, SYS_userfaultfd, SYS_io_uring_setup, SYS_io_uring_enter,
    SYS_io_uring_register, SYS_syslog, SYS_reboot, SYS_acct, SYS_vhangup,
#ifdef SYS_iopl
    SYS_iopl, SYS_ioperm,
#endif
    /* clock and keys */
    SYS_settimeofday, SYS_clock_settime, SYS_clock_adjtime, SYS_adjtimex, SYS_keyctl, SYS_add_key,
    SYS_request_key};

struct filter {
    struct sock_filter p[PROGRAM_MAX];
    unsigned short n;
};

static void add(struct filter *f, uint16_t code, uint32_t k, uint8_t yes, uint8_t no)
{
    f->p[f->n++] = (struct sock_filter){code, yes, no, k};
}

static void load(struct filter *f, size_t offset)
{
    add(f, BPF_LD | BPF_W | BPF_ABS, (uint32_t)offset, 0, 0);
}

static void answer(struct filter *f, int e)
{
    add(f, BPF_RET | BPF_K, e ? SECCOMP_RET_ERRNO | (uint32_t)e : SECCOMP_RET_ALLOW, 0, 0);
}

static void unless_equal(struct filter *f, uint32_t value, int e) /* of what is loaded */
{
    add(f, BPF_JMP | BPF_JEQ | BPF_K, value, 1, 0);
    answer(f, e);
}

static void if_equal(struct filter *f, uint32_t value, int e)
{
    add(f, BPF_JMP | BPF_JEQ | BPF_K, value, 0, 1);
    answer(f, e);
}

static const size_t number = offsetof(struct seccomp_data, nr);
static const size_t first = offsetof(struct seccomp_data, args); /* its low half: little-endian */

static void filter_make(struct filter *f)
{
    load(f, offsetof(struct seccomp_data, arch));
    unless_equal(f, ARCHITECTURE, EPERM);
    load(f, number);
    add(f, BPF_JMP | BPF_JGE | BPF_K, X32_BIT, 0, 1);
    answer(f, ENOSYS);
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if_equal(f, refused[i], EPERM);
    if_equal(f, SYS_clone3, ENOSYS); /* its flags cannot be looked at: libraries use clone then */
    add(f, BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 0, 3);
    load(f, first);
    add(f, BPF_JMP | BPF_JSET | BPF_K, NAMESPACES, 0, 1);
    answer(f, EPERM);
    answer(f, 0);
}

int syscalls_limit(void)
{
    struct filter f = {.n = 0};

    filter_make(&f);
    struct sock_fprog program = {.len = f.n, .filter = f.p};
    if (!ARCHITECTURE)
        return ENOSYS;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) != 0)
        return errno;
    return 0;
}
