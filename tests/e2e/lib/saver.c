/* A program of images.py, for images that have no shell: it counts, saves when it is asked to stop,
 * and goes on from what it saved. With an argument it also leaves a process behind that has a
 * session of its own. */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile sig_atomic_t asked;

static void on_term(int signo)
{
    (void)signo;
    asked = 1;
}

static long read_state(void)
{
    const char *from = getenv("HANSE_RESUME_DIR");
    long n = 0;

    if (!from || chdir(from) != 0)
        return 0;
    FILE *f = fopen("state", "r");
    if (!f || fscanf(f, "%ld", &n) != 1)
        exit(3);
    (void)fclose(f);
    return n;
}

/* Commits with the runner's own program, which is all that the image has. */
static int save(long n)
{
    char step[32];
    int status = -1;
    FILE *f;

    if (chdir(getenv("HANSE_CHECKPOINT_DIR")) != 0 || !(f = fopen("state", "w")))
        return 4;
    if (fprintf(f, "%ld\n", n) < 0 || fclose(f) != 0)
        return 4;
    (void)snprintf(step, sizeof step, "%ld", n);
    pid_t pid = fork();
    if (pid == 0) {
        execl("/hanse-run", "hanse-run", "checkpoint", "commit", "--step", step, "state", NULL);
        _exit(127);
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0)
        return 5;
    printf("saved %ld\n", n);
    return fflush(stdout) == 0 ? 75 : 6;
}

int main(int argc, char **argv)
{
    long n = read_state();

    (void)argv;
    if (argc > 1 && fork() == 0) {
        (void)setsid();
        printf("escaped %d\n", (int)getpid());
        (void)fflush(stdout);
        for (;;)
            (void)poll(NULL, 0, 1000);
    }
    (void)signal(SIGTERM, on_term);
    printf("program %d\nat %ld\n", (int)getpid(), n);
    (void)fflush(stdout);
    while (!asked) {
        (void)poll(NULL, 0, 5);
        n++;
    }
    return save(n);
}
