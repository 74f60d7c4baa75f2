/* Fuzz target: bytes as a command and as a log entry. Both come from other members, but also
 * through their bugs. */
#include "controlplane/store/store_internal.h"

int fuzz_command(const uint8_t *data, size_t size);

int fuzz_command(const uint8_t *data, size_t size)
{
    AUTO_ARENA a = arena_create((size_t)64 << 20);
    AUTO_BUF b;
    struct err e = {0};
    union command *c = NULL;

    arena_set_soft(a, true);
    if (command_decode(slice_make(data, size), a, &c, &e) == 0) {
        struct root *root = root_create();
        struct result r;

        arena_set_soft(a, false);
        buf_init(&b, 2 * (size_t)LIMIT_COMMAND_MAX_BYTES);
        command_encode(c, &b);
        store_try(root, 1, c, &r, NULL);
        INV(r.code <= 0);
        command_release(c);
        (void)root_unref(root);
    } else {
        buf_init(&b, 1);
        INV(e.code < 0);
    }
    struct root *root = root_create();
    (void)!store_apply(&root, 1, 1, slice_make(data, size), NULL, NULL, &e);
    (void)root_unref(root);
    (void)tree_reap(SIZE_MAX);
    return 0;
}

#ifndef FUZZ_IN_TEST
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_command(data, size);
}
#endif
