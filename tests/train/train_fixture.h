/* SPDX-License-Identifier: MIT */
/* A fixture that the tests of src/train share: the options of a trainer with a small config, a
 * registry (list of back ends) with the reference back end, and the records that a run has
 * emitted. */
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

/* Builds with a sanitizer, and builds that run in an emulator, train on less data. */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__) || defined(LS_EMULATED)
#define SLOW_BUILD 1
#else
#define SLOW_BUILD 0
#endif

/* Number of elements of an array. */
#define ROOM(array) (sizeof(array) / sizeof *(array))

#define FIXTURE_SETS 24
#define FIXTURE_RECORDS 4096

typedef struct fixture {
    /* options for ls_trainer_open; fixture_begin makes them point to `callbacks`, `cluster`, `sys`
     * and `registry` below */
    ls_trainer_options options;
    ls_trainer_callbacks callbacks; /* fixture_begin sets `record` and `user` */
    ls_trainer_cluster cluster;
    ls_trainer_sys sys;
    ls_registry *registry;
    const char *set[FIXTURE_SETS]; /* assignments of config keys, "key=value" */
    int records;                   /* number of entries of `record` */
    /* the records received so far, allocated by malloc, freed by fixture_end */
    char *record[FIXTURE_RECORDS];
    /* number, from 1, of the record that the callback refuses; 0: none */
    int fail_record_at;
    ls_error err;
} fixture;

/* Sets a config with 96 synthetic rows, `batch_size` 32, 4 shards, one epoch, a network of one
 * convolution and one dense layer, the devices `ref:2`, and no run directory. */
void fixture_begin(fixture *f);
void fixture_end(fixture *f);

/* Uses the book's LeNet instead of the small network. */
void fixture_use_lenet(fixture *f);

/* Uses the caller's data instead of synthetic data. `source` and the array that points to it must
 * live as long as the fixture. */
void fixture_use_source(fixture *f, const ls_data_source *source,
                        const ls_data_source *pointers[1]);

/* Adds an assignment of a config key ("key=value"), which must live as long as the fixture. */
void fixture_set(fixture *f, const char *assignment);

/* Opens a trainer, which the caller closes with ls_trainer_close. Fails the test if that fails. */
ls_trainer *fixture_open(fixture *f);
/* Opens and runs a trainer, which the caller closes. Fails the test if opening or running fails. */
ls_trainer *fixture_run(fixture *f);

/* Opens, runs and closes a trainer. Returns the hash of its weights, which is valid until the next
 * call. */
const char *fixture_hash(fixture *f);

/* Returns the number that a record has for `key`; NaN if the key is missing or null. */
double record_number(const char *record, const char *key);
/* Returns the nth record (from 0) of a type, or NULL. */
const char *fixture_record(const fixture *f, const char *type, int nth);
int fixture_count(const fixture *f, const char *type);

/* Fails the test unless the weights of all replicas (the workers' copies of the model) have the
 * same bits. */
void replicas_are_equal(const ls_trainer *t);

/* Returns whether the library's registry has this back end, and the back end has a device. */
int has_backend(const char *name);

#endif
