/* Whole runs over several processes, each a thread here: over the double of the transport, or over
 * TCP with members that are lost as if they had been killed or stopped. */
#ifndef TESTS_CLUSTER_STORY_H
#define TESTS_CLUSTER_STORY_H

#include "cluster/wire_double.h"
#include "data/scratch.h"
#include "train/members.h"
#include "train/train_fixture.h"

#include <pthread.h>
#include <stdatomic.h>

#define STEPS 9 /* three epochs of 3 */

enum { MOST = 5, NEVER = -1, MARK = 100000 };

/* How a member of a scenario over TCP is lost. */
typedef enum fate {
    FATE_KILLED,  /* its connections and its listener close */
    FATE_STOPPED, /* it sends and receives nothing until it finds that it is alone */
    /* Before the member is killed, another member receives nothing from it, while the others do and
     * therefore get further. */
    FATE_KILLED_IN_SUM,   /* its part of the sum is not received */
    FATE_KILLED_IN_GATHER /* its contribution to a gather is not received */
} fate;

/* What a newcomer has that differs from the run, besides `newcomer_set`. */
typedef enum newcomer_differs {
    DIFFERS_NOTHING,
    DIFFERS_DATA, /* needs `values` */
    DIFFERS_VERSION,
    DIFFERS_SECRET
} newcomer_differs;

/* A TCP engine in which a member is lost; the `comm` of the engine. */
typedef struct mortal {
    ls_tcp_place place;
    atomic_long posts, dies_at; /* number of the post at which it is lost, or NEVER */
    int dies_regrouping;        /* number, from 1, of the regrouping in which it is lost; 0: none */
    int regroupings;
    void (*say)(void *, int, const char *); /* options of the engine above this one */
    void (*alive)(void *);
    int (*refuses)(void *, const char *, const void *, size_t, char *, size_t);
    void *user;
    ls_fingerprint print; /* the fingerprint that it sends instead of its own */
    fate fate;
    int deaf;           /* member that receives nothing before the loss */
    uint64_t killed_ns; /* time of its death; 0: not known yet */
    atomic_bool gone;
    struct process *process;
    struct story *story;
} mortal;

typedef struct process {
    fixture f;
    pthread_t thread;
    wire_place place;
    mortal mortal;
    char meet[40];
    int member;           /* over TCP: number that it was assigned */
    uint64_t dies_behind; /* step after which it dies, after further posts */
    long dies_after;      /* number of posts between that step and its death */
    char devices[32], shards[32], run_dir[420];
    ls_data_source data; /* a data set whose targets are values */
    const ls_data_source *sources[1];
    ls_trainer *trainer;
    uint64_t stop_behind; /* step after which it is asked to stop; 0: never */
    int status, records, faults, arrivals;
    uint64_t first_step, last_step; /* steps that it has recorded; first UINT64_MAX: with a gap */
    int evaluations;
    ls_error err;
    ls_result result;
    double test_loss, trained_s;
    char hash[65], devices_left[512], own_dir[500], started[4200]; /* its first record */
} process;

typedef struct story {
    int members, workers, shards;
    const char *run_dir; /* NULL: none */
    const char *resume[MOST];
    int stopper;
    uint64_t stop_behind;
    int victim;
    uint64_t kill_at;      /* number of a post; 0: never */
    uint64_t break_at;     /* post at which its engine reports a broken connection; 0: never */
    const char *nan[MOST]; /* --inject of each member */
    uint64_t posts;        /* total number of the victim's posts */
    const char *set[MOST]; /* an assignment for each member */
    /* each member begins with MARK times its number in its position's trained_s */
    bool marked;
    bool tcp;    /* over TCP; the remaining members continue */
    bool values; /* the targets are values, not classes */
    /* Over TCP: the processes from `members` on come later. When the first member has done step
     * comes[i], it waits until newcomer i has come. */
    int newcomers;
    uint64_t comes[MOST];
    const char *newcomer_set[MOST]; /* an assignment for each newcomer */
    long newcomer_dies_at;          /* number of a post of newcomer 0; 0: none */
    bool refused; /* the first member waits until newcomers have failed, not until they wait */
    newcomer_differs differs;    /* all newcomers differ in this */
    atomic_int started, waiting; /* newcomers that have been started; that wait or have failed */
    struct {
        uint64_t step;  /* step after which it is lost; 0: never */
        long posts;     /* number of posts before the loss */
        int regrouping; /* or the regrouping in which it is lost */
        fate fate;
        int deaf;
    } loss[MOST];
    process process[MOST];
} story;

/* Runs the scenario and waits for its end. Afterwards the processes are in the order of their
 * member numbers. */
void tell(story *s);
/* Returns the number of hosts in a list of devices, "[a: device, device; b: device]". */
int hosts_of(const char *devices);
/* Runs the scenario in one process. */
void alone(story *s, int shards);
/* Checks that all members have these weights and this loss, and that only the first has records. */
void all_ended_with(const story *s, const char *hash, double test_loss);

#endif
