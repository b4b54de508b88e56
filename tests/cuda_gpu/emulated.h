/* CUDA's kernels on the CPU, for emulate.py: a block at a time, each of its threads a coroutine.
 * A thread runs until it waits for the others (__syncthreads, a shuffle), and then the next one
 * does. */
#ifndef TESTS_CUDA_GPU_EMULATED_H
#define TESTS_CUDA_GPU_EMULATED_H

#include <cuda_runtime_api.h>

#include <cmath>
#include <csetjmp>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <ucontext.h>

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

/* A coroutine that is kept from block to block: a switch by _longjmp asks nothing of the system. */
struct thread {
    ucontext_t context;
    jmp_buf place;
    dim3 index;
    unsigned number, shuffles;
    bool made, ended;
};

struct block {
    jmp_buf scheduler;
    thread threads[MOST];
    thread *running;
    unsigned alive, arrived, generation;
    std::function<void()> body;
    unsigned char slot[2][MOST][16];
};

inline block now;
inline dim3 grid_size, block_size, block_at;
inline unsigned char stacks[MOST][STACK];

inline void yield()
{
    if (_setjmp(now.running->place) == 0)
        _longjmp(now.scheduler, 1);
}

inline void let_go()
{
    now.arrived = 0;
    now.generation++;
}

inline void start()
{
    for (;;) {
        now.body();
        now.running->ended = true;
        now.alive--;
        if (now.arrived > 0 && now.arrived == now.alive)
            let_go();
        yield();
    }
}

inline void go_on(thread &t, unsigned char *stack)
{
    now.running = &t;
    if (_setjmp(now.scheduler) != 0)
        return;
    if (t.made)
        _longjmp(t.place, 1);
    t.made = true;
    getcontext(&t.context);
    t.context.uc_stack.ss_sp = stack;
    t.context.uc_stack.ss_size = STACK;
    t.context.uc_link = nullptr;
    makecontext(&t.context, start, 0);
    setcontext(&t.context);
}

inline void run_block()
{
    unsigned count = block_size.x * block_size.y * block_size.z;
    if (count > MOST)
        abort();
    now.alive = count;
    now.arrived = 0;
    for (unsigned i = 0; i < count; i++) {
        thread &t = now.threads[i];
        t.index = dim3(i % block_size.x, i / block_size.x % block_size.y,
                       i / block_size.x / block_size.y);
        t.number = i;
        t.shuffles = 0;
        t.ended = false;
    }
    while (now.alive > 0)
        for (unsigned i = 0; i < count; i++)
            if (!now.threads[i].ended)
                go_on(now.threads[i], stacks[i]);
}

inline void launch(dim3 grid, dim3 block, std::function<void()> body)
{
    if (grid.y > 65535 || grid.z > 65535) { /* as a GPU refuses it */
        fprintf(stderr, "a grid of %u x %u x %u blocks\n", grid.x, grid.y, grid.z);
        abort();
    }
    grid_size = grid;
    block_size = block;
    now.body = body;
    for (unsigned z = 0; z < grid.z; z++)
        for (unsigned y = 0; y < grid.y; y++)
            for (unsigned x = 0; x < grid.x; x++) {
                block_at = dim3(x, y, z);
                run_block();
            }
}

inline void sync_threads()
{
    unsigned generation = now.generation;
    if (++now.arrived == now.alive) {
        let_go();
        return;
    }
    while (now.generation == generation)
        yield();
}

/* All lanes of the warp take part, so they have made as many shuffles each. */
template <class T> T shuffle_xor(T value, int mask)
{
    thread *me = now.running;
    unsigned side = me->shuffles++ % 2;
    static_assert(sizeof value <= 16, "a slot is too small");
    memcpy(now.slot[side][me->number], &value, sizeof value);
    yield();
    memcpy(&value, now.slot[side][me->number ^ (unsigned)mask], sizeof value);
    return value;
}

} // namespace emulated

#define threadIdx (emulated::now.running->index)
#define blockIdx emulated::block_at
#define blockDim emulated::block_size
#define gridDim emulated::grid_size
#define __syncthreads() emulated::sync_threads()
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

inline uint2 make_uint2(unsigned x, unsigned y)
{
    return uint2{x, y};
}

inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w)
{
    return uint4{x, y, z, w};
}

#endif
