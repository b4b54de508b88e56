/* SPDX-License-Identifier: MIT */
/* Tests the memory that packing a folder allocates before it decodes images. It depends on the size
 * of the images, and grows with the number of CPUs only up to a limit. */
#define _GNU_SOURCE /* for sched_setaffinity */
#include "data/folder.h"
#include "runner.h"

#include <lockstep/pool.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

enum { MB = 1 << 20, MOST = 300 * MB };

typedef struct account {
    size_t asked;
} account;

/* Allocates memory for the host. More than MOST bytes are refused, so that a test that needs too
 * much fails without filling the machine's memory. */
static void *take(void *user, size_t bytes, size_t align)
{
    account *a = user;
    a->asked += bytes;
    return a->asked > MOST ? NULL : aligned_alloc(align, (bytes + align - 1) / align * align);
}

static void give_back(void *user, void *memory)
{
    (void)user;
    free(memory);
}

/* Returns the number of bytes that the decoder allocates to pack images of `side` × `side` × 3. */
static size_t asked_for(int side, int threads, size_t images, size_t tests)
{
    account a = {0};
    ls_error err = {0};
    const ls_host host = {.size = sizeof host, .alloc = take, .free = give_back, .user = &a};
    /* nothing is decoded */
    const ls_pictures pictures = {.abi = LS_PICTURES_ABI, .size = sizeof pictures};
    const ls_folder_desc p = {
        .form = {3, side, side, {0}, 0}, .threads = threads, .pictures = &pictures};
    ls_folder k = {.p = &p,
                   .host = &host,
                   .err = &err,
                   .split = {{.count = images}, {.count = tests}},
                   .row = (size_t)side * (size_t)side * 3};
    ls_folder_decoder *crew;
    if (ls_folder_decoder_create(&crew, &k) != LS_OK)
        fail_msg("%d × %d, %d threads: %zu bytes and more", side, side, threads, a.asked);
    ls_folder_decoder_destroy(crew);
    return a.asked;
}

static void packing_asks_for_a_quarter_of_a_gigabyte_on_any_number_of_cpus(void **state)
{
    (void)state;
    assert_in_range(asked_for(4096, 64, 100000, 0), 1, MOST);
    assert_in_range(asked_for(1024, 256, 100000, 0), 1, MOST);
    assert_in_range(asked_for(64, 256, 100000, 0), 1, MOST);
}

static void a_few_images_are_packed_in_the_memory_of_a_few(void **state)
{
    (void)state;
    assert_in_range(asked_for(1024, 64, 3, 1), 9 * MB, 10 * MB);
    assert_in_range(asked_for(1024, 64, 1, 3), 9 * MB, 10 * MB);
    assert_in_range(asked_for(32, 64, 3, 0), 1, MB);
}

/* In a container that may use only some of the machine's CPUs, the default number of threads is the
 * number of these CPUs. */
static void packing_takes_as_many_threads_as_it_may_use_cpus(void **state)
{
    cpu_set_t before, one;
    int cpu = 0;
    (void)state;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    while (!CPU_ISSET(cpu, &before))
        cpu++;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    const size_t confined = asked_for(64, 0, 100000, 0);
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
    assert_int_equal(confined, asked_for(64, 1, 100000, 0));
    assert_true(confined < asked_for(64, 2, 100000, 0));
    assert_int_equal(asked_for(64, 0, 100000, 0), asked_for(64, ls_allowed_cpus(), 100000, 0));
}

LS_TESTS(data_folder_memory, "integration")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(packing_asks_for_a_quarter_of_a_gigabyte_on_any_number_of_cpus),
        cmocka_unit_test(a_few_images_are_packed_in_the_memory_of_a_few),
        cmocka_unit_test(packing_takes_as_many_threads_as_it_may_use_cpus),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
