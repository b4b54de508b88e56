/* SPDX-License-Identifier: MIT */
/* Memory of the doubles: allocations, each tagged with the device to which it belongs. */
#include "doubles/inside.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { ENTRIES = 16384 };

/* Written under the lock, read by anybody with relaxed loads: whoever holds a pointer got it after
 * the allocation, and coherence does the rest. */
typedef struct entry {
    _Atomic uintptr_t base; /* 0: unused */
    _Atomic size_t bytes;
    _Atomic int place;
    _Atomic int held; /* by collectives */
    bool theirs;      /* the caller's memory, pinned by cudaHostRegister */
} entry;

static entry table[ENTRIES];
static _Atomic int used; /* entries ever used */
static _Atomic size_t taken[DBL_DEVICES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void dbl_memory_begin(void)
{
    memset(table, 0, sizeof table);
    atomic_store(&used, 0);
    memset(taken, 0, sizeof taken);
}

void dbl_memory_end(void)
{
    for (int i = 0; i < used; i++)
        if (!table[i].theirs)
            free((void *)table[i].base); /* NULL where it was freed in time */
}

size_t dbl_taken_bytes(int device)
{
    return atomic_load_explicit(&taken[device], memory_order_relaxed);
}

static uintptr_t base_of(const entry *e)
{
    return atomic_load_explicit(&e->base, memory_order_relaxed);
}

/* The allocation that `memory` points into, or NULL. */
static entry *find(const void *memory)
{
    uintptr_t at = (uintptr_t)memory;
    int count = atomic_load_explicit(&used, memory_order_relaxed);
    for (int i = 0; i < count; i++) {
        uintptr_t base = base_of(&table[i]);
        size_t bytes = atomic_load_explicit(&table[i].bytes, memory_order_relaxed);
        if (base && at >= base && at < base + bytes)
            return &table[i];
    }
    return NULL;
}

int dbl_place(const void *memory, size_t bytes)
{
    const entry *e = find(memory);
    if (!e)
        return DBL_PAGEABLE;
    if ((uintptr_t)memory + bytes >
        base_of(e) + atomic_load_explicit(&e->bytes, memory_order_relaxed))
        return DBL_OUT_OF_BOUNDS;
    return atomic_load_explicit(&e->place, memory_order_relaxed);
}

void dbl_hold(const void *memory, int change)
{
    entry *e = find(memory);
    if (e)
        atomic_fetch_add_explicit(&e->held, change, memory_order_relaxed);
}

static entry *free_entry(void)
{
    for (int i = 0; i < used; i++)
        if (base_of(&table[i]) == 0)
            return &table[i];
    return used < ENTRIES ? &table[atomic_fetch_add(&used, 1)] : NULL;
}

/* Fresh memory contains NaNs, as device memory contains whatever was there. Only the beginning of
 * large pinned blocks does: touching all of them would take most of a test's time. */
static void poison(void *memory, size_t bytes, int place)
{
    const size_t most = (size_t)1 << 16;
    memset(memory, 0xFF, place == DBL_ON_HOST && bytes > most ? most : bytes);
}

/* Returns whether there was room in the table. */
static bool enter(void *memory, size_t bytes, int place, bool theirs)
{
    pthread_mutex_lock(&lock);
    entry *e = free_entry();
    if (e) {
        e->theirs = theirs;
        atomic_store_explicit(&e->bytes, bytes, memory_order_relaxed);
        atomic_store_explicit(&e->place, place, memory_order_relaxed);
        atomic_store_explicit(&e->held, 0, memory_order_relaxed);
        atomic_store_explicit(&e->base, (uintptr_t)memory, memory_order_relaxed);
        if (place >= 0)
            atomic_fetch_add_explicit(&taken[place], bytes, memory_order_relaxed);
    }
    pthread_mutex_unlock(&lock);
    if (e)
        dbl_count(place >= 0 ? DBL_ALLOCATION : DBL_PINNED, 1);
    return e != NULL;
}

static cudaError_t allocate(void **out, size_t bytes, int place)
{
    void *memory;
    size_t rounded = (bytes + 255) / 256 * 256;
    if (bytes == 0 || posix_memalign(&memory, 256, rounded) != 0) {
        *out = NULL;
        return bytes == 0 ? cudaSuccess : cudaErrorMemoryAllocation;
    }
    poison(memory, bytes, place);
    if (!enter(memory, bytes, place, false)) {
        free(memory);
        return cudaErrorMemoryAllocation;
    }
    *out = memory;
    return cudaSuccess;
}

static cudaError_t release(void *memory, int want_pinned, bool theirs, const char *caller)
{
    entry *e = find(memory);
    if (!e || base_of(e) != (uintptr_t)memory || (e->place == DBL_ON_HOST) != want_pinned ||
        e->theirs != theirs) {
        dbl_complain("%s of what is no such allocation", caller);
        return cudaErrorInvalidValue;
    }
    if (atomic_load_explicit(&e->held, memory_order_relaxed))
        dbl_complain("%s of memory that a collective may still touch", caller);
    cudaError_t error = cudaSuccess;
    if (!want_pinned)
        error = dbl_drain_device(e->place, caller);
    pthread_mutex_lock(&lock);
    if (e->place >= 0)
        atomic_fetch_sub_explicit(&taken[e->place], e->bytes, memory_order_relaxed);
    atomic_store_explicit(&e->base, 0, memory_order_relaxed);
    pthread_mutex_unlock(&lock);
    dbl_count(want_pinned ? DBL_PINNED : DBL_ALLOCATION, -1);
    if (!theirs)
        free(memory);
    return error;
}

cudaError_t cudaMalloc(void **out, size_t bytes)
{
    DBL_ENTER_CUDA(cudaMalloc);
    int device = dbl_current_device();
    if (dbl_taken_bytes(device) + bytes > dbl_world.memory_bytes)
        return dbl_result(cudaErrorMemoryAllocation);
    return dbl_result(allocate(out, bytes, device));
}

/* As the real one it waits for the device. */
cudaError_t cudaFree(void *memory)
{
    int error;
    if (dbl_enter(DBL_cudaFree, &error))
        return (cudaError_t)error;
    cudaError_t own = memory ? release(memory, 0, false, "cudaFree") : cudaSuccess;
    return dbl_result(error ? (cudaError_t)error : own);
}

cudaError_t cudaHostAlloc(void **out, size_t bytes, unsigned flags)
{
    DBL_ENTER_CUDA(cudaHostAlloc);
    (void)flags;
    return dbl_result(allocate(out, bytes, DBL_ON_HOST));
}

cudaError_t cudaFreeHost(void *memory)
{
    int error;
    if (dbl_enter(DBL_cudaFreeHost, &error))
        return (cudaError_t)error;
    cudaError_t own = memory ? release(memory, 1, false, "cudaFreeHost") : cudaSuccess;
    return dbl_result(error ? (cudaError_t)error : own);
}

cudaError_t cudaHostRegister(void *memory, size_t bytes, unsigned flags)
{
    DBL_ENTER_CUDA(cudaHostRegister);
    (void)flags;
    if (find(memory))
        return dbl_result(cudaErrorHostMemoryAlreadyRegistered);
    return dbl_result(enter(memory, bytes, DBL_ON_HOST, true) ? cudaSuccess
                                                              : cudaErrorMemoryAllocation);
}

cudaError_t cudaHostUnregister(void *memory)
{
    int error;
    if (dbl_enter(DBL_cudaHostUnregister, &error))
        return (cudaError_t)error;
    cudaError_t own = release(memory, 1, true, "cudaHostUnregister");
    return dbl_result(error ? (cudaError_t)error : own);
}
