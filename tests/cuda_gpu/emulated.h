/* SPDX-License-Identifier: MIT */
/* Runs CUDA's kernels on the CPU, for emulate.py. Blocks run one at a time. Each thread of a block
 * is a coroutine: it runs until it waits for other threads (__syncthreads, a shuffle), and then
 * another coroutine runs. A launch is enqueued in the same way as that of a kernel's twin in plain
 * C (doubles/launch.h). Environment variables:
 *
 *     LOCKSTEP_EMULATED_ORDER     order of blocks, and of threads between two waits: `ascending`
 *                                 (default), `descending`, or a number, from which orders are drawn
 *     LOCKSTEP_EMULATED_WITHOUT   FILE:LINE of a __syncthreads() that does not wait, to plant a bug
 */
#ifndef TESTS_CUDA_GPU_EMULATED_H
#define TESTS_CUDA_GPU_EMULATED_H

#include <cuda_runtime_api.h>

extern "C" {
#include "doubles/launch.h"
}

#include <cmath>
#include <csetjmp>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <ucontext.h>
#include <utility>
#include <vector>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif

#undef __global__
#undef __device__
#undef __host__
#undef __shared__
#undef __forceinline__
#undef __align__
#undef __launch_bounds__
#undef __grid_constant__
#define __global__
#define __device__
#define __host__
#define __shared__ static /* one block runs at a time */
#define __forceinline__ inline
#define __align__(n) __attribute__((aligned(n)))
#define __launch_bounds__(...)
#define __grid_constant__

namespace emulated
{

enum { STACK = 64 * 1024, WARP = 32, MOST = 1024 };

/* ---- coroutines ----------------------------------------------------------------------------- */

/* A stack between which coroutines switch. The address sanitizer must be told of each switch. */
struct place {
    jmp_buf jump; /* a switch with _longjmp needs no system call */
    const void *stack;
    size_t bytes;
    void *fake; /* the sanitizer's fake stack that belongs to this stack */
};

/* A thread of a block. The next block uses the same coroutine. */
struct thread {
    place at;
    dim3 index;
    unsigned number, shuffles;
    bool made, ended;
};

struct block {
    place scheduler;
    thread threads[MOST];
    thread *running;
    unsigned count, alive, arrived, generation;
    void (*body)(const void *args);
    const void *args;
    unsigned char slot[2][MOST][16];
};

inline block now; /* protected by `one_at_a_time` */
inline std::mutex one_at_a_time;
inline dim3 grid_size, block_size, block_at;
alignas(16) inline unsigned char stacks[MOST][STACK];

inline void leave([[maybe_unused]] place &from, [[maybe_unused]] const place &to)
{
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_start_switch_fiber(&from.fake, to.stack, to.bytes);
#endif
}

/* Tells the sanitizer that a switch has ended. Sets *other, if it is not NULL, to the stack from
 * which the switch came. */
inline void arrive([[maybe_unused]] place &here, [[maybe_unused]] place *other)
{
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_finish_switch_fiber(here.fake, other ? &other->stack : nullptr,
                                    other ? &other->bytes : nullptr);
#endif
}

inline void yield()
{
    place &at = now.running->at;
    if (_setjmp(at.jump) == 0) {
        leave(at, now.scheduler);
        _longjmp(now.scheduler.jump, 1);
    }
    arrive(now.running->at, &now.scheduler);
}

inline void let_go()
{
    now.arrived = 0;
    now.generation++;
}

inline void run_threads()
{
    arrive(now.running->at, &now.scheduler);
    for (;;) {
        now.body(now.args);
        now.running->ended = true;
        now.alive--;
        if (now.arrived > 0 && now.arrived == now.alive)
            let_go();
        yield();
    }
}

inline void make(thread &t)
{
    static ucontext_t
        context; /* in no frame: the sanitizer would think that this function's lasts */
    t.made = true;
    getcontext(&context);
    context.uc_stack.ss_sp = const_cast<void *>(t.at.stack);
    context.uc_stack.ss_size = t.at.bytes;
    context.uc_link = nullptr;
    makecontext(&context, run_threads, 0);
    setcontext(&context);
}

inline void go_on(thread &t)
{
    now.running = &t;
    if (_setjmp(now.scheduler.jump) == 0) {
        leave(now.scheduler, t.at);
        if (t.made)
            _longjmp(t.at.jump, 1);
        make(t);
    }
    arrive(now.scheduler, nullptr);
}

/* ---- orders --------------------------------------------------------------------------------- */

struct choice {
    bool descending = false;
    uint64_t seed = 0;
    std::string file; /* source file of the barrier that does not wait */
    int line = 0;

    choice()
    {
        const char *order = getenv("LOCKSTEP_EMULATED_ORDER");
        const char *without = getenv("LOCKSTEP_EMULATED_WITHOUT");
        const char *colon = without ? strrchr(without, ':') : nullptr;
        descending = order && strcmp(order, "descending") == 0;
        seed = order ? strtoull(order, nullptr, 10) : 0;
        if (colon) {
            file = std::string(without, colon);
            line = atoi(colon + 1);
        }
    }
};

inline const choice chosen;
inline uint64_t drawn; /* state of the random numbers; reset for each launch */

inline unsigned draw(unsigned below)
{
    drawn = drawn * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)((drawn >> 33) % below);
}

/* Fills `at` with the numbers 0 … count − 1 in the chosen order. */
inline void put_in_order(std::vector<unsigned> &at, unsigned count)
{
    at.resize(count);
    for (unsigned i = 0; i < count; i++)
        at[i] = chosen.descending ? count - 1 - i : i;
    for (unsigned i = count; chosen.seed && i > 1; i--)
        std::swap(at[i - 1], at[draw(i)]);
}

/* ---- launches ------------------------------------------------------------------------------- */

inline void run_block()
{
    static std::vector<unsigned> turn;
    now.count = now.alive = block_size.x * block_size.y * block_size.z;
    now.arrived = 0;
    for (unsigned i = 0; i < now.count; i++) {
        thread &t = now.threads[i];
        t.at.stack = stacks[i];
        t.at.bytes = STACK;
        t.index = dim3(i % block_size.x, i / block_size.x % block_size.y,
                       i / block_size.x / block_size.y);
        t.number = i;
        t.shuffles = 0;
        t.ended = false;
    }
    while (now.alive > 0) {
        put_in_order(turn, now.count);
        for (unsigned i : turn)
            if (!now.threads[i].ended)
                go_on(now.threads[i]);
    }
}

inline void run_grid(dim3 grid, dim3 block, void (*body)(const void *args), const void *args)
{
    static std::vector<unsigned> turn;
    std::lock_guard<std::mutex> alone(one_at_a_time);
    drawn = chosen.seed;
    grid_size = grid;
    block_size = block;
    now.body = body;
    now.args = args;
    put_in_order(turn, grid.x * grid.y * grid.z);
    for (unsigned i : turn) {
        block_at = dim3(i % grid.x, i / grid.x % grid.y, i / grid.x / grid.y);
        run_block();
    }
}

/* Enqueues a launch on the stream, which calls kernel(args...) in each thread. */
template <class Kernel, class... Args>
void launch(dim3 grid, dim3 block, cudaStream_t stream, const char *name, Kernel kernel,
            Args... args)
{
    if (grid.y > 65535 || grid.z > 65535 ||
        block.x * block.y * block.z > MOST) { /* a GPU refuses such a launch too */
        fprintf(stderr, "%s: a grid of %u x %u x %u blocks, each of %u x %u x %u threads\n", name,
                grid.x, grid.y, grid.z, block.x, block.y, block.z);
        abort();
    }
    auto call = [kernel, args...] { kernel(args...); };
    struct work {
        dim3 grid, block;
        decltype(call) of;
    } w = {grid, block, call};
    static_assert(std::is_trivially_copyable<decltype(call)>::value,
                  "arguments are copied byte by byte");
    dbl_launch(
        stream, name,
        [](const void *copied) {
            const work *k = static_cast<const work *>(copied);
            run_grid(
                k->grid, k->block, [](const void *of) { (*static_cast<decltype(&k->of)>(of))(); },
                &k->of);
        },
        &w, sizeof w); /* the code that launches a kernel calls cudaGetLastError */
}

/* ---- barriers and shuffles ------------------------------------------------------------------ */

inline bool is_planted(const char *file, int line)
{
    const size_t length = strlen(file);
    return line == chosen.line && length >= chosen.file.size() &&
           chosen.file == file + length - chosen.file.size();
}

inline void sync_threads(const char *file, int line)
{
    unsigned generation = now.generation;
    if (is_planted(file, line))
        return;
    if (++now.arrived == now.alive) {
        let_go();
        return;
    }
    while (now.generation == generation)
        yield();
}

inline bool warp_has_shuffled(unsigned number, unsigned times)
{
    const unsigned first = number / WARP * WARP;
    for (unsigned i = first; i < first + WARP && i < now.count; i++)
        if (!now.threads[i].ended && now.threads[i].shuffles < times)
            return false;
    return true;
}

/* All lanes of the warp take part. A lane that continues may store its next value before the other
 * lanes have read this value, so there are two sets of values. */
template <class T> T shuffle_xor(T value, int mask)
{
    thread *me = now.running;
    const unsigned mine = ++me->shuffles;
    static_assert(sizeof value <= 16, "a slot is too small");
    memcpy(now.slot[mine % 2][me->number], &value, sizeof value);
    while (!warp_has_shuffled(me->number, mine))
        yield();
    memcpy(&value, now.slot[mine % 2][me->number ^ (unsigned)mask], sizeof value);
    return value;
}

} // namespace emulated

#define threadIdx (emulated::now.running->index)
#define blockIdx emulated::block_at
#define blockDim emulated::block_size
#define gridDim emulated::grid_size
#define __syncthreads() emulated::sync_threads(__FILE__, __LINE__)
#define __threadfence_system() ((void)0)
#define __shfl_xor_sync(lanes, value, mask) emulated::shuffle_xor(value, mask)

inline uint32_t __float_as_uint(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

inline float __uint_as_float(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

template <class T> T min(T a, T b)
{
    return b < a ? b : a;
}

template <class T> T max(T a, T b)
{
    return a < b ? b : a;
}

inline uint32_t __umulhi(uint32_t a, uint32_t b)
{
    return (uint32_t)((uint64_t)a * b >> 32);
}

inline float4 make_float4(float x, float y, float z, float w)
{
    return float4{x, y, z, w};
}

/* Only one coroutine runs at a time. */
inline unsigned long long atomicAdd(unsigned long long *to, unsigned long long value)
{
    const unsigned long long before = *to;
    *to = before + value;
    return before;
}

inline uint2 make_uint2(unsigned x, unsigned y)
{
    return uint2{x, y};
}

inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w)
{
    return uint4{x, y, z, w};
}

#endif
