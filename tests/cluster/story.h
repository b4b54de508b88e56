/* Whole runs over several processes, each a thread here: over the double of the transport, or over
 * TCP with members that are lost as if they had been killed or stopped. */
#ifndef TESTS_CLUSTER_STORY_H
#define TESTS_CLUSTER_STORY_H

#include "cluster/wire_double.h"
#include "data/scratch.h"
#include "train/train_fixture.h"

#include <pthread.h>
#include <stdatomic.h>

#define STEPS 9 /* three epochs of 3 */

enum { MOST = 4, NEVER = -1, MARK = 100000 };

/* What befalls a member of a story over TCP. */
typedef enum fate {
    FATE_KILLED,  /* its connections and its door close */
    FATE_STOPPED, /* it says and hears nothing until it finds out that it is alone */
    /* Before it is killed, another one hears nothing of it, while the rest do, so that they get further: */
    FATE_KILLED_IN_SUM,   /* of its part of the sum */
    FATE_KILLED_IN_GATHER /* of what it brings to a gather */
} fate;

/* The engine tcp, in which that happens: its `comm`. */
typedef struct mortal {
    ls_tcp_place place;
    atomic_long posts, dies_at; /* the post of its run, or NEVER */
    int dies_regrouping;        /* in the regrouping of that number, from 1; 0: in none */
    int regroupings;
    fate fate;
    int deaf;           /* who hears nothing before it is killed */
    uint64_t killed_ns; /* when it will be; 0: not known yet */
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
    int member;           /* over TCP: as it turned out */
    uint64_t dies_behind; /* this step, … */
    long dies_after;      /* … so many posts later */
    char devices[32], shards[32], run_dir[420];
    ls_trainer *trainer;
    uint64_t stop_behind; /* this step: asked to stop; 0: never */
    int status, records, faults;
    uint64_t first_step, last_step; /* that it has recorded; first UINT64_MAX: with a gap */
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
    uint64_t kill_at;      /* a post; 0: never */
    uint64_t break_at;     /* the same; its engine says so */
    const char *nan[MOST]; /* --inject of one member */
    uint64_t posts;        /* of the victim, in all */
    const char *set[MOST]; /* of one member */
    bool marked;           /* each begins with MARK times its number in its position's trained_s */
    bool tcp;              /* over TCP, and those that are left go on */
    struct {
        uint64_t step;  /* behind which it is lost; 0: never */
        long posts;     /* that it makes before */
        int regrouping; /* or that one, in which it is lost */
        fate fate;
        int deaf;
    } loss[MOST];
    process process[MOST];
} story;

/* Does what the story says, and waits for its end. Behind it processes stand in the order of their numbers. */
void tell(story *s);
/* One process does it. */
void alone(story *s, int shards);
/* All members have these weights and this loss, and the first alone has records. */
void all_ended_with(const story *s, const char *hash, double test_loss);

#endif
