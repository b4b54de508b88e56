/* The parts of the service: what they hold, and what they ask of each other.
 *
 *   main.c     reads the options, starts and stops the rest
 *   learner.c  the thread that owns the trainer, and the queue of examples before it
 *   http.c     the server: bodies, limits, the four routes
 *   metrics.c  the numbers at /metrics, and the log
 */
#ifndef SERVICE_H
#define SERVICE_H

#include "http/metrics.h"

#include <lockstep/trainer.h>
#include <stddef.h>
#include <stdint.h>

enum { SETS_MOST = 34, HOSTS_MOST = 16 };

typedef struct options {
    const char *config;           /* Lockstep's, whose data.name is "examples" */
    const char *state;            /* directory of the save */
    const char *address;          /* the server's address */
    const char *host[HOSTS_MOST]; /* further names that the server may be asked by */
    const char *set[SETS_MOST];   /* assignments to keys of the config */
    int host_count, set_count;
    int channels, height, width; /* shape of an image, one byte per value */
    size_t image_bytes;          /* an example has one more, its label, before the image */
    long classes;                /* labels are below this */
    long port;                   /* 0: any that is free */
    long passes;                 /* how often training sees each example; 0: training is off */
    long queue, replay;     /* examples that may wait; older ones that are kept for another pass */
    long body;              /* largest body of a request, in bytes */
    long connections;       /* that are answered at the same time */
    long request_s, save_s; /* patience with one request; time between two saves */
} options;

/* ---- metrics.c ------------------------------------------------------------------------------ */

enum {
    STEPS,
    ROWS_TRAINED,
    LOSS,
    ACCURACY,
    SHOWN_STEP,
    SAVES,
    FAILED_SAVES,
    ACCEPTED,
    REFUSED,
    PREDICTED,
    QUEUE,
    READY,
    ANSWERS_2XX,
    ANSWERS_4XX,
    ANSWERS_5XX,
    NUMBERS
};

typedef struct numbers {
    metrics all;
    metric *of[NUMBERS];
} numbers;

/* Registers all metrics. `n` is zeroed memory that stays where it is. */
void numbers_init(numbers *n);
/* Counts a step and moves the means of loss and accuracy. The learner's thread. */
void numbers_step(numbers *n, const ls_step_result *step, uint32_t rows);

double seconds_now(void); /* time of a monotonic clock */

/* Fills `err` and returns `status`. */
__attribute__((format(printf, 3, 4))) int fail(ls_error *err, int status, const char *format, ...);
/* Writes a line to stderr. Any thread. */
__attribute__((format(printf, 1, 2))) void say(const char *format, ...);
extern const ls_host service_host; /* Lockstep's messages go to the same log */

/* ---- learner.c ------------------------------------------------------------------------------ */

typedef struct learner learner;

/* Opens the trainer, goes on from the save if there is one, and starts the thread. `o` and `n`
 * outlive it. Errors: those of ls_trainer_open and ls_trainer_load, LS_EIO (the state directory),
 * LS_ENOMEM, LS_ESYSTEM. */
int learner_start(learner **out, const options *o, numbers *n, ls_error *err);

/* Puts examples into the queue, all or none. Errors: LS_EAGAIN when it has no room for them, and
 * what has ended the training. Any thread. */
int learner_give(learner *l, const uint8_t *examples, uint32_t count, ls_error *err);

/* The newest weights that are shown. The caller releases them. Any thread. */
ls_snapshot *learner_snapshot(learner *l);

/* How many examples wait. `why` says why training has failed; its status is 0 while it has not. Any
 * thread. */
uint64_t learner_look(learner *l, ls_error *why);

/* Ends the step under way, saves, ends the thread and frees. Returns what made training or the save
 * fail. */
int learner_stop(learner *l, ls_error *err);

/* ---- http.c --------------------------------------------------------------------------------- */

typedef struct server server;

/* Listens where the options say; *port is the one that it got. Errors: LS_EINVAL (the address),
 * LS_ESYSTEM, LS_ENOMEM. */
int server_start(server **out, const options *o, learner *l, numbers *n, int *port, ls_error *err);

/* Refuses what is new, answers what has begun, and frees. */
void server_stop(server *s);

#endif
