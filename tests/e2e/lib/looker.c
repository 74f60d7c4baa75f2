/* A program of installed.py, for an image that has nothing: it tells what it finds in a pod. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static int calls_hanse(void)
{
    int status = -1;
    pid_t pid = fork();

    if (pid == 0) {
        execlp("hanse", "hanse", "version", NULL);
        _exit(127);
    }
    return pid > 0 && waitpid(pid, &status, 0) == pid ? status : -1;
}

int main(void)
{
    static const char *const names[] = {"HANSE_RANK", "HANSE_WORLD_SIZE", "HANSE_EPOCH", "TMPDIR"};
    DIR *d = opendir("/.hanse/key");
    struct dirent *e;

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        printf("%s=%s\n", names[i], getenv(names[i]) ? getenv(names[i]) : "(none)");
    while (d && (e = readdir(d)) != NULL)
        if (e->d_name[0] != '.')
            printf("left %s\n", e->d_name);
    printf("user %d\n", (int)getuid());
    printf("root %s\n", mkdir("/made", 0700) == 0 ? "writable" : "read-only");
    (void)fflush(stdout);
    printf("hanse %d\n", calls_hanse());
    return 7;
}
