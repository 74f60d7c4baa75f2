/* libcurl, loaded when it is first used. It brings thirty libraries of its own, and every program
 * that an agent runs begins with two starts of this binary: linked in the ordinary way they cost
 * each start 6 ms of CPU, and nearly none of them sends a request.
 *
 * Each function has the name and the meaning that <curl/curl.h> gives it. A function that is used
 * and not here is an error of the linker: it gets a row. Without the library curl_easy_init and
 * curl_multi_init return NULL, and the log says what is missing. */
#include "api/base/log.h"

#include <curl/curl.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>

#define LIBRARY "libcurl.so.4"

/* F(NAME): what is forwarded. */
#define FUNCTIONS(F)                                                                               \
    F(easy_cleanup)                                                                                \
    F(easy_getinfo)                                                                                \
    F(easy_init)                                                                                   \
    F(easy_pause)                                                                                  \
    F(easy_perform)                                                                                \
    F(easy_reset)                                                                                  \
    F(easy_setopt)                                                                                 \
    F(easy_strerror)                                                                               \
    F(getdate)                                                                                     \
    F(global_init)                                                                                 \
    F(multi_add_handle)                                                                            \
    F(multi_assign)                                                                                \
    F(multi_cleanup)                                                                               \
    F(multi_info_read)                                                                             \
    F(multi_init)                                                                                  \
    F(multi_remove_handle)                                                                         \
    F(multi_setopt)                                                                                \
    F(multi_socket_action)                                                                         \
    F(slist_append)                                                                                \
    F(slist_free_all)

/* The header has macros of these names, which check types. */
#undef curl_easy_getinfo
#undef curl_easy_setopt
#undef curl_multi_setopt

#define POINTER(name) __typeof__(&curl_##name) name;
static struct {
    FUNCTIONS(POINTER)
} lib;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool loaded;

static void load(void)
{
    void *handle = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    const char *why = handle ? NULL : dlerror();

#define FIND(name)                                                                                 \
    if (handle && !why) {                                                                          \
        *(void **)&lib.name = dlsym(handle, "curl_" #name);                                        \
        why = lib.name ? NULL : "it has no curl_" #name;                                           \
    }
    FUNCTIONS(FIND)
    if (!why && lib.global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        why = "it does not begin";
    if (why)
        log_event(LOG_ERROR, "libcurl.missing",
                  LOG_FIELDS({"library", log_str(LIBRARY)}, {"why", log_str(why)},
                             {"remedy", log_str("install the package libcurl4")}));
    loaded = !why;
}

static bool have(void)
{
    return pthread_once(&once, load) == 0 && loaded;
}

/* ---- what begins a use ---- */
CURL *curl_easy_init(void)
{
    return have() ? lib.easy_init() : NULL;
}

CURLM *curl_multi_init(void)
{
    return have() ? lib.multi_init() : NULL;
}

time_t curl_getdate(const char *text, const time_t *unused)
{
    return have() ? lib.getdate(text, unused) : -1;
}

struct curl_slist *curl_slist_append(struct curl_slist *list, const char *text)
{
    return have() ? lib.slist_append(list, text) : NULL;
}

void curl_slist_free_all(struct curl_slist *list)
{
    if (have())
        lib.slist_free_all(list);
}

const char *curl_easy_strerror(CURLcode code)
{
    return have() ? lib.easy_strerror(code) : "there is no libcurl";
}

/* ---- what goes on with a handle: there is one, so the library is there ---- */
void curl_easy_cleanup(CURL *easy)
{
    if (easy)
        lib.easy_cleanup(easy);
}

CURLcode curl_easy_pause(CURL *easy, int which)
{
    return lib.easy_pause(easy, which);
}

CURLcode curl_easy_perform(CURL *easy)
{
    return lib.easy_perform(easy);
}

void curl_easy_reset(CURL *easy)
{
    lib.easy_reset(easy);
}

CURLcode curl_easy_getinfo(CURL *easy, CURLINFO what, ...)
{
    va_list ap;

    va_start(ap, what);
    void *to = va_arg(ap, void *); /* of every kind of information */
    va_end(ap);
    return lib.easy_getinfo(easy, what, to);
}

/* The number of an option tells the type of its value: CURLOPTTYPE_… of <curl/curl.h>. */
_Static_assert(sizeof(curl_off_t) == sizeof(long), "a long and an offset are passed alike");

static bool takes_number(int option)
{
    return option < CURLOPTTYPE_OBJECTPOINT ||
           (option >= CURLOPTTYPE_OFF_T && option < CURLOPTTYPE_BLOB);
}

CURLcode curl_easy_setopt(CURL *easy, CURLoption option, ...)
{
    bool is_number = takes_number((int)option);
    va_list ap;

    va_start(ap, option);
    long number = is_number ? va_arg(ap, long) : 0;
    void *p = is_number ? NULL : va_arg(ap, void *);
    va_end(ap);
    if (is_number)
        return lib.easy_setopt(easy, option, number);
    return lib.easy_setopt(easy, option, p);
}

CURLMcode curl_multi_setopt(CURLM *multi, CURLMoption option, ...)
{
    bool is_number = takes_number((int)option);
    va_list ap;

    va_start(ap, option);
    long number = is_number ? va_arg(ap, long) : 0;
    void *p = is_number ? NULL : va_arg(ap, void *);
    va_end(ap);
    if (is_number)
        return lib.multi_setopt(multi, option, number);
    return lib.multi_setopt(multi, option, p);
}

CURLMcode curl_multi_add_handle(CURLM *multi, CURL *easy)
{
    return lib.multi_add_handle(multi, easy);
}

CURLMcode curl_multi_assign(CURLM *multi, curl_socket_t socket, void *p)
{
    return lib.multi_assign(multi, socket, p);
}

CURLMcode curl_multi_cleanup(CURLM *multi)
{
    return multi ? lib.multi_cleanup(multi) : CURLM_OK;
}

CURLMsg *curl_multi_info_read(CURLM *multi, int *left)
{
    return lib.multi_info_read(multi, left);
}

CURLMcode curl_multi_remove_handle(CURLM *multi, CURL *easy)
{
    return lib.multi_remove_handle(multi, easy);
}

CURLMcode curl_multi_socket_action(CURLM *multi, curl_socket_t socket, int events, int *running)
{
    return lib.multi_socket_action(multi, socket, events, running);
}
