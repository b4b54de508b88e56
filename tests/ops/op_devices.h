/* SPDX-License-Identifier: MIT */
/* The devices whose ops are tested: one for each back end and for each family of kernels in the
 * build. */
#ifndef OPS_OP_DEVICES_H
#define OPS_OP_DEVICES_H

#include "ops/op_check.h"

#include <lockstep/sys/plugin.h>

/* A set of features: a bit for each ls_op_kind, and for options that were added later. */
typedef uint64_t op_features;

#define OP_FEATURE(kind) ((op_features)1 << (kind))
#define OP_NESTEROV OP_FEATURE(LS_OP_KINDS)
#define OP_SMOOTHING OP_FEATURE(LS_OP_KINDS + 1)
#define OP_AUGMENTED OP_FEATURE(LS_OP_KINDS + 2) /* gather with random crops and flips */

#define OP_EVERYTHING (OP_FEATURE(LS_OP_KINDS + 3) - 2)
/* all kinds from gather to export, without options */
#define OP_LENET (OP_FEATURE(LS_OP_EXPORT + 1) - 2)

typedef struct op_device {
    const char *name;
    /* Features that the back end must implement. If a device declines an op of another feature with
     * LS_EUNSUPPORTED, the test program only reports this. */
    op_features mandatory;
    const ls_backend *(*back_end)(void);
} op_device;

extern const op_device op_devices[];
extern const int op_device_count;

/* Opens and binds a device on the calling thread; fails the test if that fails. */
ls_device *op_device_open(const op_device *device);

#define OP_TOLERANCE 1e-5 /* bound of op_expect_near, ‖Δ‖/‖reference‖ */
#define OP_TESTS 48       /* largest number of tests of a program */
#define OP_DEVICES 8

/* Number of cases to run out of `n`. It is a quarter of n if OP_FEW is defined, as for a back end
 * whose kernels are test doubles. It is half of n under the address sanitizer, which makes tests
 * four times as slow and is there to find memory errors, not wrong numbers. */
#ifdef OP_FEW
#define OP_CASES(n) (((n) + 3) / 4)
#elif defined(__SANITIZE_ADDRESS__)
#define OP_CASES(n) ((n) / 2)
#else
#define OP_CASES(n) (n)
#endif

/* A device that was opened for one test. */
typedef struct op_fixture {
    const op_device *which;
    ls_device *device;
    /* features that the device has declined so far and that are not mandatory */
    op_features declined;
    int ran; /* op_all_agree: number of cases that the device accepted */
} op_fixture;

/* A test. `void **state` points to a pointer to its first fixture. A test OP_TEST is run once for
 * each device. A test OP_COMPARED is run once for all devices: its array of fixtures has one for
 * each device, and a last one without a device. Therefore inputs and reference, which take most of
 * the time, are computed once for each case. */
typedef struct op_test {
    const char *name;
    void (*run)(void **state);
    int compared;
} op_test;

#define OP_TEST(behaviour)                                                                         \
    {                                                                                              \
#behaviour, behaviour, 0                                                                   \
    }
#define OP_COMPARED(behaviour)                                                                     \
    {                                                                                              \
#behaviour, behaviour, 1                                                                   \
    }

/* The body of main. Runs one cmocka group with the tests OP_COMPARED, and one group for each device
 * with the tests OP_TEST; or only the group of the device argv[1]. */
int op_run_groups(const op_test *tests, int count, int argc, char **argv);

/* Builds the chain of a case. */
typedef op_chain op_make(uint64_t seed);

/* Return the features that a description, or a chain, needs. */
op_features op_features_of(const ls_op_desc *desc);
op_features op_chain_features(const op_chain *chain);

/* Called if the device has returned LS_EUNSUPPORTED. If the chain has fused forms or features that
 * are not mandatory, records these features for the list that op_run_groups prints. Otherwise fails
 * the test. */
void op_declined(op_fixture *f, const op_chain *chain);

/* Does the same as op_declined for a single op. */
void op_desc_declined(op_fixture *f, const ls_op_desc *desc);

/* Compares the chains of OP_CASES(cases) seeds, from `seed` on, with the reference, on all
 * fixtures. Skips the test if the devices decline all chains. */
void op_all_agree(void **state, op_make *m, uint64_t seed, int cases);

#endif
