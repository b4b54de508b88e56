/* SPDX-License-Identifier: MIT */
/* Dates and times in the fields of tables, and the numbers into which they are taken apart.
 *
 * A date is written as
 *
 * - year, month, day, with - or / between them: 2024-12-31 (ISO 8601)
 * - day, month, year, or month, day, year, with ., / or - between them: 31.12.2024, 12/31/2024
 *
 * A time may follow, after a T or spaces: 8:15, 08:15:30, 08:15:30.25, 3:45 PM; and then the zone:
 * Z, UTC, GMT, +02:00, +0200 or +02. A time with a zone is converted to UTC, so that one moment is
 * one value in whatever zone it is written; a time without a zone is taken as it is. The year has
 * four digits, in the calendar of ISO 8601. A date that does not exist, such as 2023-02-29, is no
 * date. A time without a date may have no zone.
 *
 * Any thread; nothing is allocated; the locale does not matter. */
#ifndef PREP_DATE_H
#define PREP_DATE_H

#include <stdbool.h>
#include <stddef.h>

/* How the dates of a column are written. In every column of dates, a date may also begin with the
 * year. */
typedef enum ls_date_form {
    LS_DATE_NONE, /* they are no dates */
    LS_DATE_YMD,  /* they begin with the year */
    LS_DATE_DMY,  /* day, month, year */
    LS_DATE_MDY,  /* month, day, year */
    LS_DATE_TIME, /* times without a date */
    LS_DATE_FORMS
} ls_date_form;

/* A number into which a date is taken apart. */
typedef enum ls_date_part {
    LS_PART_YEAR,
    LS_PART_MONTH,   /* 1 … 12 */
    LS_PART_WEEKDAY, /* 0 (Monday) … 6 (Sunday) */
    LS_PART_HOUR,    /* time of day in hours: 8.25 is 08:15 */
    LS_PART_DAYS,    /* days since a day that the column's description has, with the fraction of
                        the time */
    LS_DATE_PARTS
} ls_date_part;

/* Names of the forms ("ymd") and of the parts ("year"). The last entry is NULL. */
extern const char *const ls_date_form_names[];
extern const char *const ls_date_part_names[];

/* Returns the forms as which a field of `n` bytes can be read, a bit 1 << form for each; 0: it is
 * neither a date nor a time. A date that begins with the year has the bits of all three forms of
 * dates. */
unsigned ls_date_forms(const char *text, size_t n);

/* Returns whether a field of `n` bytes looks like a date in a form that is not read: with the name
 * of a month (Jan 05, 2023), or with a year of two digits (05.01.23). */
bool ls_date_is_unread(const char *text, size_t n);
/* Returns whether a whole number is a date of the years 1900 to 2100, such as 20230105. */
bool ls_date_is_number(double number);

/* Reads a field of `n` bytes of a column of the form `form`: *moment becomes the number of seconds
 * since 1970-01-01 00:00, or, of a time without a date, since midnight. Returns false if the field
 * is no such date. */
bool ls_date_read(const char *text, size_t n, ls_date_form form, double *moment);

/* Returns a part of a moment. `since`: the day from which days are counted, in days since
 * 1970-01-01. NaN is a missing moment, and its parts are NaN. */
double ls_date_part_of(ls_date_part part, double moment, double since);

/* Returns the day of a moment, in days since 1970-01-01. */
double ls_date_day(double moment);

enum { LS_DATE_SHOWN = 32 };
/* Writes a day as YYYY-MM-DD. `day`: in days since 1970-01-01. */
void ls_date_show(char out[LS_DATE_SHOWN], double day);

#endif
