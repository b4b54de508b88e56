/* Common parts of the files of the swarm campaign: a random case, and the config keys that cases
 * have used. */
#ifndef CAMPAIGNS_SWARM_H
#define CAMPAIGNS_SWARM_H

#include <cjson/cJSON.h>
#include <lockstep/data_source.h>
#include <stdint.h>

/* ---- draws ---------------------------------------------------------------------------------- */

/* A pure function of seed, case and how many were drawn before. */
typedef struct draws {
    uint64_t seed;
    uint32_t number, index;
} draws;

/* 0 … below − 1. */
uint32_t draw(draws *d, uint32_t below);
/* True once in `of` draws. */
int one_in(draws *d, uint32_t of);
/* first … last. */
int draw_from(draws *d, int first, int last);
double draw_between(draws *d, double first, double last);
/* One of the texts, which end with NULL. */
const char *draw_word(draws *d, const char *const *words);

/* ---- cases ---------------------------------------------------------------------------------- */

enum { SWARM_WORKERS = 8 };

typedef struct swarm_case {
    uint64_t seed;
    uint32_t number;
    ls_data_source data;
    char data_name[24];
    cJSON *config;    /* without devices, capacity and run_dir */
    int most_workers; /* as many as there are shards, or SWARM_WORKERS */
    int same_count;   /* results depend on how many workers there are */
    int evaluates;    /* while it goes on */
    int unequal;      /* workers have capacities, drawn for each leg */
    int on_disk;      /* a leg has a run directory, and one is resumed */
    int refused;      /* the CPU has no such communicator */
    int vectors;      /* targets are vectors, a bit for each class */
    char inject[64];  /* with any number of workers; "": nothing */
    char lose[64];    /* with at least two; "": nothing */
    const char *directory;
} swarm_case;

/* Draws everything. `directory` is the caller's, for files that the config names. */
void swarm_draw(swarm_case *c, uint64_t seed, uint32_t number, const char *directory);
void swarm_fini(swarm_case *c);

/* Adds to "data" where the case's rows lie. */
void swarm_place(swarm_case *c, draws *d, cJSON *data);

/* The model of a case: {"layers": …}. */
cJSON *swarm_model(draws *d, const ls_data_source *data);

/* ---- keys that were reached ----------------------------------------------------------------- */

/* Every key that the config's readers know, and every word of their choices, is noted as they ask for
 * it, without a list of our own. Configs read while `counting` count for what they have. */
void swarm_keys_count(int on);

/* Prints the counts, as a member "features" of a JSON object. */
void swarm_keys_print(void);

/* How many keys and words no config has had, counted or not; the first one's name, or NULL. */
int swarm_keys_missing(const char **name);

#endif
