/* Training speed in rounds, for comparisons: each line read from stdin starts one round of steps,
 * and its rate is printed as one JSON line. Between rounds nothing runs, so that several programs
 * can take turns on the same machine (bench/peers/run.py).
 *
 *     trainer_rounds CONFIG [--steps N] [--set KEY=VALUE]…
 *
 * A round is N steps (default 60) in the middle of training; the first round also warms up.
 */
#include <lockstep/trainer.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Runs on the coordinator: when a round's steps are done it prints the rate and waits, with the
 * workers idle, for the next line. The step under way beside it (two may be in flight) is waited
 * out by the first steps of the next round, which are not counted. */
typedef struct rounds {
    ls_trainer *trainer;
    uint64_t steps_per_round;
    uint64_t step; /* of this round */
    uint64_t rows;
    double start_s;
} rounds;

enum { UNCOUNTED = 4 };

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int wait_for_line(void)
{
    int c;
    while ((c = getchar()) != '\n' && c != EOF)
        continue;
    return c == '\n';
}

static int number_after(const char *json, const char *key, unsigned long *out)
{
    const char *at = strstr(json, key);
    if (!at)
        return 0;
    *out = strtoul(at + strlen(key), NULL, 10);
    return 1;
}

static int on_record(void *user, const char *json, size_t length, ls_error *err)
{
    rounds *r = user;
    unsigned long rows;
    (void)length;
    (void)err;
    if (!strstr(json, "\"type\":\"step\"") || !number_after(json, "\"rows\":", &rows))
        return LS_OK;
    r->step++;
    if (r->step == UNCOUNTED) {
        r->rows = 0;
        r->start_s = now_s();
        return LS_OK;
    }
    r->rows += rows;
    if (r->step < UNCOUNTED + r->steps_per_round)
        return LS_OK;
    printf("{\"images_per_s\": %.1f}\n", (double)r->rows / (now_s() - r->start_s));
    fflush(stdout);
    r->step = 0;
    if (!wait_for_line())
        ls_trainer_interrupt(r->trainer);
    return LS_OK;
}

int main(int argc, char **argv)
{
    const char *set[64] = {"run_dir=null", "epochs=100000", "eval_every=0"};
    int set_count = 3;
    rounds r = {.steps_per_round = 60};
    const char *config = NULL;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--steps") == 0 && i + 1 < argc)
            r.steps_per_round = strtoull(argv[++i], NULL, 10);
        else if (strcmp(argv[i], "--set") == 0 && i + 1 < argc && set_count < 64)
            set[set_count++] = argv[++i];
        else
            config = argv[i];
    }
    const char *dirs[] = {"/usr/share/datasets"};
    ls_trainer_options o = {.size = sizeof o,
                            .config_path = config,
                            .set = set,
                            .set_count = set_count,
                            .data_dirs = dirs,
                            .data_dir_count = 1,
                            .record = on_record,
                            .user = &r};
    ls_error err;
    if (!config || ls_trainer_open(&r.trainer, &o, &err) != LS_OK) {
        fprintf(stderr, "trainer_rounds: %s\n", config ? err.text : "which config?");
        return 64;
    }
    int status = wait_for_line() ? ls_trainer_run(r.trainer, &err) : LS_EINTERRUPTED;
    ls_trainer_close(r.trainer);
    if (status != LS_EINTERRUPTED)
        fprintf(stderr, "trainer_rounds: %s\n", err.text);
    return status == LS_EINTERRUPTED ? 0 : 1;
}
