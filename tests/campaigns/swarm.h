/* SPDX-License-Identifier: MIT */
/* Common parts of the files of the swarm campaign: a random case, and the config keys that cases
 * have used. */
#ifndef CAMPAIGNS_SWARM_H
#define CAMPAIGNS_SWARM_H

#include <cjson/cJSON.h>
#include <lockstep/data_source.h>
#include <stdint.h>

/* ---- random numbers -------------------------------------------------------------------------- */

/* State of the generator: a number depends only on seed, case and the count of numbers drawn
 * before. */
typedef struct draws {
    uint64_t seed;
    uint32_t number, index;
} draws;

/* Draws a number from 0 to below − 1. */
uint32_t draw(draws *d, uint32_t below);
/* Returns true once in `of` draws on average. */
int one_in(draws *d, uint32_t of);
/* Draws a number from first to last. */
int draw_from(draws *d, int first, int last);
double draw_between(draws *d, double first, double last);
/* Draws one of the texts, which are NULL-terminated. */
const char *draw_word(draws *d, const char *const *words);

/* ---- cases ---------------------------------------------------------------------------------- */

enum { SWARM_WORKERS = 8 };

typedef struct swarm_case {
    uint64_t seed;
    uint32_t number;
    ls_data_source data;
    char data_name[24];
    cJSON *config;    /* without devices, capacity and run_dir */
    int most_workers; /* number of shards, or SWARM_WORKERS */
    int same_count;   /* the results depend on the number of workers */
    int evaluates;    /* the run evaluates during training */
    int unequal;      /* workers have capacities, drawn for each run of the case */
    int on_disk;      /* a run has a run directory, and one is resumed */
    int refused;      /* the CPU lacks the communicator */
    int vectors;      /* targets are vectors with a bit for each class */
    int parts;        /* number of outputs for each target or class: quantiles of the loss, or 1 */
    char inject[64];  /* fault for any number of workers; "": none */
    char lose[64];    /* fault for at least two workers; "": none */
    const char *directory;
} swarm_case;

/* Draws a whole case. `directory` is the caller's, for files that the config names. */
void swarm_draw(swarm_case *c, uint64_t seed, uint32_t number, const char *directory);
void swarm_fini(swarm_case *c);

/* Adds the place of the case's rows to "data". */
void swarm_place(swarm_case *c, draws *d, cJSON *data);

/* Draws the model of a case, with `outputs` outputs: {"layers": …}. */
cJSON *swarm_model(draws *d, const ls_data_source *data, int outputs);

/* ---- keys that cases have used --------------------------------------------------------------- */

/* Turns counting on or off. Every key that the config's readers know, and every word of their
 * choices, is recorded when they ask for it, so that no list is needed here. A config that is read
 * while counting is on counts for the keys that it has. */
void swarm_keys_count(int on);

/* Prints the counts as a member "features" of a JSON object. */
void swarm_keys_print(void);

/* Returns the number of keys and words that no config has had, counted or not. *name is the first
 * one's name, or NULL. */
int swarm_keys_missing(const char **name);

#endif
