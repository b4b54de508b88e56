/* SPDX-License-Identifier: MIT */
/* A back end that only records how it is called. */
#ifndef TESTS_DEVICE_FAKE_BACKEND_H
#define TESTS_DEVICE_FAKE_BACKEND_H

#include <lockstep/sys/plugin.h>
#include <pthread.h>
#include <stdatomic.h>

#define FAKE_MOST 16

/* One opened device. */
typedef struct fake_device {
    ls_device base;
    int index, threads;
    pthread_t opened_by, bound_by, closed_by;
    int bound;
    atomic_int closed;
} fake_device;

/* State of the back ends. It is global because back ends have no pointer of their own. fake_reset
 * resets it. */
typedef struct fake_state {
    int devices; /* number that probe reports */
    int broken;
    const char *reason;
    int fail_open_at, fail_bind_at; /* device index; −1: none */
    atomic_int opened;
    fake_device device[FAKE_MOST]; /* in order of opening */
} fake_state;

extern fake_state fake;
void fake_reset(void);

extern const ls_backend fake_listed;  /* "fake": devices have identities */
extern const ls_backend fake_counted; /* "many": devices are alike */

#endif
