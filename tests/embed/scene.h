/* SPDX-License-Identifier: MIT */
/* The calls that a service makes on a trainer, in one function: open, two steps, a prediction,
 * save, close. */
#ifndef TESTS_EMBED_SCENE_H
#define TESTS_EMBED_SCENE_H

#include <lockstep/trainer.h>

typedef struct scene {
    const char *devices; /* "ref:2" */
    const ls_host *host; /* NULL: the default host */
    /* path of the checkpoint, in an existing directory; NULL: do not save */
    const char *save;
    ls_registry *registry;   /* created by scene_registry */
    int steps;               /* 0: two */
    void (*between)(void *); /* called between the steps; optional */
    void *user;
} scene;

/* Creates a registry with the built-in back ends and the reference, using the C library's
 * allocator. */
ls_registry *scene_registry(void);

/* Makes the calls, and returns the status of the first one that failed, with its text. In any case
 * nothing remains except the checkpoint. `closed` receives the result of ls_trainer_close; it may
 * be NULL. */
int scene_play(const scene *s, int *closed, ls_error *err);

/* Return the number of threads and descriptors of the process, and its resident memory in kB. A
 * joined thread is still listed for a moment: if the number is larger than `expected`, the function
 * waits up to a second. */
int process_threads(int expected);
int process_descriptors(void);
long process_resident_kb(void);

#endif
