/* The service of examples/service without its server: what it keeps, and what a power cut leaves of it.
 *
 *     power_service run --state DIR [OPTION]... CONFIG
 *         keeps BATCHES batches of examples and trains on them, saving every second; says "kept N" as soon
 *         as a client would be told, and "stopped" at the end
 *     power_service judge [OPTION]... CONFIG
 *         reads lines "DIR KEPT": how many examples somebody was told to be kept. Starts what the service
 *         starts there, looks at each of these, and answers "held N" or "VIOLATION …".
 */
#include "api.h"
#include "record.h"
#include "report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BATCHES = 4, ROWS = 20, IMAGE_MOST = 4096, PATH = 4096 };

/* An example is a function of its number. */
static void make(uint8_t *example, const options *o, uint64_t number)
{
    example[0] = (uint8_t)(number % (uint64_t)o->form.classes);
    for (uint32_t i = 0; i < o->form.row_bytes; i++)
        example[1 + i] = (uint8_t)(number * 37 + i * (number % 7 + 1));
}

static int start(service *s, ls_error *err)
{
    char path[PATH];
    const options *o = s->o;
    snprintf(path, sizeof path, "%.3000s/journal", o->state);
    const journal_options wanted = {
        .path = path, .form = o->form, .most = (uint64_t)o->most, .queue = (uint64_t)o->queue};
    const int error = file_make_directory(o->state);
    int status =
        error ? fail(err, LS_EIO, "%s", strerror(error)) : journal_open(&s->examples, &wanted, err);
    if (status)
        return status;
    api_init(s);
    status = learner_start(&s->training, o, s->examples, &s->snapshots, &s->numbers, err);
    return status ? status : learner_wait_open(s->training, err);
}

static int end(service *s, ls_error *err)
{
    int status = s->training ? learner_stop(s->training, err) : LS_OK;
    if (s->examples)
        api_fini(s);
    journal_close(s->examples);
    return status;
}

static int keep(service *s, uint64_t first, ls_error *err)
{
    static uint8_t examples[ROWS * (1 + IMAGE_MOST)];
    for (uint32_t i = 0; i < ROWS; i++)
        make(examples + i * (1 + s->o->form.row_bytes), s->o, first + i);
    int status = journal_append(s->examples, examples, ROWS, err);
    if (status == LS_OK)
        printf("kept %llu\n", (unsigned long long)first + ROWS);
    return status;
}

static int run(const options *o)
{
    static const struct timespec while_saves_come = {0, 700000000};
    service s = {.o = o};
    ls_error err, ending;
    int status = start(&s, &err);
    for (uint64_t i = 0; status == LS_OK && i < BATCHES; i++) {
        status = keep(&s, i * ROWS, &err);
        nanosleep(&while_saves_come, NULL);
    }
    int ended = end(&s, &ending);
    puts(status ? err.text : ended ? ending.text : "stopped");
    return status || ended;
}

static int all_there(const service *s, uint64_t kept, ls_error *err)
{
    uint8_t found[1 + IMAGE_MOST + JOURNAL_EXTRA], expected[1 + IMAGE_MOST];
    journal_state held;
    journal_look(s->examples, &held);
    if (held.durable < kept)
        return fail(err, LS_EDATA, "%llu examples are there", (unsigned long long)held.durable);
    for (uint64_t i = 0; i < kept; i++) {
        int status = journal_read(s->examples, i, found, err);
        make(expected, s->o, i);
        if (status)
            return status;
        if (memcmp(found, expected, 1 + s->o->form.row_bytes) != 0)
            return fail(err, LS_EDATA, "example %llu is another one", (unsigned long long)i);
    }
    return LS_OK;
}

static void judge(const options *given, const char *state, unsigned long long kept)
{
    options o = *given;
    service s = {.o = &o};
    ls_error err, ending;
    journal_state held = {0};
    o.state = state;
    o.passes = 0;
    int status = start(&s, &err);
    if (status == LS_OK) {
        status = all_there(&s, kept, &err);
        journal_look(s.examples, &held);
    }
    int ended = end(&s, &ending);
    if (status || ended)
        printf("VIOLATION of %llu examples: %s\n", kept, status ? err.text : ending.text);
    else
        printf("held %llu\n", (unsigned long long)held.durable);
}

int main(int argc, char **argv)
{
    options o;
    char line[PATH + 40], state[PATH];
    unsigned long long kept;
    if (argc < 3 || options_read(&o, argc - 1, argv + 1) != OPTIONS_RUN ||
        o.form.row_bytes > IMAGE_MOST)
        return 2;
    if (strcmp(argv[1], "run") == 0)
        return run(&o);
    while (fgets(line, sizeof line, stdin))
        if (sscanf(line, "%4000s %llu", state, &kept) == 2) {
            judge(&o, state, kept);
            fflush(stdout);
        }
    return 0;
}
