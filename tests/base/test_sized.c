/* SPDX-License-Identifier: MIT */
/* Tests of public structures that begin with their size. By the size the library recognises a
 * caller that was compiled with an older or newer header. */
#include "base/sized.h"
#include "runner.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* The structure that the library knows, and those of earlier and later headers. */
typedef struct known {
    size_t size;
    int first;
    int second;
    const char *third;
} known;

typedef struct older {
    size_t size;
    int first;
    int second;
} older;

typedef struct newer {
    known known;
    const char *fourth;
} newer;

static void members_that_the_caller_does_not_know_are_zero(void **state)
{
    const older given = {.size = sizeof given, .first = 1, .second = 2};
    known out;
    ls_error err;
    (void)state;
    memset(&out, 0x55, sizeof out);
    assert_int_equal(ls_sized_take(&out, sizeof out, &given, "known", &err), LS_OK);
    assert_int_equal(out.first, 1);
    assert_int_equal(out.second, 2);
    assert_null(out.third);
}

static void members_that_the_library_does_not_know_must_be_zero(void **state)
{
    newer given = {.known = {.size = sizeof given, .first = 1, .third = "x"}};
    known out;
    ls_error err;
    (void)state;
    assert_int_equal(ls_sized_take(&out, sizeof out, &given, "known", &err), LS_OK);
    assert_string_equal(out.third, "x");
    given.fourth = "y";
    assert_int_equal(ls_sized_take(&out, sizeof out, &given, "known", &err), LS_EINVAL);
    assert_string_equal(err.text, "known: a member is set that this library does not know: the "
                                  "program was built with the headers of a newer one");
    assert_int_equal(out.first, 0);
}

static void a_size_that_was_not_set_is_refused(void **state)
{
    static const size_t sizes[] = {0, 1, sizeof(size_t) - 1, 4097, SIZE_MAX};
    known given = {.first = 1}, out;
    ls_error err;
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        given.size = sizes[i];
        assert_int_equal(ls_sized_take(&out, sizeof out, &given, "known", &err), LS_EINVAL);
        assert_string_equal(err.text, "known: `size` is not set: expected sizeof(known)");
    }
    assert_int_equal(ls_sized_take(&out, sizeof out, NULL, "known", NULL), LS_EINVAL);
    assert_int_equal(out.first, 0);
}

static void a_result_is_cut_for_an_older_caller_and_filled_for_a_newer(void **state)
{
    const known found = {.size = 99, .first = 1, .second = 2, .third = "x"};
    struct {
        older older;
        char after[8];
    } o = {{.size = sizeof o.older}, "after"};
    newer n = {.known = {.size = sizeof n}, .fourth = "y"};
    (void)state;
    assert_int_equal(ls_sized_give(&o, &found, sizeof found, "known", NULL), LS_OK);
    assert_true(o.older.size == sizeof o.older && o.older.first == 1 && o.older.second == 2);
    assert_string_equal(o.after, "after");
    assert_int_equal(ls_sized_give(&n, &found, sizeof found, "known", NULL), LS_OK);
    assert_true(n.known.size == sizeof n && n.known.second == 2 && !n.fourth);
    assert_string_equal(n.known.third, "x");
    n.known.size = 0;
    n.known.first = 7;
    assert_int_equal(ls_sized_give(&n, &found, sizeof found, "known", NULL), LS_EINVAL);
    assert_int_equal(n.known.first, 7);
    assert_int_equal(ls_sized_give(NULL, &found, sizeof found, "known", NULL), LS_EINVAL);
}

static void a_structure_that_is_read_where_it_lies_has_its_size(void **state)
{
    newer given = {.known = {.size = sizeof given}};
    (void)state;
    assert_int_equal(ls_sized_check(NULL, sizeof(known), "known", NULL), LS_OK);
    assert_int_equal(ls_sized_check(&given, sizeof(known), "known", NULL), LS_OK);
    given.fourth = "y";
    assert_int_equal(ls_sized_check(&given, sizeof(known), "known", NULL), LS_EINVAL);
    given.known.size = sizeof(known) - 1;
    assert_int_equal(ls_sized_check(&given, sizeof(known), "known", NULL), LS_EINVAL);
    given.known.size = 0;
    assert_int_equal(ls_sized_check(&given, sizeof(known), "known", NULL), LS_EINVAL);
}

LS_TESTS(base_sized, "unit")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_result_is_cut_for_an_older_caller_and_filled_for_a_newer),
        cmocka_unit_test(a_structure_that_is_read_where_it_lies_has_its_size),
        cmocka_unit_test(members_that_the_caller_does_not_know_are_zero),
        cmocka_unit_test(members_that_the_library_does_not_know_must_be_zero),
        cmocka_unit_test(a_size_that_was_not_set_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
