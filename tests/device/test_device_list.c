/* SPDX-License-Identifier: MIT */
/* Tests device lists such as "cpu:4", and the registry of back ends: valid lists, and the messages
 * about invalid ones. */
#include "device/fake_backend.h"
#include "device/registry.h"
#include "ref/ref.h"
#include "runner.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define GRAMMAR "expected auto, cpu, cpu:COUNT, or KIND:INDEX,INDEX…, for example --devices cpu:2"
#define KINDS "; kinds here: fake, ref"

static ls_registry *registry;
static ls_device_list list;
static ls_error err;

/* fake (listed) first, then ref (counted). */
static int set_up(void **state)
{
    (void)state;
    fake_reset();
    assert_int_equal(ls_registry_create_empty(&registry, NULL, &err), LS_OK);
    assert_int_equal(ls_registry_add(registry, &fake_listed, &err), LS_OK);
    assert_int_equal(ls_registry_add(registry, ls_ref_backend(), &err), LS_OK);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    ls_registry_destroy(registry);
    return 0;
}

static void expect_list(const char *spec, int max, const char *kind, int count, const int *index)
{
    int status = ls_device_list_parse(&list, registry, spec, max, &err);
    if (status != LS_OK)
        fail_msg("%s: %s", spec ? spec : "NULL", err.text);
    assert_string_equal(list.backend->name, kind);
    assert_int_equal(list.count, count);
    for (int i = 0; i < count; i++)
        assert_int_equal(list.index[i], index ? index[i] : i);
}

static void expect_error(const char *spec, int status, const char *text)
{
    assert_int_equal(ls_device_list_parse(&list, registry, spec, 0, &err), status);
    assert_string_equal(err.text, text);
}

static void auto_takes_all_devices_of_the_first_kind_that_has_some(void **state)
{
    (void)state;
    expect_list("auto", 0, "fake", 4, NULL);
    expect_list(NULL, 0, "fake", 4, NULL);
    fake.devices = 0;
    expect_list("auto", 0, "ref", REF_DEVICES, NULL);
}

static void auto_and_a_bare_kind_are_cut_to_the_limit(void **state)
{
    (void)state;
    expect_list("auto", 3, "fake", 3, NULL);
    assert_true(list.capped);
    expect_list("ref", 8, "ref", 8, NULL);
    assert_true(list.capped);
    expect_list("auto", 4, "fake", 4, NULL);
    assert_false(list.capped);
    expect_list("ref:9", 8, "ref", 9, NULL); /* an explicit number of devices is not reduced */
}

static void a_counted_kind_takes_a_number(void **state)
{
    (void)state;
    expect_list("ref:1", 0, "ref", 1, NULL);
    expect_list("ref:3", 0, "ref", 3, NULL);
    expect_list("ref:100", 0, "ref", 100, NULL); /* more than there are: the trainer warns */
    assert_int_equal(list.allowed, REF_DEVICES);
    expect_list("ref:1024", 0, "ref", 1024, NULL);
}

static void a_listed_kind_takes_indices(void **state)
{
    (void)state;
    expect_list("fake", 0, "fake", 4, NULL);
    expect_list("fake:2", 0, "fake", 1, (const int[]){2});
    expect_list("fake:3,0", 0, "fake", 2, (const int[]){3, 0});
    expect_list("fake:1,1", 0, "fake", 2, (const int[]){1, 1}); /* two workers share it */
}

static void words_that_cannot_be_read_are_named_with_the_fix(void **state)
{
    (void)state;
    expect_error("gpu", LS_EINVAL, "cannot read devices 'gpu': " GRAMMAR KINDS);
    expect_error("", LS_EINVAL, "cannot read devices '': " GRAMMAR KINDS);
    expect_error("ref,fake", LS_EINVAL, "cannot read devices 'ref,fake': " GRAMMAR KINDS);
    expect_error("REF:2", LS_EINVAL, "cannot read devices 'REF:2': " GRAMMAR KINDS);
    static const char *const bad[] = {"ref:",    "ref:x",     "ref:-1", "ref:2x",
                                      "ref:2,3", "ref: 2",    "fake:",  "fake:,",
                                      "fake:1,", "fake:1,,2", "fake:a", "fake:1;2"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char text[256];
        snprintf(text, sizeof text, "cannot read devices '%s': " GRAMMAR, bad[i]);
        expect_error(bad[i], LS_EINVAL, text);
    }
}

static void absurd_numbers_are_refused(void **state)
{
    (void)state;
    expect_error("ref:0", LS_EINVAL, "devices 'ref:0' asks for none: at least 1 is needed");
    expect_error("ref:1025", LS_EINVAL,
                 "devices 'ref:1025' asks for too many: at most 1024 work together");
    expect_error(
        "ref:99999999999999999999", LS_EINVAL,
        "devices 'ref:99999999999999999999' asks for too many: at most 1024 work together");
}

static void a_device_that_is_not_there_is_named(void **state)
{
    (void)state;
    expect_error("fake:4", LS_EDEVICE, "devices 'fake:4': there is no fake:4, only 0 … 3");
    expect_error("fake:0,7", LS_EDEVICE, "devices 'fake:0,7': there is no fake:7, only 0 … 3");
}

static void absent_is_told_from_broken(void **state)
{
    (void)state;
    fake.devices = 0;
    expect_error("fake", LS_EDEVICE, "no fake device: no such card (absent)");
    expect_error("fake:1", LS_EDEVICE, "no fake device: no such card (absent)");
    fake.broken = 1;
    fake.reason = "the driver is older than the library";
    expect_error("fake", LS_EDEVICE,
                 "no fake device: the driver is older than the library (broken)");
}

static void no_device_at_all_is_an_error(void **state)
{
    ls_registry *empty;
    (void)state;
    assert_int_equal(ls_registry_create_empty(&empty, NULL, &err), LS_OK);
    assert_int_equal(ls_device_list_parse(&list, empty, "auto", 0, &err), LS_EDEVICE);
    assert_string_equal(err.text, "no back end has a device; the program's --version says why");
    ls_registry_destroy(empty);
}

/* ---- the registry ---- */

static void the_registry_keeps_the_order_and_finds_by_name(void **state)
{
    (void)state;
    assert_ptr_equal(ls_registry_at(registry, 0), &fake_listed);
    assert_ptr_equal(ls_registry_at(registry, 1), ls_ref_backend());
    assert_null(ls_registry_at(registry, 2));
    assert_null(ls_registry_at(registry, -1));
    assert_ptr_equal(ls_registry_find(registry, "fake:1", 4), &fake_listed);
    assert_null(ls_registry_find(registry, "fak", 3));
}

static void a_back_end_of_another_abi_is_refused(void **state)
{
    ls_backend other = fake_counted;
    char expected[100];
    (void)state;
    other.abi = LS_PLUGIN_ABI + 1;
    assert_int_equal(ls_registry_add(registry, &other, &err), LS_EINVAL);
    snprintf(expected, sizeof expected,
             "a back end was built for plugin ABI %u, this library has %u: rebuild it",
             (unsigned)LS_PLUGIN_ABI + 1, (unsigned)LS_PLUGIN_ABI);
    assert_string_equal(err.text, expected);
    other = fake_counted;
    other.size--;
    assert_int_equal(ls_registry_add(registry, &other, &err), LS_EINVAL);
    assert_null(ls_registry_at(registry, 2));
}

static void a_name_is_given_once(void **state)
{
    (void)state;
    assert_int_equal(ls_registry_add(registry, &fake_listed, &err), LS_EINVAL);
    assert_string_equal(err.text, "there already is a back end named 'fake'");
}

static void the_registry_is_bounded(void **state)
{
    static const char *const name[] = {"a", "b", "c", "d", "e", "f", "g"};
    ls_backend more[7];
    (void)state;
    for (int i = 0; i < 7; i++) {
        more[i] = fake_counted;
        more[i].name = name[i];
        int fits = i + 2 < LS_BACKENDS_MAX;
        assert_int_equal(ls_registry_add(registry, &more[i], &err), fits ? LS_OK : LS_EINVAL);
    }
    assert_string_equal(err.text, "more than 8 back ends");
}

LS_TESTS(device_list, "unit")
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(auto_takes_all_devices_of_the_first_kind_that_has_some),
        TEST(auto_and_a_bare_kind_are_cut_to_the_limit),
        TEST(a_counted_kind_takes_a_number),
        TEST(a_listed_kind_takes_indices),
        TEST(words_that_cannot_be_read_are_named_with_the_fix),
        TEST(absurd_numbers_are_refused),
        TEST(a_device_that_is_not_there_is_named),
        TEST(absent_is_told_from_broken),
        TEST(no_device_at_all_is_an_error),
        TEST(the_registry_keeps_the_order_and_finds_by_name),
        TEST(a_back_end_of_another_abi_is_refused),
        TEST(a_name_is_given_once),
        TEST(the_registry_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
