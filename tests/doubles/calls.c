/* SPDX-License-Identifier: MIT */
/* Common beginning of every function of the doubles: counts the call, and applies a rule that makes
 * it fail, stall or be skipped. */
#include "doubles/inside.h"

#include <nccl.h>
#include <string.h>

typedef enum action { FAIL = 1, STALL, LOSE, SKIP } action;

/* Set by the test, read by everybody: fields first, `armed` last. */
typedef struct rule {
    _Atomic int armed;
    _Atomic int what;
    _Atomic int call;  /* DBL_CALLS: any */
    _Atomic long when; /* the number of the call; 0: each */
    _Atomic uint64_t value;
} rule;

enum { RULES = 32 };

static const struct {
    const char *name;
    int traits;
    int error;
} about[DBL_CALLS] = {
#define CALL(name, traits, error) {#name, traits, error},
#include "doubles/calls.def"
#undef CALL
};

static rule rules[RULES];
static _Atomic int rule_count;
static _Atomic long counts[DBL_CALLS + 1];
static _Atomic long goes; /* dbl_go_on so far */
static _Atomic int stalled[DBL_DEVICES];
static _Thread_local cudaError_t last_error;

void dbl_calls_begin(void)
{
    memset(rules, 0, sizeof rules);
    atomic_store(&rule_count, 0);
    memset(counts, 0, sizeof counts);
    memset(stalled, 0, sizeof stalled);
    last_error = cudaSuccess;
}

cudaError_t dbl_result(cudaError_t error)
{
    if (error != cudaSuccess && error != cudaErrorNotReady)
        last_error = error;
    return error;
}

static int call_named(const char *name)
{
    int call = 0;
    while (name && call < DBL_CALLS && strcmp(about[call].name, name) != 0)
        call++;
    if (name && call == DBL_CALLS)
        dbl_complain("the doubles know no function '%s'", name);
    return name ? call : DBL_CALLS;
}

/* ---- the test's side ------------------------------------------------------------------------ */

static void add_rule(action what, const char *function, int nth, uint64_t value)
{
    int i = atomic_fetch_add(&rule_count, 1);
    if (i >= RULES) {
        dbl_complain("more than %d rules", RULES);
        return;
    }
    rule *r = &rules[i];
    int call = call_named(function);
    r->what = (int)what;
    r->call = call;
    r->when = nth > 0 ? atomic_load_explicit(&counts[call], memory_order_relaxed) + nth : 0;
    r->value = value;
    atomic_store_explicit(&r->armed, 1, memory_order_release);
}

void dbl_fail(const char *function, int nth, int error)
{
    add_rule(FAIL, function, nth, (uint64_t)error);
}

void dbl_stall(const char *function, int nth, uint64_t ns)
{
    add_rule(STALL, function, nth, ns);
}

void dbl_lose_at(const char *function, int nth, int error)
{
    add_rule(LOSE, function, nth, (uint64_t)error);
}

void dbl_skip(const char *function, int nth)
{
    add_rule(SKIP, function, nth, 0);
}

void dbl_skip_all(const char *function)
{
    add_rule(SKIP, function, 0, 0);
}

void dbl_stall_streams(int device)
{
    atomic_store_explicit(&stalled[device], 1, memory_order_relaxed);
}

void dbl_go_on(void)
{
    for (int d = 0; d < DBL_DEVICES; d++)
        atomic_store_explicit(&stalled[d], 0, memory_order_relaxed);
    atomic_fetch_add_explicit(&goes, 1, memory_order_relaxed);
}

int dbl_streams_stalled(int device)
{
    return atomic_load_explicit(&stalled[device], memory_order_relaxed);
}

long dbl_calls(const char *function)
{
    return atomic_load_explicit(&counts[call_named(function)], memory_order_relaxed);
}

const char *const *dbl_functions(void)
{
    static const char *names[DBL_CALLS + 1]; /* the same whoever writes it */
    int count = 0;
    for (int call = 0; call < DBL_CALLS; call++)
        if (!(about[call].traits & DBL_NEVER_FAILS))
            names[count++] = about[call].name;
    return names;
}

/* ---- the functions' side -------------------------------------------------------------------- */

static void stall(uint64_t ns)
{
    long go = atomic_load_explicit(&goes, memory_order_relaxed);
    uint64_t end = dbl_now_ns() + ns;
    dbl_idle idle = {0};
    while (dbl_now_ns() < end && atomic_load_explicit(&goes, memory_order_relaxed) == go)
        dbl_idle_briefly(&idle);
}

/* Returns the effect of the rules on call number n (number `all` of all calls); 0: none. */
static action apply_rules(dbl_call call, long n, long all, uint64_t *value)
{
    action found = 0;
    int count = atomic_load_explicit(&rule_count, memory_order_relaxed);
    for (int i = 0; i < count && i < RULES; i++) {
        rule *r = &rules[i];
        if (!atomic_load_explicit(&r->armed, memory_order_acquire))
            continue;
        int any = r->call == DBL_CALLS;
        if ((!any && r->call != (int)call) || (r->when && r->when != (any ? all : n)))
            continue;
        if (r->what == STALL)
            stall(r->value);
        else
            found = (action)r->what, *value = r->value;
    }
    return found;
}

static int usual_error(int traits, int error)
{
    return traits & DBL_NCCL ? (int)ncclUnhandledCudaError : error;
}

int dbl_enter(dbl_call call, int *error)
{
    int traits = about[call].traits;
    uint64_t value = 0;
    *error = 0;
    if (dbl_running_device() >= 0)
        dbl_complain("%s was called from a stream's own work", about[call].name);
    long n = atomic_fetch_add_explicit(&counts[call], 1, memory_order_relaxed) + 1;
    if (traits & DBL_NEVER_FAILS)
        return 0;
    long all = atomic_fetch_add_explicit(&counts[DBL_CALLS], 1, memory_order_relaxed) + 1;
    action what = apply_rules(call, n, all, &value);
    if (what == SKIP)
        return 1;
    if (what == LOSE) {
        dbl_lose_device(dbl_current_device(), (int)value);
        *error = usual_error(traits, (int)dbl_lost(dbl_current_device()));
    } else if (what == FAIL) {
        *error = value ? (int)value : about[call].error;
    } else if (!(traits & DBL_ANYTIME) && dbl_lost(dbl_current_device())) {
        *error = usual_error(traits, (int)dbl_lost(dbl_current_device()));
    } else if ((traits & DBL_UNSAFE) && dbl_capture_forbids(about[call].name)) {
        *error = cudaErrorStreamCaptureUnsupported;
    }
    if (!(traits & DBL_NCCL))
        dbl_result((cudaError_t)*error);
    return *error != 0 && !(traits & DBL_RELEASES);
}

cudaError_t cudaGetLastError(void)
{
    int error;
    dbl_enter(DBL_cudaGetLastError, &error);
    cudaError_t last = dbl_lost(dbl_current_device()) ? dbl_lost(dbl_current_device()) : last_error;
    last_error = cudaSuccess;
    return last;
}
