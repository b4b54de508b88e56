/* SPDX-License-Identifier: MIT */
/* The interfaces between the files of the service. The service learns from labelled images that
 * clients send (*examples*), and predicts the classes of other images. With --type f32 a row is any
 * floats instead of an image, and each example has a weight.
 *
 *   main.c     reads the options, starts and stops the other parts
 *   learner.c  the thread that owns the trainer, and the queue of examples before it
 *   rows.c     predictions of rows of a table, with a model file
 *   http.c     the server: bodies, limits, the routes
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
    const char *config;           /* Lockstep's config file; its data.name must be "examples" */
    const char *model;            /* file of a model whose table rows are predicted; NULL: none */
    const char *state;            /* directory in which the weights are saved */
    const char *address;          /* address on which the server listens */
    const char *host[HOSTS_MOST]; /* host names by which clients may address the server */
    const char *set[SETS_MOST];   /* assignments to keys of the config */
    int host_count, set_count;
    int channels, height, width; /* shape of an image */
    ls_row_type row_type;        /* type of its values: bytes or floats */
    size_t image_bytes;          /* size of an image */
    /* size of what precedes the image in an example: the label, one byte, and, if values are
     * floats, the example's weight, a float */
    size_t head_bytes;
    long classes; /* labels are below this */
    long port;    /* 0: the system chooses a free port */
    long passes;  /* how many times each example is trained on, on average; 0: training is off */
    /* limit of examples that wait for training; number of examples that are kept after they were
     * trained on */
    long queue, replay;
    long body;              /* largest body of a request, in bytes */
    long connections;       /* limit of connections that are answered at the same time */
    long request_s, save_s; /* time limit of a request in seconds; seconds between two saves */
} options;

/* ---- metrics.c ------------------------------------------------------------------------------ */

enum {
    STEPS,
    ROWS_TRAINED,
    LOSS,
    ACCURACY,
    RATE,
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

/* Registers all metrics. *n must be zeroed, and must stay at the same address. */
void numbers_init(numbers *n);
/* Counts a step, and updates the moving averages of loss and accuracy. Called by the learner's
 * thread. */
void numbers_step(numbers *n, const ls_step_result *step, uint32_t rows);

double seconds_now(void); /* returns the time of CLOCK_MONOTONIC in seconds */

/* Stores `status` and the formatted message in `err`, and returns `status`. */
__attribute__((format(printf, 3, 4))) int fail(ls_error *err, int status, const char *format, ...);
/* Writes a line to stderr. Any thread. */
__attribute__((format(printf, 1, 2))) void say(const char *format, ...);
extern const ls_host service_host; /* the library's hooks: its log lines are written with say() */

/* ---- learner.c ------------------------------------------------------------------------------ */

typedef struct learner learner;

/* Opens the trainer, loads the saved weights if there are any, and starts the thread that trains.
 * `o` and `n` must outlive the learner. Errors: those of ls_trainer_open and ls_trainer_load,
 * LS_EIO (the state directory), LS_ENOMEM, LS_ESYSTEM. */
int learner_start(learner **out, const options *o, numbers *n, ls_error *err);

/* Appends `count` examples to the queue, all or none. Errors: LS_EAGAIN (the queue has too little
 * space); if training has failed, the status of that failure. Any thread. */
int learner_give(learner *l, const uint8_t *examples, uint32_t count, ls_error *err);

/* Sets the learning rate, from the next step on. Errors: LS_EINVAL; if training has failed, the
 * status of that failure. Any thread. */
int learner_set_rate(learner *l, double rate, ls_error *err);

/* Returns a model for predictions: the newest one that the learner has made. The
 * caller releases it. Any thread. */
ls_model *learner_model(learner *l);

/* Returns the number of examples that wait for training. *why becomes the error with which training
 * has failed; its status is 0 if training has not failed. Any thread. */
uint64_t learner_look(learner *l, ls_error *why);

/* Stops the thread after the current step, saves the weights and frees the learner. Errors: the
 * status with which training or the last save failed. */
int learner_stop(learner *l, ls_error *err);

/* ---- rows.c --------------------------------------------------------------------------------- */

/* Predicts rows of a table: `body` is a JSON object of column names and values, or an array of
 * such. *text becomes the answer, which the caller frees; an error in a row is part of it.
 * *predicted: number of rows without an error. Errors: LS_EDATA (the body is no such JSON),
 * LS_ENOMEM. Any thread. */
int rows_predict(ls_model *model, const char *body, size_t length, char **text, uint32_t *predicted,
                 ls_error *err);

/* ---- http.c --------------------------------------------------------------------------------- */

typedef struct server server;

/* Starts the server at the address and port of the options. *port becomes the port on which it
 * listens. Errors: LS_EINVAL (the address), LS_ESYSTEM, LS_ENOMEM. */
int server_start(server **out, const options *o, learner *l, numbers *n, int *port, ls_error *err);

/* Refuses new requests, answers those that have begun, and frees the server. */
void server_stop(server *s);

#endif
