/* The entry of hanse-run: `hanse run` and `hanse checkpoint` in one static executable, for images
 * that have none of our libraries, whatever their C library is. It must never read a configuration
 * or load a library of the image that it runs in. */
#include "api/base/loop/loop.h"
#include "connectors/checkpoint/checkpoint.h"
#include "connectors/shim/shim.h"

#include <openssl/crypto.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
    const char *word = argc > 1 ? argv[1] : "";

    process_stdio_keep();
    /* An image's openssl.cnf may name modules, which would have to be loaded. */
    if (OPENSSL_init_crypto(OPENSSL_INIT_NO_LOAD_CONFIG, NULL) != 1)
        return 1;
    if (strcmp(word, "checkpoint") == 0)
        return checkpoint_main(argc - 1, argv + 1);
    if (strcmp(word, "version") == 0 || strcmp(word, "--version") == 0)
        return printf("hanse-run %s (static)\n", HANSE_VERSION) < 0;
    if (strcmp(word, "run") == 0) /* as the shim calls itself, and an agent calls it */
        return run_main(argc - 1, argv + 1);
    return run_main(argc, argv);
}
