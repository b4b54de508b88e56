/* SPDX-License-Identifier: MIT */
/* *Scenarios*: whole training runs over several processes, the *members* of the run. A thread of
 * the test stands for each process. The processes are connected by a simulated transport
 * (wire_double.h), or by TCP, where members can be lost as if they had been killed or stopped. A
 * *newcomer* is a process that comes to a run that has begun. A *post* is one call of the
 * transport's function post. */
#ifndef TESTS_CLUSTER_SCENARIO_H
#define TESTS_CLUSTER_SCENARIO_H

#include "cluster/wire_double.h"
#include "data/scratch.h"
#include "train/members.h"
#include "train/own_data.h"
#include "train/train_fixture.h"

#include <pthread.h>
#include <stdatomic.h>

#define STEPS 9 /* number of training steps: three epochs of 3 steps */

enum { MAX_MEMBERS = 5, NEVER = -1, MARK = 100000 };

/* A member that advertises it gets the highest number of its group. */
#define UNREACHED "127.255.255.254:9"

/* How a member of a scenario over TCP is lost. */
typedef enum fate {
    FATE_KILLED, /* its connections and its listener close */
    /* it sends and receives nothing, until it regroups and finds that the others have gone on */
    FATE_STOPPED,
    /* With the kinds below, one other member (`deaf`) receives nothing from the member in the time
     * before it is killed. The remaining members receive its messages, and therefore get
     * further. */
    FATE_KILLED_IN_SUM,   /* the deaf member does not receive its part of the sum */
    FATE_KILLED_IN_GATHER /* the deaf member does not receive its part of a gather */
} fate;

/* In what a newcomer differs from the run, besides scenario.newcomer_set. */
typedef enum newcomer_differs {
    DIFFERS_NOTHING,
    DIFFERS_DATA, /* only with `values` */
    DIFFERS_VERSION,
    DIFFERS_SECRET
} newcomer_differs;

/* The `place` (ls_wire_options) of a transport that works like TCP, except that a member can be
 * lost. */
typedef struct mortal {
    ls_tcp_place place;
    /* `posts`: number of posts so far; `dies_at`: number of the post at which the member is lost,
     * or NEVER */
    atomic_long posts, dies_at;
    int dies_regrouping; /* number, from 1, of the regrouping in which it is lost; 0: none */
    int regroupings;
    void (*say)(void *, int, const char *); /* the function `say` of the transport's options */
    void (*alive)(void *);
    int (*refuses)(void *, const char *, const void *, size_t, char *, size_t);
    void *user;
    ls_fingerprint print; /* fingerprint that the process sends instead of its own */
    fate fate;
    int deaf;           /* member that receives nothing before the loss */
    uint64_t killed_ns; /* time at which the member is killed; 0: not known yet */
    atomic_bool gone;
    struct process *process;
    struct scenario *scenario;
} mortal;

typedef struct process {
    fixture f;
    pthread_t thread;
    wire_place place;
    mortal mortal;
    char meet[40];
    /* over TCP: the process's member number; for a newcomer: its index in scenario.process */
    int member;
    /* training step after which the member is lost; 0: never */
    uint64_t dies_after_step;
    long dies_after_posts; /* number of posts between dies_after_step and the loss */
    char devices[32], shards[32], run_dir[420];
    const char *inject[2]; /* faults of the process, as in --inject */
    ls_data_source data;   /* with scenario.values: a data set whose targets are vectors */
    const ls_data_source *sources[1];
    ls_trainer *trainer;
    uint64_t stop_after_step; /* training step after which the process is asked to stop; 0: never */
    double lr;                /* rate that it sets; 0: none */
    int status, records, faults, arrivals, failed_arrivals;
    char failed_arrival[400]; /* the last record of a failed admission */
    /* `first_step` and `last_step`: the first and the last training step that the process has
     * recorded. first_step is UINT64_MAX if there is a gap between recorded steps */
    uint64_t first_step, last_step;
    int evaluations;
    ls_error err;
    ls_result result;
    double test_loss, trained_s;
    /* texts of the process's records; `started` is its first record */
    char hash[65], devices_left[512], own_dir[500], started[4200];
    char evaluated[4200]; /* the last record of an evaluation, without its duration */
    float train_weights[OWN_TRAIN], test_weights[OWN_TEST]; /* with scenario.weighted */
} process;

typedef struct scenario {
    int members, workers, shards;
    const char *run_dir; /* NULL: none */
    const char *resume[MAX_MEMBERS];
    int stopper;
    uint64_t stop_after_step;
    int victim;
    uint64_t kill_at; /* number of the post at which member `victim` is cut off; 0: never */
    /* number of the post at which the transport reports a broken connection; 0: never */
    uint64_t break_at;
    const char *nan[MAX_MEMBERS]; /* --inject of each member */
    const char *stall;            /* a further --inject of every member with an injection */
    uint64_t posts;               /* number of posts of member `victim` in the whole run */
    const char *set[MAX_MEMBERS]; /* [member]: a config assignment */
    bool launched;                /* a launcher has started the processes */
    const char *failed;           /* ls_trainer_sys.failed of the last member */
    /* [member]: its clock of checkpoint.every_seconds, without an argument; NULL: the system's */
    uint64_t (*clock[MAX_MEMBERS])(void *);
    const char *recipe[2]; /* config assignments of all processes */
    /* each member begins with trained_s = MARK times its number, a value that tells members
     * apart */
    bool marked;
    bool tcp;    /* the processes are connected by TCP, and survivors of a loss continue */
    bool values; /* the targets are vectors, not classes */
    /* with `values`: the rows are streamed doubles of different sizes, and so are the targets */
    bool streamed;
    bool weighted;          /* with `values`: the rows have weights */
    double lr[MAX_MEMBERS]; /* [member]: the rate of ls_trainer_set_lr; 0: it is not called */
    /* Over TCP: number of newcomers. The newcomers are the processes from index `members` on. When
     * the first member has done training step comes[i], it starts newcomer i and waits until the
     * newcomer has come. */
    int newcomers;
    uint64_t comes[MAX_MEMBERS];
    const char *newcomer_set[MAX_MEMBERS]; /* [newcomer]: a config assignment */
    long newcomer_dies_at; /* number of the post at which newcomer 0 is lost; 0: never */
    /* the newcomers are refused: the first member waits until they have failed */
    bool refused;
    /* Over TCP: address at which a process says that it is reached; NULL: its own. No program
     * listens at UNREACHED. */
    const char *advertise[MAX_MEMBERS];
    newcomer_differs differs; /* in what all newcomers differ from the run */
    /* `started`: number of newcomers that have been started; `waiting`: number of newcomers that
     * wait or have failed */
    atomic_int started, waiting;
    struct {
        uint64_t step;  /* training step after which the member is lost; 0: never */
        long posts;     /* number of posts before the loss */
        int regrouping; /* number of the regrouping in which the member is lost; 0: none */
        fate fate;
        int deaf;
    } loss[MAX_MEMBERS];
    process process[MAX_MEMBERS];
} scenario;

/* Runs the scenario and waits for its end. Afterwards the processes are sorted by their member
 * numbers. */
void run_scenario(scenario *s);
/* Returns the number of hosts in a list of devices, such as "[a: device, device; b: device]". */
int hosts_of(const char *devices);
/* Overwrites *s with a run in one process, and runs it. It must succeed. */
void run_in_one_process(scenario *s, int shards);
/* Checks that all members have ended with these weights (`hash`) and this test loss, and that only
 * the first member has records. */
void all_ended_with(const scenario *s, const char *hash, double test_loss);

#endif
