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
    uint32_t seed;        /* DBL_LAZY, and the order of a graph's nodes in every mode */
    int devices;          /* 0: there is no driver (cudaErrorInsufficientDriver) */
    size_t memory_bytes;  /* of each device; 0: 1 GiB */
    int nccl_polls;       /* how often a non-blocking NCCL call answers "in progress" first */
    uint64_t patience_ns; /* a wait that takes longer is a hang: it ends with cudaErrorLaunchTimeout
                             and a complaint. 0: 20 s */
} dbl_options;

#define DBL_DEVICES 16 /* most devices */

/* A new world: no devices' state, no rules, counters at zero. */
void dbl_begin(const dbl_options *options);

/* Runs what is still enqueued, ends all threads, and returns what was wrong: "" or the complaints and
 * leaks, one a line. The text is valid until the next dbl_begin. */
const char *dbl_end(void);

/* Where the world ends with the program, in its last destructor: says on stderr what was wrong, and makes
 * the program fail. */
void dbl_end_of_program(void);

/* ---- failures ------------------------------------------------------------------------------- */

/* The n-th call from now on (1: the next) of `function` ("cudaMalloc"; "launch" for kernels; NULL:
 * of any function that can fail) returns `error`, or with 0 the error that is usual for it. A
 * function that releases something releases it all the same. */
void dbl_fail(const char *function, int nth, int error);

/* The call takes this long, unless dbl_go_on comes first. */
void dbl_stall(const char *function, int nth, uint64_t ns);
void dbl_go_on(void);

/* The device that is current in that call is lost: the call, and every later one on the device, fails
 * with `error` (0: cudaErrorECCUncorrectable); what its streams hold is dropped. */
void dbl_lose_at(const char *function, int nth, int error);
void dbl_lose_device(int device, int error);

/* The stream's work stops before its next item, until dbl_go_on. */
void dbl_stall_streams(int device);

/* The n-th call from now on of `function` returns success and does nothing: how a test plants the
 * bug of a call that is missing. Only for calls without results: waits, synchronisations. */
void dbl_skip(const char *function, int nth);
void dbl_skip_all(const char *function);

/* Calls since dbl_begin; NULL: of all functions that can fail. */
long dbl_calls(const char *function);

/* The functions that can fail, NULL-terminated. */
const char *const *dbl_functions(void);

/* What each kernel twin did is told from now on, on the thread that ran it: its name, the bytes that it said it
 * would touch, and of a product the floating-point operations, 2 for each multiplication, `tiled` with
 * channels counted in wholes of what tensor cores take (16 bytes in, 32 channels out). NULL: nobody is told. */
typedef struct dbl_cost {
    const char *name;
    double bytes, operations, tiled;
} dbl_cost;
typedef void dbl_watcher(const dbl_cost *cost);
void dbl_watch(dbl_watcher *watcher);

/* Each plan of the math double that is made from now on asks for so many bytes to work in. */
void dbl_ask_workspace(size_t bytes);

/* Convolutions choose that engine of the math double's from now on; each has bits of its own. */
void dbl_prefer_engine(int engine);

/* What cudaDriverGetVersion says; 0: the runtime's version. */
void dbl_set_driver(int version);

/* ---- what there is -------------------------------------------------------------------------- */

typedef struct dbl_live {
    int allocations, pinned, streams, events, graphs, execs, comms;
    size_t device_bytes;
} dbl_live;

dbl_live dbl_count_live(void);

/* Complaints so far, "" if there are none. A test that expects one clears it. */
const char *dbl_complaints(void);
void dbl_clear_complaints(void);

#endif
