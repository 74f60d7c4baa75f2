/* The entry of hanse-run: `hanse run` and `hanse checkpoint` in one static executable, for images
 * that have none of our libraries, whatever their C library is. It must never load a library of
 * the image that it runs in (absent.c). */
#include "api/base/loop/loop.h"
#include "connectors/checkpoint/checkpoint.h"
#include "connectors/shim/shim.h"
#include "connectors/static/install.h"

#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
    const char *word = argc > 1 ? argv[1] : "";

    process_stdio_keep();
    if (strcmp(word, "checkpoint") == 0)
        return checkpoint_main(argc - 1, argv + 1);
    if (strcmp(word, "install") == 0)
        return install_main(argc - 1, argv + 1);
    if (strcmp(word, "version") == 0 || strcmp(word, "--version") == 0)
        return printf("hanse-run %s (static)\n", HANSE_VERSION) < 0;
    if (strcmp(word, "run") == 0) /* as the shim calls itself, and an agent calls it */
        return run_main(argc - 1, argv + 1);
    return run_main(argc, argv);
}
