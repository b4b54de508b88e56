/* The parts of the service: what they hold, and what they ask of each other.
 *
 *   main.c     reads the options, starts and stops the rest
 *   http.c     the server: bodies, limits, the four routes
 *   body.c     reads the rows that a body brings
 *   learner.c  the thread that owns the trainer, and the queue of examples before it
 *   metrics.c  the numbers at /metrics, and the log
 */
#ifndef SERVICE_H
#define SERVICE_H

#include "http/metrics.h"

#include <lockstep/trainer.h>
#include <stddef.h>
#include <stdint.h>

/* What a row is, and what belongs to it as a target. An example is a target with its row behind it. */
typedef struct row_form {
    int channels, height, width; /* a row of N floats is N × 1 × 1 */
    int floats;                  /* values are floats, little-endian, not bytes */
    int targets;                 /* a target is so many floats; 0: it is one byte, the label … */
    int classes;                 /* … which is below this */
    int zero_to_one;             /* targets that are floats lie in 0 … 1, for the loss bce */
    size_t row_bytes, target_bytes, example_bytes;
} row_form;

enum { SETS_MOST = 34, HOSTS_MOST = 16 };

typedef struct options {
    const char *config;           /* Lockstep's, whose data.name is "examples" */
    const char *state;            /* directory of the save */
    const char *address;          /* where to listen */
    const char *host[HOSTS_MOST]; /* further names that the server may be asked by */
    const char *set[SETS_MOST];   /* assignments to keys of the config */
    int host_count, set_count;
    row_form form;
    long classes, floats, targets; /* as given; 0: not */
    long port;                     /* 0: any that is free */
    long passes;                   /* how often training sees each example; 0: training is off */
    long queue, replay;     /* examples that may wait; older ones that are kept for another pass */
    long body;              /* largest body of a request, in bytes */
    long connections;       /* that are answered at the same time */
    long request_s, save_s; /* patience with one request; time between two saves */
} options;

/* ---- body.c --------------------------------------------------------------------------------- */

/* JSON takes about 40 times its size while it is read, so larger bodies have to come as bytes. */
enum { BODY_JSON_MOST = 128 * 1024 };

typedef struct row_list {
    const uint8_t *bytes; /* `count` rows or examples, in the request's body or in `owned` */
    uint32_t count;
    uint8_t *owned;
} row_list;

/* Reads the rows of a body, or with `examples` the examples. Its type is application/octet-stream (as
 * they are, one behind the other) or application/json. The body outlives `out`; body_free frees that.
 * Errors: LS_EUNSUPPORTED (another type), LS_EINVAL (too large for JSON), LS_EDATA (which row is wrong,
 * and how), LS_ENOMEM. Any thread. */
int body_read(row_list *out, const row_form *form, int examples, const char *type, const char *body,
              size_t length, ls_error *err);
void body_free(row_list *r);

/* ---- metrics.c ------------------------------------------------------------------------------ */

enum { ROUTES = 4, ROUTE_NONE = ROUTES, CODE_CLASSES = 3 /* 2xx, 4xx, 5xx */ };

typedef struct numbers {
    metrics all;
    metric *steps, *trained_rows, *loss, *accuracy, *rate, *shown_step, *saves, *failed_saves;
    metric *accepted, *refused, *predicted, *queue, *ready;
    metric *requests[ROUTES + 1][CODE_CLASSES], *seconds[ROUTES + 1];
    char labels[ROUTES + 1][CODE_CLASSES][64], path[ROUTES + 1][40];
} numbers;

/* Registers all metrics. `n` is zeroed memory that stays where it is. */
void numbers_init(numbers *n, const char *const paths[ROUTES], int has_classes);
/* Counts a step and moves the means of loss and accuracy. The learner's thread. */
void numbers_step(numbers *n, const ls_step_result *step, uint32_t rows);
/* Counts a request that was answered with `code` after so many seconds. Any thread. */
void numbers_request(numbers *n, int route, int code, double took_s);

double seconds_now(void); /* of a clock that never goes back */

/* Fills `err` and returns `status`. */
__attribute__((format(printf, 3, 4))) int fail(ls_error *err, int status, const char *format, ...);
/* Writes a line to stderr, with the time. Any thread. */
__attribute__((format(printf, 2, 3))) void say(ls_log_level level, const char *format, ...);
extern const ls_host service_host; /* Lockstep's messages go to the same log */

/* ---- learner.c ------------------------------------------------------------------------------ */

typedef struct learner learner;

/* Starts the thread, and waits until the trainer is open and has gone on from the save, if there is
 * one. `o` and `n` outlive it. Errors: those of ls_trainer_open and ls_trainer_load, LS_EIO (the state
 * directory), LS_ENOMEM, LS_ESYSTEM. */
int learner_start(learner **out, const options *o, numbers *n, ls_error *err);

/* Puts examples into the queue, all or none. Returns LS_EAGAIN when it has no room for them.
 * Any thread. */
int learner_give(learner *l, const uint8_t *examples, uint32_t count, ls_error *err);

/* The newest weights that are shown. The caller releases them. Any thread. */
ls_snapshot *learner_snapshot(learner *l);

/* How many examples wait. `why` says why training has failed, and is "" while it has not. Any thread. */
uint64_t learner_look(learner *l, ls_error *why);

/* Ends the step under way, saves, ends the thread and frees. Returns what made training or the save
 * fail. */
int learner_stop(learner *l, ls_error *err);

/* ---- http.c --------------------------------------------------------------------------------- */

typedef struct server server;

extern const char *const server_paths[ROUTES];

/* Listens where the options say; *port is the one that it got. Errors: LS_EINVAL (the address),
 * LS_ESYSTEM, LS_ENOMEM. */
int server_start(server **out, const options *o, learner *l, numbers *n, int *port, ls_error *err);

/* Refuses what is new, answers what has begun, and frees. */
void server_stop(server *s);

#endif
