/* SPDX-License-Identifier: MIT */
/* Signal handling: a signal interrupts the current run. */
#include "cli/cli.h"

#include <signal.h>
#include <unistd.h>

/* A signal handler can use only global variables. The library has none; these belong to the
 * program. */
static ls_trainer *volatile running;
static volatile sig_atomic_t signals, joining;

static void on_signal(int number)
{
    /* A second SIGINT or SIGTERM ends the program at once. A second SIGUSR1 or SIGHUP does not,
     * because these can arrive several times although nobody asked for an end at once: MPICH's
     * launcher sends SIGUSR1 for each process that ends; a closing terminal and its shell each send
     * SIGHUP. */
    if ((signals++ > 0 && number != SIGUSR1 && number != SIGHUP) || joining)
        _exit(EXIT_INTERRUPTED);
    if (running)
        ls_trainer_interrupt(running);
}

int cli_open(ls_trainer **trainer, const ls_trainer_options *options, ls_error *err)
{
    joining = options->cluster && options->cluster->tcp && signals == 0;
    int status = ls_trainer_open(trainer, options, err);
    joining = 0;
    return status;
}

int cli_run(ls_trainer *trainer, ls_error *err)
{
    running = trainer;
    if (signals > 0)
        ls_trainer_interrupt(trainer);
    int status = ls_trainer_run(trainer, err);
    running = NULL;
    return status;
}

bool cli_interrupted(void)
{
    return signals > 0;
}

void cli_wait_for_signal(void)
{
    sigset_t blocked, before;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGINT);
    sigaddset(&blocked, SIGTERM);
    sigaddset(&blocked, SIGHUP);
    sigprocmask(SIG_BLOCK, &blocked, &before);
    while (signals == 0)
        sigsuspend(&before);
    sigprocmask(SIG_SETMASK, &before, NULL);
}

void cli_catch_signals(void)
{
    struct sigaction before, action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGHUP, NULL, &before);
    /* if SIGHUP is ignored, the program was started by nohup, and the run must outlive the
     * terminal */
    if (before.sa_handler != SIG_IGN)
        sigaction(SIGHUP, &action, NULL);
    /* mpirun forwards SIGUSR1 at once and waits for the program to end */
    sigaction(SIGUSR1, &action, NULL);
    /* A reader that closes its pipe must not kill the run. With the signal ignored, the write fails
     * instead. */
    signal(SIGPIPE, SIG_IGN);
}

void cli_survive_file_limit(void)
{
    signal(SIGXFSZ, SIG_IGN);
}
