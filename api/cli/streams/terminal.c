/* Raw mode of this process's terminal (terminal.h). What a handler of a signal calls is on POSIX's
 * list of what it may: tcsetattr, sigaction, raise. Must never leave a terminal raw. */
#include "api/cli/streams/terminal.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#define TOLD_MAX 4096u /* rows or columns: some servers end the session at more */

static struct {
    struct termios was, raw;
    volatile sig_atomic_t on;
} mode;

/* What ends a process that does not handle it, as far as somebody may send it. SIGPIPE is ignored
 * because of the sockets, and raised by who cannot write: then atexit did not run. */
static const int ending[] = {SIGHUP,  SIGINT,  SIGQUIT, SIGTERM, SIGABRT,
                             SIGALRM, SIGUSR1, SIGUSR2, SIGXCPU};

bool terminal_is(int fd)
{
    return isatty(fd) == 1;
}

void terminal_restore(void)
{
    if (!mode.on)
        return;
    mode.on = 0;
    while (tcsetattr(STDIN_FILENO, TCSADRAIN, &mode.was) != 0 && errno == EINTR) {
    }
}

static void on_ending(int signo)
{
    if (mode.on)
        (void)tcsetattr(STDIN_FILENO, TCSANOW, &mode.was);
    mode.on = 0;
    (void)signal(signo, SIG_DFL); /* it comes again once this handler has returned */
    (void)raise(signo);
}

/* Stopped from outside: the terminal is its shell's meanwhile. */
static void on_stop(int signo)
{
    const struct sigaction otherwise = {.sa_handler = SIG_DFL};
    const struct sigaction again = {.sa_handler = on_stop};
    sigset_t set;
    int saved = errno;

    (void)signo;
    if (mode.on)
        (void)tcsetattr(STDIN_FILENO, TCSANOW, &mode.was);
    (void)sigaction(SIGTSTP, &otherwise, NULL);
    (void)raise(SIGTSTP);
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGTSTP);
    (void)sigprocmask(SIG_UNBLOCK, &set, NULL); /* it stops here */
    (void)sigaction(SIGTSTP, &again, NULL);
    errno = saved;
}

/* In the foreground again, also after a stop that nobody hears of. A process in the background
 * would be stopped for it. */
static void on_continue(int signo)
{
    int saved = errno;

    (void)signo;
    if (mode.on && tcgetpgrp(STDIN_FILENO) == getpgrp())
        (void)tcsetattr(STDIN_FILENO, TCSANOW, &mode.raw);
    errno = saved;
}

int terminal_raw(struct err *err)
{
    struct sigaction ends = {.sa_handler = on_ending}, old;

    if (tcgetattr(STDIN_FILENO, &mode.was) != 0)
        return err_set(err, E_IO, "the terminal's settings cannot be read: %s", strerror(errno));
    mode.raw = mode.was;
    cfmakeraw(&mode.raw);
    if (atexit(terminal_restore) != 0)
        return err_set(err, E_INTERNAL, "the terminal could not be put back at the end");
    for (size_t i = 0; i < sizeof ending / sizeof *ending; i++) {
        if (sigaction(ending[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)
            (void)sigaction(ending[i], &ends, NULL);
    }
    const struct sigaction stops = {.sa_handler = on_stop},
                           goes_on = {.sa_handler = on_continue, .sa_flags = SA_RESTART};
    (void)sigaction(SIGTSTP, &stops, NULL);
    (void)sigaction(SIGCONT, &goes_on, NULL);
    mode.on = 1;
    if (tcsetattr(STDIN_FILENO, TCSADRAIN, &mode.raw) == 0)
        return 0;
    mode.on = 0;
    return err_set(err, E_IO, "the terminal cannot be made raw: %s", strerror(errno));
}

bool terminal_size(unsigned *ret_rows, unsigned *ret_columns)
{
    struct winsize w;

    for (int fd = 0; fd < 2; fd++) {
        if (ioctl(fd, TIOCGWINSZ, &w) == 0 && w.ws_row && w.ws_col) {
            *ret_rows = w.ws_row < TOLD_MAX ? w.ws_row : TOLD_MAX;
            *ret_columns = w.ws_col < TOLD_MAX ? w.ws_col : TOLD_MAX;
            return true;
        }
    }
    return false;
}
