/* The devices whose ops are tested: one per back end and per family of kernels that was built. */
#ifndef OPS_OP_DEVICES_H
#define OPS_OP_DEVICES_H

#include "ops/op_check.h"

#include <lockstep/plugin.h>

typedef struct op_device {
    const char *name;
    int declines; /* non-zero: may decline plain forms with LS_EUNSUPPORTED */
    int (*open)(ls_device **out, const ls_device_request *request, ls_error *err);
} op_device;

extern const op_device op_devices[];
extern const int op_device_count;

/* Opens and binds on the calling thread; fails the test when that fails. */
ls_device *op_device_open(const op_device *device);

#define OP_TOLERANCE 1e-5 /* what op_expect_near is given, ‖Δ‖/‖reference‖ */
#define OP_TESTS 24       /* most behaviours of a program */

/* The state that a behaviour gets: `void **state` points to a pointer to it. */
typedef struct op_fixture {
    const op_device *which;
    ls_device *device; /* opened for this behaviour alone */
} op_fixture;

typedef struct op_test {
    const char *name;
    void (*run)(void **state);
} op_test;

#define OP_TEST(behaviour)                                                                         \
    {                                                                                              \
#behaviour, behaviour                                                                      \
    }

/* The whole of main: one cmocka group per device, or only that of the device argv[1]. */
int op_run_groups(const op_test *tests, int count, int argc, char **argv);

/* Builds the chain of a case. */
typedef op_chain op_make(uint64_t seed);

/* Compares one chain with the oracle. 0 when the device declined it. */
int op_agrees(const op_fixture *f, const op_chain *chain);

/* Whether the device may answer LS_EUNSUPPORTED: to fused forms, and a device that `declines`. */
int op_may_decline(const op_fixture *f, const op_chain *chain);

/* Compares the chains of `cases` seeds with the oracle; skips the test when the device declines
 * them all. */
void op_all_agree(void **state, op_make *m, uint64_t seed, int cases);

#endif
