/*
 * The entry of the one binary. It picks the command and hands over; it must never hold logic of its
 * own, because nothing here can be reached by a unit test.
 */
#include <stdio.h>
#include <string.h>

static int usage(FILE *out, int status)
{
    (void)fputs("usage: hanse COMMAND [ARGUMENT...]\n"
                "\n"
                "commands:\n"
                "  version    print the version\n"
                "  help       print this text\n",
                out);
    return status;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        return usage(stderr, 2);
    }
    if (strcmp(argv[1], "version") == 0) {
        return printf("hanse %s\n", HANSE_VERSION) < 0;
    }
    if (strcmp(argv[1], "help") == 0 || strcmp(argv[1], "--help") == 0) {
        return usage(stdout, 0);
    }
    (void)fprintf(stderr, "hanse: unknown command \"%s\"\n", argv[1]);
    return usage(stderr, 2);
}
