/* An HTTP service around Lockstep: it learns from examples, labelled images or rows of a table, while it
 * answers what others show.
 * README.md says how to use it.
 *
 * Threads: this one starts and ends everything and waits for signals in between; one owns the trainer
 * (learner.c); the server has one for each connection (http.c). */
#include "affinity.h"
#include "http.h"
#include "record.h"
#include "report.h"
#include "saves.h"

#include <cjson/cJSON.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static int exit_code(int status)
{
    switch (status) {
    case LS_OK: return 0;
    case LS_EDATA: return 65;
    case LS_ENOENT: return 66;
    case LS_EIO: return 74;
    case LS_ECONFIG: return 78;
    default: return 71;
    }
}

/* Before any thread is made: all of them leave these signals to sigwait. A file that may not grow is an error
 * like any other. */
static void block_signals(sigset_t *awaited)
{
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
    sigemptyset(awaited);
    sigaddset(awaited, SIGTERM);
    sigaddset(awaited, SIGINT);
    pthread_sigmask(SIG_BLOCK, awaited, NULL);
}

/* Looks after the journal's disk meanwhile. A second signal ends the process at once; the journal has what was
 * acknowledged. */
static void await(journal *examples, const sigset_t *signals)
{
    const struct timespec second = {1, 0};
    int number;
    while ((number = sigtimedwait(signals, NULL, &second)) < 0)
        journal_watch(examples);
    pthread_sigmask(SIG_UNBLOCK, signals, NULL);
    say(LS_LOG_INFO, "signal %d: stopping", number);
}

static int open_journal(service *s, ls_error *err)
{
    char path[4096];
    uint64_t known;
    const options *o = s->o;
    const int error = file_make_directory(o->state);
    if (error)
        return fail(err, LS_EIO, "--state %.300s: cannot be made: %s", o->state, strerror(error));
    snprintf(path, sizeof path, "%.3000s/saves", o->state);
    int status = saves_known(path, &known, err);
    if (status)
        return status;
    snprintf(path, sizeof path, "%.3000s/journal", o->state);
    const journal_options wanted = {.path = path,
                                    .form = o->form,
                                    .most = (uint64_t)o->most,
                                    .queue = (uint64_t)o->queue,
                                    .known = known};
    return journal_open(&s->examples, &wanted, err);
}

/* Until a signal comes. */
static int serve(service *s, const sigset_t *signals, ls_error *err)
{
    http *server;
    int port, status = affinity_set(s->o->http_cpu, err);
    if (status == LS_OK)
        status = http_start(&server, s, &port, err);
    if (status)
        return status;
    say(LS_LOG_INFO, "listening on http://%s:%d", s->o->address, port);
    status = learner_wait_open(s->training, err);
    if (status == LS_OK)
        await(s->examples, signals);
    http_stop(server);
    return status;
}

/* The learner is there before this thread is confined to the server's CPUs. */
static int run(service *s, const sigset_t *signals, ls_error *err)
{
    ls_error ending;
    int status = open_journal(s, err);
    if (status)
        return status;
    api_init(s);
    status = learner_start(&s->training, s->o, s->examples, &s->snapshots, &s->numbers, err);
    if (status == LS_OK) {
        status = serve(s, signals, err);
        int ended = learner_stop(s->training, &ending);
        if (status == LS_OK && ended) {
            status = ended;
            *err = ending;
        }
    }
    api_fini(s);
    journal_close(s->examples);
    return status;
}

/* Targets of bce are from 0 to 1: one that is not would end training at every start. */
static int find_bits(options *o, ls_error *err)
{
    char *resolved;
    const ls_trainer_options wanted = {
        .size = sizeof wanted, .config_path = o->config, .set = o->set, .set_count = o->set_count};
    if (o->form.targets == 0)
        return LS_OK;
    int status = ls_config_resolve(&resolved, &wanted, err);
    if (status)
        return status;
    cJSON *config = cJSON_Parse(resolved);
    const cJSON *loss = cJSON_GetObjectItemCaseSensitive(config, "loss");
    o->form.bits = cJSON_IsString(loss) && strcmp(loss->valuestring, "bce") == 0;
    status = config ? LS_OK : fail(err, LS_ENOMEM, "out of memory for the config");
    cJSON_Delete(config);
    ls_text_free(resolved, NULL);
    return status;
}

int main(int argc, char **argv)
{
    options o;
    service s = {.o = &o};
    ls_error err;
    sigset_t signals;
    int status = options_read(&o, argc, argv);
    if (status != OPTIONS_RUN)
        return status;
    block_signals(&signals);
    status = find_bits(&o, &err);
    if (status == LS_OK)
        status = run(&s, &signals, &err);
    if (status)
        say(LS_LOG_ERROR, "%s", err.text);
    else
        say(LS_LOG_INFO, "stopped, everything is saved");
    return exit_code(status);
}
