/* SPDX-License-Identifier: MIT */
/* Tests of a directory ("room") are one program, test_<room>. Each of its files test_*.c contains
 * one test or several, which LS_TESTS names and labels:
 *
 *     LS_TESTS(sync_ring, "unit")
 *     {
 *         const struct CMUnitTest tests[] = {
 *             cmocka_unit_test(ring_delivers_items_in_order),
 *         };
 *         return cmocka_run_group_tests(tests, NULL, NULL);
 *     }
 *
 * CMake registers the tests that the program lists, so a new file needs no other line.
 *
 *     test_sync                          each test in a process of its own, with a time limit
 *     test_sync --list                   name, tab, labels; one test a line
 *     test_sync --run sync_ring          one test, in this process
 *     test_sync --run sync_ring --only 'ring_of*'    some of its cases
 *
 * A stress test that finds more the longer it runs calls ls_tests_rounds() for its number of
 * rounds. After the body of its LS_TESTS it has the line
 *
 *     LS_TESTS_LONG(sync_ring, "nightly")
 *
 * which defines another test, sync_ring_long: the same cases with more rounds.
 *
 * The first label is the tier, which is also the budget (tests/README.md): `unit`, `integration` or
 * `nightly`. Further labels are `budget:<seconds>`, `serial`, `no-asan`, `no-tsan` and `long-tsan`.
 */
#ifndef LS_TESTS_RUNNER_H
#define LS_TESTS_RUNNER_H

typedef struct ls_tests {
    const char *name;
    const char *labels;
    /* Runs the test. argv[0] is the program; further arguments are those after --run NAME. Returns
     * the exit status of the process: 0 passed, 77 skipped, anything else failed. */
    int (*run)(int argc, char **argv);
    int long_form;
    struct ls_tests *next;
} ls_tests;

/* Adds a test to the program. Called before main. */
void ls_tests_add(ls_tests *tests);

/* Returns `rounds`, or `more` in the long form of the current test. Any thread. */
unsigned ls_tests_rounds(unsigned rounds, unsigned more);

#define LS_TESTS(name, labels)                                                                     \
    static int name##_tests(int argc, char **argv);                                                \
    __attribute__((constructor)) static void name##_add(void)                                      \
    {                                                                                              \
        static ls_tests tests = {#name, labels, name##_tests, 0, 0};                               \
        ls_tests_add(&tests);                                                                      \
    }                                                                                              \
    static int name##_tests(__attribute__((unused)) int argc, __attribute__((unused)) char **argv)

#define LS_TESTS_LONG(name, labels)                                                                \
    __attribute__((constructor)) static void name##_add_long(void)                                 \
    {                                                                                              \
        static ls_tests tests = {#name "_long", labels, name##_tests, 1, 0};                       \
        ls_tests_add(&tests);                                                                      \
    }

#endif
