/* The devices whose ops are tested: one for each back end and for each family of kernels in the
 * build. */
#ifndef OPS_OP_DEVICES_H
#define OPS_OP_DEVICES_H

#include "ops/op_check.h"

#include <lockstep/sys/plugin.h>

/* Sets of features: a bit for each ls_op_kind, and for the options that came later. */
typedef uint64_t op_features;

#define OP_FEATURE(kind) ((op_features)1 << (kind))
#define OP_NESTEROV OP_FEATURE(LS_OP_KINDS)
#define OP_SMOOTHING OP_FEATURE(LS_OP_KINDS + 1)
#define OP_AUGMENTED OP_FEATURE(LS_OP_KINDS + 2) /* gather with random crops and flips */

#define OP_EVERYTHING (OP_FEATURE(LS_OP_KINDS + 3) - 2)
#define OP_LENET (OP_FEATURE(LS_OP_EXPORT + 1) - 2) /* gather to export, without options */

typedef struct op_device {
    const char *name;
    op_features mandatory; /* declining a plain form of others, with LS_EUNSUPPORTED, is reported
                              and is no failure */
    const ls_backend *(*back_end)(void);
} op_device;

extern const op_device op_devices[];
extern const int op_device_count;

/* Opens and binds on the calling thread; fails the test when that fails. */
ls_device *op_device_open(const op_device *device);

#define OP_TOLERANCE 1e-5 /* what op_expect_near is given, ‖Δ‖/‖reference‖ */
#define OP_TESTS 48       /* most behaviours of a program */
#define OP_DEVICES 8

/* How many of `n` cases are run: every fourth one where OP_FEW is defined, as for a back end whose kernels are
 * stand-ins; every second one under the address sanitizer, which is four times as slow and sees memory
 * overrun, not numbers. */
#ifdef OP_FEW
#define OP_CASES(n) (((n) + 3) / 4)
#elif defined(__SANITIZE_ADDRESS__)
#define OP_CASES(n) ((n) / 2)
#else
#define OP_CASES(n) (n)
#endif

/* One device, opened for one behaviour. */
typedef struct op_fixture {
    const op_device *which;
    ls_device *device;
    op_features declined; /* so far, of what is not mandatory */
    int ran;              /* of op_all_agree: cases that the device took */
} op_fixture;

/* The state that a behaviour gets: `void **state` points to a pointer to its first fixture. OP_TEST is run
 * once for each device; OP_COMPARED once, on all devices, with as many fixtures up to one without a device:
 * so that inputs and oracle, which take most of the time, are worked out once a case. */
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

/* The whole of main: one cmocka group for the behaviours compared on all devices and one per device for
 * the others, or only those of the device argv[1]. */
int op_run_groups(const op_test *tests, int count, int argc, char **argv);

/* Builds the chain of a case. */
typedef op_chain op_make(uint64_t seed);

/* What a description, a chain needs. */
op_features op_features_of(const ls_op_desc *desc);
op_features op_chain_features(const op_chain *chain);

/* The device answered LS_EUNSUPPORTED: fails the test unless the chain has fused forms or features
 * that are not mandatory; notes the latter for the list that op_run_groups prints. */
void op_declined(op_fixture *f, const op_chain *chain);

/* The same for one op. */
void op_desc_declined(op_fixture *f, const ls_op_desc *desc);

/* Compares the chains of OP_CASES(cases) seeds with the oracle, on all fixtures; skips the test when the devices
 * decline them all. */
void op_all_agree(void **state, op_make *m, uint64_t seed, int cases);

#endif
