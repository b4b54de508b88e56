/* SPDX-License-Identifier: MIT */
/* Tests the reading of dates and times, and the numbers into which they are taken apart. */
#include "prep/date.h"
#include "runner.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { YMD = 1 << LS_DATE_YMD, DMY = 1 << LS_DATE_DMY, MDY = 1 << LS_DATE_MDY };
enum { ANY = YMD | DMY | MDY, TIME = 1 << LS_DATE_TIME };

static double moment_of(const char *text, ls_date_form form)
{
    double moment = NAN;
    if (!ls_date_read(text, strlen(text), form, &moment))
        fail_msg("not read: %s", text);
    return moment;
}

static void a_text_is_a_date_in_each_form_in_which_it_exists(void **state)
{
    static const struct {
        const char *text;
        int forms;
    } cases[] = {
        {"2024-12-31", ANY},
        {" 2024/1/5 ", ANY},
        {"2024-02-29", ANY},
        {"2023-02-29", 0},
        {"1900-02-29", 0},
        {"2000-02-29", ANY},
        {"0000-00-00", 0},
        {"0001-01-01", ANY},
        {"9999-12-31", ANY},
        {"2024-13-01", 0},
        {"2024-04-31", 0},
        {"31.12.2024", DMY},
        {"31-12-2024", DMY},
        {"12/31/2024", MDY},
        {"03/04/2024", DMY | MDY},
        {"30.02.2024", 0},
        {"1/2/24", 0},
        {"2024-1/5", 0},
        {"2024.12.31", 0},
        {"20241231", 0},
        {"2024-12-31T23:59:59.5Z", ANY},
        {"2024-12-31 08:15:00+02:00", ANY},
        {"2024-12-31 08:15 -0530", ANY},
        {"2024-12-31 08:15 UTC", ANY},
        {"2024-12-31T24:00", ANY},
        {"2024-12-31T24:01", 0},
        {"2024-12-31T23:60", 0},
        {"2024-12-31T8", 0},
        {"2024-12-31T08:15:", 0},
        {"2024-12-31x", 0},
        {"2024-12-31 08:15+25:00", 0},
        {"12/31/2024 3:45 PM", MDY},
        {"12/31/2024 13:45 PM", 0},
        {"8:15", TIME},
        {"08:15:30", TIME},
        {"25:15", 0},
        {"08:15Z", 0},
        {"12", 0},
        {"", 0},
        {"-", 0},
        {"1.5", 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (ls_date_forms(cases[i].text, strlen(cases[i].text)) != (unsigned)cases[i].forms)
            fail_msg("\"%s\" is read as %x", cases[i].text,
                     ls_date_forms(cases[i].text, strlen(cases[i].text)));
}

/* The bytes after a field belong to other fields. */
static void dates_in_other_forms_are_known(void **state)
{
    static const char *const dates[] = {"Jan 05, 2023", "5 January 2023", "05-Jan-23", "05.01.23",
                                        "13.05.12",     "31/12/24",       "23-12-31"};
    static const char *const others[] = {
        "",        "Jan", "Jan 05",       "1.2.3",    "00.00.00", "20-00-00",   "99.99.99",
        "1.2.3.4", "5",   "Janet 5, 2 x", "05:01:23", "Mai 5 23", "Jan 0 2023", "1 2 3 4 5"};
    static const double numbers[] = {20230105, 19000101, 20240229};
    static const double no_dates[] = {20230229, 20231301, 18991231, 20230105.5, NAN, 1e300, 5};
    (void)state;
    for (size_t i = 0; i < sizeof dates / sizeof *dates; i++)
        if (!ls_date_is_unread(dates[i], strlen(dates[i])))
            fail_msg("\"%s\" is no date", dates[i]);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (ls_date_is_unread(others[i], strlen(others[i])))
            fail_msg("\"%s\" is a date", others[i]);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        assert_true(ls_date_is_number(numbers[i]));
    for (size_t i = 0; i < sizeof no_dates / sizeof *no_dates; i++)
        assert_false(ls_date_is_number(no_dates[i]));
}

static void only_the_field_is_read(void **state)
{
    (void)state;
    assert_int_equal(ls_date_forms("2024-12-31", 9), ANY);
    assert_int_equal(ls_date_forms("2024-12-31", 7), 0);
    assert_int_equal(ls_date_forms("8:15", 3), 0);
}

static void parts_are_those_of_the_calendar(void **state)
{
    static const struct {
        const char *text;
        double part[LS_DATE_PARTS];
    } cases[] = {{"1970-01-01", {1970, 1, 3, 0, 0}},
                 {"1969-12-31 18:00", {1969, 12, 2, 18, -0.25}},
                 {"2000-02-29", {2000, 2, 1, 0, 11016}},
                 {"2024-12-31 08:15", {2024, 12, 1, 8.25, 20088.34375}},
                 {"0001-01-01", {1, 1, 0, 0, -719162}},
                 {"9999-12-31", {9999, 12, 4, 0, 2932896}},
                 {"1600-03-01", {1600, 3, 2, 0, -135080}}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const double moment = moment_of(cases[i].text, LS_DATE_YMD);
        for (int part = 0; part < LS_DATE_PARTS; part++)
            if (ls_date_part_of((ls_date_part)part, moment, 0) != cases[i].part[part])
                fail_msg("%s of %s: %g", ls_date_part_names[part], cases[i].text,
                         ls_date_part_of((ls_date_part)part, moment, 0));
    }
    assert_true(isnan(ls_date_part_of(LS_PART_YEAR, NAN, 0)));
}

/* Every day of 10,000 years follows the day before, in the calendar and in the week. */
static void days_follow_each_other(void **state)
{
    int before[3] = {1, 1, 0}, weekday = 6;
    (void)state;
    for (long day = -719162; day <= 2932896; day++) {
        const double m = (double)day * 86400;
        const int year = (int)ls_date_part_of(LS_PART_YEAR, m, 0),
                  month = (int)ls_date_part_of(LS_PART_MONTH, m, 0);
        weekday = (weekday + 1) % 7;
        if ((int)ls_date_part_of(LS_PART_WEEKDAY, m, 0) != weekday)
            fail_msg("weekday of day %ld", day);
        const bool same = year == before[0] && month == before[1];
        const bool next = year * 12 + month == before[0] * 12 + before[1] + 1;
        if (!same && !(next && before[2] >= 28))
            fail_msg("day %ld: %d-%d after %d-%d", day, year, month, before[0], before[1]);
        before[2] = same ? before[2] + 1 : 1;
        before[0] = year;
        before[1] = month;
    }
    assert_int_equal(before[0], 9999);
    assert_int_equal(before[2], 31);
}

static void one_moment_is_one_number_in_every_zone(void **state)
{
    (void)state;
    const double utc = moment_of("2024-12-31T22:30:00Z", LS_DATE_YMD);
    assert_true(moment_of("2025-01-01 00:30+02:00", LS_DATE_YMD) == utc);
    assert_true(moment_of("2024-12-31T17:00-05:30", LS_DATE_YMD) == utc);
    assert_true(moment_of("31.12.2024 22:30", LS_DATE_DMY) == utc);
    assert_true(moment_of("12/31/2024 10:30 PM", LS_DATE_MDY) == utc);
    assert_true(moment_of("12/31/2024 12:30 AM", LS_DATE_MDY) == utc - 22 * 3600);
}

static void days_are_shown_as_dates(void **state)
{
    char text[LS_DATE_SHOWN];
    (void)state;
    ls_date_show(text, -719162);
    assert_string_equal(text, "0001-01-01");
    ls_date_show(text, ls_date_day(moment_of("1969-12-31 23:00", LS_DATE_YMD)));
    assert_string_equal(text, "1969-12-31");
}

LS_TESTS(prep_date, "unit")
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_text_is_a_date_in_each_form_in_which_it_exists),
        cmocka_unit_test(dates_in_other_forms_are_known),
        cmocka_unit_test(only_the_field_is_read),
        cmocka_unit_test(parts_are_those_of_the_calendar),
        cmocka_unit_test(days_follow_each_other),
        cmocka_unit_test(one_moment_is_one_number_in_every_zone),
        cmocka_unit_test(days_are_shown_as_dates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
