/* The command line. */
#ifndef SERVICE_OPTIONS_H
#define SERVICE_OPTIONS_H

#include "example.h"

enum { OPTIONS_MOST_SET = 34, OPTIONS_MOST_HOSTS = 16 };

typedef struct options {
    const char *config; /* Lockstep's configuration, whose data.name is "examples" */
    const char *state;  /* directory */
    const char *address;
    long port;                   /* 0: any that is free */
    int channels, height, width; /* of a row; of one of floats: their number, 1, 1 */
    example_form form;
    const char *http_cpu, *train_cpu; /* as taskset writes them; NULL: anywhere */
    const char *
        hosts[OPTIONS_MOST_HOSTS]; /* names that the server has besides localhost and its address */
    int host_count;
    const char *set[OPTIONS_MOST_SET]; /* the first two are the service's own */
    int set_count;
    long classes, floats, targets; /* 0 where they are not given */
    long passes;                   /* how often training sees each example; 0: training is off */
    long queue;                    /* examples that may wait for training */
    long most;                     /* examples that the journal may hold */
    long body;                     /* bytes of a request's body */
    long connections;
    long request_s;   /* for a request's headers, for its body, for taking its reply: each */
    long predictions; /* at the same time */
    long publish_ms;  /* a snapshot for predictions is at most so much older than training */
    long save_s;      /* between two saves */
} options;

enum { OPTIONS_RUN = -1 };

/* OPTIONS_RUN, or the status to exit with: 0 after --help, 64 after a mistake, with a message. */
int options_read(options *out, int argc, char **argv);

#endif
