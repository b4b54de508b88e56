/* SPDX-License-Identifier: MIT */
/* Reads dates and times, and takes them apart (date.h). Days are counted by the rule of the
 * Gregorian calendar, which repeats every 400 years; in the computation a year begins in March, so
 * that the leap day is its last. */
#include "prep/date.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    DAY = 86400,   /* seconds */
    ERA = 146097,  /* days of 400 years */
    EPOCH = 719468 /* days from 0000-03-01 to 1970-01-01 */
};

const char *const ls_date_form_names[] = {"none", "ymd", "dmy", "mdy", "time", NULL};
const char *const ls_date_part_names[] = {"year", "month", "weekday", "hour", "days", NULL};

/* ---- the calendar ---------------------------------------------------------------------------- */

static long days_of(int year, int month, int day)
{
    const long y = year - (month <= 2), era = y / 400, of_era = y - era * 400;
    const long of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
    return era * ERA + of_era * 365 + of_era / 4 - of_era / 100 + of_year - EPOCH;
}

/* Converts a day to year, month and day. `days`: a day of the years −400 to 10400. */
static void date_of(long days, int *year, int *month, int *day)
{
    const long z = days + EPOCH + ERA, era = z / ERA, n = z - era * ERA;
    const long y = (n - n / 1460 + n / 36524 - n / (ERA - 1)) / 365;
    const long of_year = n - (365 * y + y / 4 - y / 100), m = (5 * of_year + 2) / 153;
    *day = (int)(of_year - (153 * m + 2) / 5 + 1);
    *month = (int)(m < 10 ? m + 3 : m - 9);
    *year = (int)(y + (era - 1) * 400 + (*month <= 2));
}

static bool exists(int year, int month, int day)
{
    static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    if (year < 1 || month < 1 || month > 12 || day < 1)
        return false;
    const bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    return day <= days[month - 1] + (month == 2 && leap);
}

/* ---- reading --------------------------------------------------------------------------------- */

/* The bytes of a field that have not been read. */
typedef struct cursor {
    const char *at, *end;
} cursor;

/* Reads a whole number of `least` to `most` digits. */
static bool read_digits(cursor *c, int least, int most, int *out)
{
    int n = 0;
    *out = 0;
    for (; n < most && c->at < c->end && *c->at >= '0' && *c->at <= '9'; n++)
        *out = *out * 10 + (*c->at++ - '0');
    return n >= least;
}

/* Skips the byte `wanted`. Returns false if another byte is next. */
static bool skip(cursor *c, char wanted)
{
    if (c->at == c->end || *c->at != wanted)
        return false;
    c->at++;
    return true;
}

static bool skip_word(cursor *c, const char *word)
{
    const size_t n = strlen(word);
    if ((size_t)(c->end - c->at) < n || memcmp(c->at, word, n) != 0)
        return false;
    c->at += n;
    return true;
}

static void skip_blanks(cursor *c)
{
    while (c->at < c->end && (*c->at == ' ' || *c->at == '\t'))
        c->at++;
}

/* The three numbers of a date, in the order of the field. */
typedef struct numbers {
    int first, second, third;
    bool year_first;
} numbers;

static bool read_numbers(cursor *c, numbers *out)
{
    const char *from = c->at;
    if (!read_digits(c, 1, 4, &out->first) || c->at == c->end)
        return false;
    const long digits = c->at - from;
    const char mark = *c->at;
    out->year_first = digits == 4;
    if (digits == 3 || !strchr(out->year_first ? "-/" : "-/.", mark))
        return false;
    return skip(c, mark) && read_digits(c, 1, 2, &out->second) && skip(c, mark) &&
           (out->year_first ? read_digits(c, 1, 2, &out->third)
                            : read_digits(c, 4, 4, &out->third));
}

/* Reads a fraction of a second, after the point. */
static bool read_fraction(cursor *c, double *seconds)
{
    double unit = 1;
    int digit, digits = 0;
    for (; read_digits(c, 1, 1, &digit); digits++) {
        unit /= 10;
        *seconds += unit * digit;
    }
    return digits > 0;
}

/* Converts an hour of a clock of twelve hours, if AM or PM follows. */
static bool read_half(cursor *c, int *hour)
{
    cursor next = *c;
    skip_blanks(&next);
    const bool pm = skip_word(&next, "PM") || skip_word(&next, "pm");
    if (!pm && !skip_word(&next, "AM") && !skip_word(&next, "am"))
        return true;
    const bool fits = *hour >= 1 && *hour <= 12;
    *hour = *hour % 12 + (pm ? 12 : 0);
    *c = next;
    return fits;
}

static bool read_time(cursor *c, double *seconds)
{
    int hour, minute, second = 0;
    double fraction = 0;
    if (!read_digits(c, 1, 2, &hour) || !skip(c, ':') || !read_digits(c, 2, 2, &minute))
        return false;
    if (skip(c, ':') && !read_digits(c, 2, 2, &second))
        return false;
    if ((skip(c, '.') || skip(c, ',')) && !read_fraction(c, &fraction))
        return false;
    if (!read_half(c, &hour))
        return false;
    *seconds = hour * 3600.0 + minute * 60 + second + fraction;
    return minute < 60 && second <= 60 && (hour < 24 || *seconds == DAY);
}

/* Reads the zone of a time, if there is one, and subtracts its offset. */
static bool read_zone(cursor *c, double *seconds)
{
    int hours, minutes = 0;
    skip_blanks(c);
    if (skip(c, 'Z') || skip(c, 'z') || skip_word(c, "UTC") || skip_word(c, "GMT"))
        return true;
    const bool minus = c->at < c->end && *c->at == '-';
    if (!minus && !(c->at < c->end && *c->at == '+'))
        return true;
    c->at++;
    if (!read_digits(c, 2, 2, &hours))
        return false;
    const bool colon = skip(c, ':');
    if ((colon || c->at < c->end) && !read_digits(c, 2, 2, &minutes))
        return false;
    *seconds -= (minus ? -1 : 1) * (hours * 3600.0 + minutes * 60);
    return hours < 24 && minutes < 60;
}

/* Reads what follows a date: nothing, or a time. */
static bool read_rest(cursor *c, double *seconds)
{
    *seconds = 0;
    if (c->at == c->end)
        return true;
    if (!skip(c, 'T')) {
        if (*c->at != ' ')
            return false;
        skip_blanks(c);
    }
    return read_time(c, seconds) && read_zone(c, seconds) && c->at == c->end;
}

static cursor cursor_of(const char *text, size_t n)
{
    cursor c = {text, text + n};
    skip_blanks(&c);
    while (c.end > c.at && strchr(" \t\r", c.end[-1]))
        c.end--;
    return c;
}

bool ls_date_read(const char *text, size_t n, ls_date_form form, double *moment)
{
    cursor c = cursor_of(text, n);
    numbers d;
    double seconds;
    if (form == LS_DATE_TIME)
        return read_time(&c, moment) && c.at == c.end;
    if (!read_numbers(&c, &d) || !read_rest(&c, &seconds) || (!d.year_first && form == LS_DATE_YMD))
        return false;
    const int year = d.year_first ? d.first : d.third;
    const int month = d.year_first || form == LS_DATE_DMY ? d.second : d.first;
    const int day = d.year_first ? d.third : form == LS_DATE_DMY ? d.first : d.second;
    if (!exists(year, month, day))
        return false;
    *moment = (double)days_of(year, month, day) * DAY + seconds;
    return true;
}

unsigned ls_date_forms(const char *text, size_t n)
{
    unsigned forms = 0;
    double moment;
    for (int form = LS_DATE_YMD; form < LS_DATE_FORMS; form++)
        if (ls_date_read(text, n, (ls_date_form)form, &moment))
            forms |= 1u << form;
    return forms;
}

/* ---- other forms ----------------------------------------------------------------------------- */

/* Skips the English name of a month, or the beginning of one. */
static bool skip_month(cursor *c)
{
    static const char names[] = "janfebmaraprmayjunjulaugsepoctnovdec";
    const char *from = c->at;
    while (c->at < c->end && (*c->at | 0x20) >= 'a' && (*c->at | 0x20) <= 'z')
        c->at++;
    for (const char *name = names; *name && c->at - from >= 3; name += 3)
        if ((from[0] | 0x20) == name[0] && (from[1] | 0x20) == name[1] &&
            (from[2] | 0x20) == name[2])
            return true;
    return false;
}

bool ls_date_is_unread(const char *text, size_t n)
{
    cursor c = cursor_of(text, n);
    int number[4] = {0}, count = 0, months = 0;
    bool pairs = true;
    while (c.at < c.end && count + months < 4) {
        const char *from = c.at;
        if (read_digits(&c, 1, 4, &number[count])) {
            count++;
            pairs = pairs && c.at - from == 2;
        } else if (skip_month(&c))
            months++;
        else
            return false;
        while (c.at < c.end && strchr(" ,.-/", *c.at))
            c.at++;
    }
    if (c.at < c.end || months > 1)
        return false;
    if (months == 1)
        return count == 2 && number[0] > 0 && number[1] > 0;
    const int *d = number;
    return count == 3 && pairs &&
           (exists(2000 + d[2], d[1], d[0]) || exists(2000 + d[2], d[0], d[1]) ||
            exists(2000 + d[0], d[1], d[2]));
}

bool ls_date_is_number(double number)
{
    if (!(number >= 19000101 && number <= 21001231) || number != floor(number))
        return false;
    const int date = (int)number;
    return exists(date / 10000, date / 100 % 100, date % 100);
}

/* ---- parts ----------------------------------------------------------------------------------- */

double ls_date_day(double moment)
{
    return floor(moment / DAY);
}

double ls_date_part_of(ls_date_part part, double moment, double since)
{
    if (isnan(moment))
        return moment;
    const double day = ls_date_day(moment);
    int year, month, of_month;
    date_of((long)day, &year, &month, &of_month);
    switch (part) {
    case LS_PART_YEAR: return year;
    case LS_PART_MONTH: return month;
    case LS_PART_WEEKDAY: return fmod(day + 3 + 7.0 * ERA, 7); /* 1970-01-01 was a Thursday */
    case LS_PART_HOUR: return (moment - day * DAY) / 3600;
    default: return moment / DAY - since;
    }
}

void ls_date_show(char out[LS_DATE_SHOWN], double day)
{
    int year, month, of_month;
    date_of((long)day, &year, &month, &of_month);
    snprintf(out, LS_DATE_SHOWN, "%04d-%02d-%02d", year, month, of_month);
}
