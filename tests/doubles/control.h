/* SPDX-License-Identifier: MIT */
/* Doubles of the CUDA runtime and of NCCL: how a test controls them and queries what happened.
 *
 *     dbl_begin(&(dbl_options){.mode = DBL_THREADS, .devices = 2});
 *     dbl_fail("cudaMalloc", 3, 0);                    the third cudaMalloc from now on fails
 *     … code that was written for CUDA …
 *     assert_string_equal(dbl_end(), "");              no violation, no leak, nothing in flight
 *
 * They are linked in place of libcudart and libnccl, compiled against the real headers, and exist
 * only in tests. "Device memory" is host memory that is tagged with its device.
 *
 * Modes. The work of a stream may run in any order that streams, events and collectives allow:
 *     DBL_THREADS  Each stream is a thread. With the thread sanitizer, a missing wait is a race.
 *     DBL_LAZY     Nothing runs before a thread synchronises. Seed 0: then only the work that it
 *                  waits for runs; any other seed: streams take turns at random. A missing wait
 *                  shows in the result, the same way each time.
 *     DBL_EAGER    Everything runs as soon as it can. Detects no missing wait.
 *
 * Memory order in DBL_THREADS. The sanitizer must see the edges that CUDA promises and no others,
 * or it would take a race for ordered:
 *   - Each item of a stream's queue carries its own release (enqueue) and acquire (execution): an
 *     item sees what its host thread did before *this* enqueue, not before later ones. A queue with
 *     a lock would also order the item after later enqueues, and hide a staging buffer that is
 *     refilled too early.
 *   - Nothing flows back from a stream to the host except through a synchronisation: counters of
 *     finished items are read relaxed while they are polled, and with acquire once they suffice.
 *   - An event carries one release (record) and one acquire (wait, query, synchronise).
 *   - A collective sends messages from rank to rank, each with a release and an acquire of its own:
 *     a rank's sum comes after the contribution of every rank, and after nothing else of theirs.
 *   - Bookkeeping that both sides access (the table of allocations, counters of calls, rules) is
 *     read with relaxed atomics. Locks are taken only where objects are created and destroyed.
 *
 * Checks: memory (a copy or kernel accesses only its device's memory, a peer's with access enabled,
 * or pinned memory, inside one allocation; asynchronous copies need pinned memory; memory that a
 * collective may still access is not freed), devices (a stream's work is enqueued with its device
 * current; the legacy default stream is not used), handles (nothing is used after its destruction),
 * capture (in a capturing thread no synchronisation, allocation or event query; forks are joined),
 * and NCCL (ranks agree on the sequence; two ranks on one GPU are refused; a non-blocking
 * communicator is not used before it is ready). A violation fails the call and is recorded as a
 * complaint.
 *
 * Threads: no other thread may be inside a double during dbl_begin and dbl_end. The other functions
 * may be called by any thread. */
#ifndef TESTS_DOUBLES_CONTROL_H
#define TESTS_DOUBLES_CONTROL_H

#include <stddef.h>
#include <stdint.h>

typedef enum dbl_mode { DBL_THREADS, DBL_LAZY, DBL_EAGER } dbl_mode;

typedef struct dbl_options {
    dbl_mode mode;
    uint32_t seed;       /* for DBL_LAZY, and for the order of a graph's nodes in every mode */
    int devices;         /* 0: there is no driver (cudaErrorInsufficientDriver) */
    size_t memory_bytes; /* memory of each device; 0: 1 GiB */
    int nccl_polls;      /* how often a non-blocking NCCL call returns "in progress" first */
    /* A wait that takes longer is a hang: it ends with cudaErrorLaunchTimeout and a complaint. 0:
     * 20 s. */
    uint64_t patience_ns;
} dbl_options;

#define DBL_DEVICES 16 /* largest number of devices */

/* Begins with the state of new devices, no rules, and counters at zero. */
void dbl_begin(const dbl_options *options);

/* Runs what is still enqueued, ends all threads, and returns the complaints and leaks, one a line,
 * or "". The text is valid until the next dbl_begin. */
const char *dbl_end(void);

/* For doubles that end with the program, in its last destructor: prints complaints on stderr, and
 * makes the program fail if there are any. */
void dbl_end_of_program(void);

/* ---- failures ------------------------------------------------------------------------------- */

/* Makes the n-th call from now on (1: the next) of `function` return `error`, or, if it is 0, the
 * usual error of the function. `function` is a name such as "cudaMalloc", "launch" for kernels, or
 * NULL for any function that can fail. A function that releases something releases it
 * nevertheless. */
void dbl_fail(const char *function, int nth, int error);

/* Makes the call take this long, unless dbl_go_on is called first. */
void dbl_stall(const char *function, int nth, uint64_t ns);
void dbl_go_on(void);

/* The device that is current in that call is lost: the call and every later one on the device fail
 * with `error` (0: cudaErrorECCUncorrectable), and the work in its streams is dropped. */
void dbl_lose_at(const char *function, int nth, int error);
void dbl_lose_device(int device, int error);

/* Stops the work of the device's streams before the next item, until dbl_go_on. */
void dbl_stall_streams(int device);

/* Makes the n-th call from now on of `function` return success and do nothing, to plant the bug of
 * a missing call. Only for calls without results: waits and synchronisations. */
void dbl_skip(const char *function, int nth);
void dbl_skip_all(const char *function);

/* Returns the number of calls since dbl_begin. NULL: of all functions that can fail. */
long dbl_calls(const char *function);

/* Returns the functions that can fail, NULL-terminated. */
const char *const *dbl_functions(void);

/* Calls the watcher after each kernel twin from now on, on the thread that ran it, with its name,
 * the bytes that it declared to access and, for a product, the floating-point operations: 2 for
 * each multiplication; `tiled` counts channels in whole tiles of the tensor cores (16 bytes in, 32
 * channels out). NULL: no watcher. */
typedef struct dbl_cost {
    const char *name;
    double bytes, operations, tiled;
} dbl_cost;
typedef void dbl_watcher(const dbl_cost *cost);
void dbl_watch(dbl_watcher *watcher);

/* Each plan that the math double makes from now on requests this much workspace. */
void dbl_ask_workspace(size_t bytes);

/* Convolutions choose this engine of the math double from now on. The engines give different
 * bits. */
void dbl_prefer_engine(int engine);

/* decline: non-zero: no plan that the math double makes from now on runs Lockstep's own kernels for
 * convolutions of few channels (own_conv.h). 0, the default: all plans do that can. */
void dbl_decline_own_kernels(int decline);

/* Returns how often a communicator was aborted outside of an NCCL group while other ranks of its id
 * were there and had not been aborted. Such an abort can wait for the other ranks. */
int dbl_lone_aborts(void);

/* Sets the product name of a device; NULL: that of all doubles. */
void dbl_name_device(int device, const char *name);

/* Sets the version that cudaDriverGetVersion returns; 0: that of the runtime. */
void dbl_set_driver(int version);

/* ---- live objects ---------------------------------------------------------------------------- */

typedef struct dbl_live {
    int allocations, pinned, streams, events, graphs, execs, comms;
    size_t device_bytes;
} dbl_live;

dbl_live dbl_count_live(void);

/* Returns the complaints so far, "" if there are none. A test that expects one clears it. */
const char *dbl_complaints(void);
void dbl_clear_complaints(void);

#endif
