/* Common parts of the tests of src/train: small recipes, a registry with the reference back end,
 * and records that are kept. */
#ifndef TESTS_TRAIN_FIXTURE_H
#define TESTS_TRAIN_FIXTURE_H

#include "engine/state.h"
#include "train/trainer.h"

#include <lockstep/sys/trainer.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* Sanitizer builds train on less, and so do emulated ones. */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__) || defined(LS_EMULATED)
#define SLOW_BUILD 1
#else
#define SLOW_BUILD 0
#endif

/* Elements of an array. */
#define ROOM(array) (sizeof(array) / sizeof *(array))

#define FIXTURE_SETS 24
#define FIXTURE_RECORDS 4096

typedef struct fixture {
    ls_trainer_options options;     /* registry and the three below are filled in */
    ls_trainer_callbacks callbacks; /* record and user are filled in */
    ls_trainer_cluster cluster;
    ls_trainer_sys sys;
    ls_registry *registry;
    const char *set[FIXTURE_SETS];
    int records;
    char *record[FIXTURE_RECORDS]; /* malloc'ed, freed by fixture_end */
    int fail_record_at;            /* this record (from 1) is refused; 0: none */
    ls_error err;
} fixture;

/* Synthetic data, a net of one convolution and one dense layer, `ref:2`, no run directory. */
void fixture_begin(fixture *f);
void fixture_end(fixture *f);

/* The book's LeNet in place of the small net. */
void fixture_use_lenet(fixture *f);

/* The caller's data in place of the synthetic: `source` and the array that points to it live as long as
 * the fixture. */
void fixture_use_source(fixture *f, const ls_data_source *source,
                        const ls_data_source *pointers[1]);

/* Adds an assignment, which must live as long as the fixture. */
void fixture_set(fixture *f, const char *assignment);

/* Opens and runs; fails the test unless both work. Close it with ls_trainer_close. */
ls_trainer *fixture_open(fixture *f);
ls_trainer *fixture_run(fixture *f);

/* Opens, runs and closes; the weights' hash, good until the next call. */
const char *fixture_hash(fixture *f);

/* The number behind "key": in a record; NaN when it is not there, or null. */
double record_number(const char *record, const char *key);
/* The nth (from 0) record of a type, or NULL. */
const char *fixture_record(const fixture *f, const char *type, int nth);
int fixture_count(const fixture *f, const char *type);

/* Fails unless the weight arenas of all replicas hold the same bits. */
void replicas_are_equal(const ls_trainer *t);

/* Whether the registry that the library builds has this back end, with a device. */
int has_backend(const char *name);

#endif
