// Holds one thread of another process for some milliseconds, as a debugger does: the others run on.
// A signal that stops stops all of them.
//
//   hold TID MS
//
// Whoever kills this lets go of the thread as well. Exits with 3 if there is no such thread (any
// more), which its process may have taken with it at any time.

#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>

static int failed(const char *what)
{
    if (errno == ESRCH || errno == ECHILD)
        return 3;
    perror(what);
    return 1;
}

int main(int count, char **words)
{
    if (count != 3) {
        fprintf(stderr, "usage: hold TID MS\n");
        return 2;
    }
    pid_t thread = atoi(words[1]);
    long ms = atol(words[2]);
    struct timespec rest = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 };
    sigset_t news;
    int state;

    sigemptyset(&news);
    sigaddset(&news, SIGCHLD);
    sigprocmask(SIG_BLOCK, &news, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (ptrace(PTRACE_SEIZE, thread, 0, 0) != 0)
        return failed("seize");
    if (ptrace(PTRACE_INTERRUPT, thread, 0, 0) != 0)
        return failed("interrupt");
    if (waitpid(thread, &state, __WALL) != thread)
        return failed("wait");
    if (WIFEXITED(state) || WIFSIGNALED(state))
        return 3;
    // What was heard of until now is that it stopped. A thread that is killed stays until it is
    // waited for here, and its process with it.
    while (sigtimedwait(&news, 0, &(struct timespec){ 0 }) > 0)
        ;
    if (sigtimedwait(&news, 0, &rest) > 0 && waitpid(thread, &state, __WALL | WNOHANG) == thread
        && (WIFEXITED(state) || WIFSIGNALED(state)))
        return 3;
    if (ptrace(PTRACE_DETACH, thread, 0, 0) != 0)
        return failed("detach");
    return 0;
}
