/* The calls that a service makes on a trainer, in one function: open, two steps, a prediction,
 * save, close. */
#ifndef TESTS_EMBED_SCENE_H
#define TESTS_EMBED_SCENE_H

#include <lockstep/trainer.h>

typedef struct scene {
    const char *devices;     /* "ref:2" */
    const ls_host *host;     /* NULL: the defaults */
    const char *save;        /* the checkpoint; its directory exists; NULL: no save */
    ls_registry *registry;   /* of scene_registry */
    int steps;               /* 0: two */
    void (*between)(void *); /* called between the steps; optional */
    void *user;
} scene;

/* The back ends that were built in, and the reference. Made with the C library's allocator. */
ls_registry *scene_registry(void);

/* Returns the status of the first call that failed, with its text. Whatever happens, nothing is left
 * behind but the checkpoint. `closed` receives what ls_trainer_close said; it may be NULL. */
int scene_play(const scene *s, int *closed, ls_error *err);

/* What a process has: threads, descriptors, and kilobytes in memory. A thread that was joined is still
 * listed for a moment: the number is awaited for up to a second where it is larger than `expected`. */
int process_threads(int expected);
int process_descriptors(void);
long process_resident_kb(void);

#endif
