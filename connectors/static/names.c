/* getaddrinfo for hanse-run, by c-ares: /etc/hosts and the name servers of /etc/resolv.conf, as the
 * image has them. libuv calls it on its thread pool. It must never load a module of the image
 * (NSS), nor take longer than PATIENCE_MS; whoever connects has a deadline of its own. */
#include "api/base/list.h"
#include "api/base/mem.h"

#include <ares.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SERVER_MS 2000 /* for one name server to answer, before the next one is asked */
#define TRIES 2        /* rounds of all name servers */
#define PATIENCE_MS 12000
#define ADDRESSES_MAX 64

struct lookup {
    struct addrinfo *first, **end;
    in_port_t port; /* network byte order */
    int socktype, status;
    bool done;
};
struct address { /* what freeaddrinfo frees, one by one */
    struct addrinfo info;
    union {
        struct sockaddr any;
        struct sockaddr_in four;
        struct sockaddr_in6 six;
    } at;
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static int library = ARES_ENOTINITIALIZED;

static void library_begin(void)
{
    library = ares_library_init(ARES_LIB_INIT_ALL);
}

static int status_of(int ares)
{
    switch (ares) {
    case ARES_SUCCESS:
        return 0;
    case ARES_ENOTFOUND:
    case ARES_ENODATA:
    case ARES_EBADNAME:
        return EAI_NONAME;
    case ARES_ENOMEM:
        return EAI_MEMORY;
    case ARES_ETIMEOUT:
    case ARES_ECONNREFUSED:
    case ARES_ESERVFAIL:
    case ARES_EREFUSED:
    case ARES_ECANCELLED:
        return EAI_AGAIN;
    default:
        return EAI_FAIL;
    }
}

static void address_add(struct lookup *k, const struct ares_addrinfo_node *n)
{
    bool six = n->ai_family == AF_INET6;
    struct address *a = mem_new(struct address);

    memcpy(&a->at, n->ai_addr, six ? sizeof a->at.six : sizeof a->at.four);
    *(six ? &a->at.six.sin6_port : &a->at.four.sin_port) = k->port;
    a->info = (struct addrinfo){.ai_family = n->ai_family,
                                .ai_socktype = k->socktype,
                                .ai_protocol = k->socktype == SOCK_STREAM ? IPPROTO_TCP : 0,
                                .ai_addrlen = six ? sizeof a->at.six : sizeof a->at.four,
                                .ai_addr = &a->at.any};
    *k->end = &a->info;
    k->end = &a->info.ai_next;
}

static void on_answer(void *arg, int status, int timeouts, struct ares_addrinfo *found)
{
    struct lookup *k = arg;
    unsigned n = 0;

    (void)timeouts;
    k->done = true;
    k->status = status_of(status);
    for (const struct ares_addrinfo_node *a = found ? found->nodes : NULL; a && n < ADDRESSES_MAX;
         a = a->ai_next)
        if (a->ai_family == AF_INET || a->ai_family == AF_INET6) {
            address_add(k, a);
            n++;
        }
    if (!k->status && !n)
        k->status = EAI_NONAME;
    if (found)
        ares_freeaddrinfo(found);
}

static uint64_t now_ms(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_BOOTTIME, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* Waits for what c-ares waits for, at most that long. */
static void turn(ares_channel channel, int wait_ms)
{
    ares_socket_t socks[ARES_GETSOCK_MAXNUM];
    struct pollfd polls[ARES_GETSOCK_MAXNUM];
    int bits = ares_getsock(channel, socks, ARES_GETSOCK_MAXNUM);
    nfds_t n = 0;

    for (int i = 0; i < ARES_GETSOCK_MAXNUM; i++) {
        short events = (short)((ARES_GETSOCK_READABLE(bits, i) ? POLLIN : 0) |
                               (ARES_GETSOCK_WRITABLE(bits, i) ? POLLOUT : 0));
        if (events)
            polls[n++] = (struct pollfd){.fd = socks[i], .events = events};
    }
    struct timeval most = {wait_ms / 1000, wait_ms % 1000 * 1000L}, due;
    const struct timeval *t = ares_timeout(channel, &most, &due);
    int got = poll(polls, n, (int)(t->tv_sec * 1000 + t->tv_usec / 1000 + 1));
    for (nfds_t i = 0; got > 0 && i < n; i++)
        if (polls[i].revents)
            ares_process_fd(channel, polls[i].events & POLLIN ? polls[i].fd : ARES_SOCKET_BAD,
                            polls[i].revents & POLLOUT ? polls[i].fd : ARES_SOCKET_BAD);
    ares_process_fd(channel, ARES_SOCKET_BAD, ARES_SOCKET_BAD); /* what has timed out */
}

static int lookup_run(struct lookup *k, const char *host, int family)
{
    struct ares_options options = {.timeout = SERVER_MS, .tries = TRIES};
    const struct ares_addrinfo_hints hints = {.ai_family = family, .ai_socktype = k->socktype};
    ares_channel channel;
    uint64_t until;

    if (pthread_once(&once, library_begin) != 0 || library != ARES_SUCCESS)
        return EAI_FAIL;
    int rc = ares_init_options(&channel, &options, ARES_OPT_TIMEOUTMS | ARES_OPT_TRIES);
    if (rc != ARES_SUCCESS)
        return status_of(rc);
    until = now_ms() + PATIENCE_MS;
    ares_getaddrinfo(channel, host, NULL, &hints, on_answer, k);
    while (!k->done) {
        uint64_t now = now_ms();
        if (now >= until)
            ares_cancel(channel);
        else
            turn(channel, (int)(until - now));
    }
    ares_destroy(channel);
    return k->status;
}

/* As getaddrinfo(3), for the part of it that libuv and we use: a host, a port in digits. */
int getaddrinfo(const char *restrict host, const char *restrict service,
                const struct addrinfo *restrict hints, struct addrinfo **restrict ret)
{
    struct lookup k = {.socktype = hints && hints->ai_socktype ? hints->ai_socktype : SOCK_STREAM};
    char *end = NULL;
    unsigned long port = service ? strtoul(service, &end, 10) : 0;

    if (service && (end == service || *end || port > 65535))
        return EAI_SERVICE;
    if (!host || !*host)
        return EAI_NONAME;
    k.port = htons((in_port_t)port);
    k.end = &k.first;
    int rc = lookup_run(&k, host, hints ? hints->ai_family : AF_UNSPEC);
    if (rc) {
        freeaddrinfo(k.first);
        return rc;
    }
    *ret = k.first;
    return 0;
}

void freeaddrinfo(struct addrinfo *a)
{
    while (a) {
        struct addrinfo *next = a->ai_next;
        mem_free(container_of(a, struct address, info));
        a = next;
    }
}
