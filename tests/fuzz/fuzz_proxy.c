/* What an HTTP proxy answers, and URLs of proxies: an answer means the same in any pieces. */
#include "api/base/mem.h"
#include "api/base/net/proxy.h"

#include <stdint.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct proxy_answer whole = {0}, slow = {0};
    struct proxy p;
    size_t taken = 0, one = 0, i = 0;
    int rc = proxy_answer_take(&whole, (const char *)data, size, &taken, NULL), rv = 0;

    while (rv == 0 && i < size)
        rv = proxy_answer_take(&slow, (const char *)data + i++, 1, &one, NULL);
    INV(rv == rc && (rc <= 0 || (slow.status == whole.status && i == taken)));
    INV(rc <= 0 || (whole.status >= 200 && whole.status < 600 && taken <= size));
    char *text = mem_alloc(size + 1);
    memcpy(text, data, size);
    text[size] = '\0';
    if (proxy_parse(text, &p, NULL) == 0) {
        INV(strchr(p.address, ':') && !strpbrk(p.address, " \r\n"));
        INV(!strpbrk(p.authorization, "\r\n"));
        str_copy(p.bypass, sizeof p.bypass, text);
        (void)proxy_is_for(&p, p.address);
    }
    mem_free(text);
    return 0;
}
