/* SPDX-License-Identifier: MIT */
/* Parses the numbers in the fields of tables, to the double that strtod returns. If a number has
 * few digits, mantissa and power of ten are exact doubles, so their product or quotient is rounded
 * only once. ls_number_scan divides longer numbers of up to 19 digits as integers of 128 bits. All
 * other numbers are read by strtod. */
#include "prep/number.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum {
    EXACT_POWER = 22, /* 10^22 is the largest power of ten that a double represents exactly */
    DIGITS = 19,      /* a uint64_t holds any number of this many decimal digits */
    NUMBER_BYTES = 4096,
    EXPONENTS = 100000, /* take_apart reads exponents exactly up to this number */
    DIVIDED_BYTES = 64  /* largest size of a number with thousands separators */
};

/* the largest mantissa all of whose bits a double holds */
#define EXACT_MANTISSA ((uint64_t)1 << 53)

static const double power_of_ten[EXACT_POWER + 1] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                                     1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                                     1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

static const uint64_t whole_power_of_ten[DIGITS + 1] = {1u,
                                                        10u,
                                                        100u,
                                                        1000u,
                                                        10000u,
                                                        100000u,
                                                        1000000u,
                                                        10000000u,
                                                        100000000u,
                                                        1000000000u,
                                                        10000000000u,
                                                        100000000000u,
                                                        1000000000000u,
                                                        10000000000000u,
                                                        100000000000000u,
                                                        1000000000000000u,
                                                        10000000000000000u,
                                                        100000000000000000u,
                                                        1000000000000000000u,
                                                        10000000000000000000u};

/* ---- plain numbers --------------------------------------------------------------------------- */

/* The parts of a plain number. */
typedef struct parts {
    const char *end;
    uint64_t mantissa; /* value of all digits; overflows if there are more than DIGITS */
    int whole, fraction;
    int exponent;
    char first;                      /* the first digit */
    bool minus, point, has_exponent; /* has_exponent: the number ends with e or E and an exponent */
} parts;

static bool is_digit(char c)
{
    return (unsigned char)(c - '0') < 10;
}

/* Splits the number at the start of `text`, which must end with a byte that no number contains.
 * Returns false if there is no number. */
static bool take_apart(const char *text, parts *out)
{
    const char *p = text;
    uint64_t m = 0;
    parts n = {.minus = *p == '-'};
    p += *p == '-' || *p == '+';
    const char *from = p;
    n.first = *p;
    while (is_digit(*p))
        m = m * 10 + (uint64_t)(*p++ - '0');
    n.whole = (int)(p - from);
    if (*p == '.') {
        n.point = true;
        from = ++p;
        while (is_digit(*p))
            m = m * 10 + (uint64_t)(*p++ - '0');
        n.fraction = (int)(p - from);
    }
    n.mantissa = m;
    if (n.whole + n.fraction == 0)
        return false;
    if (*p == 'e' || *p == 'E') {
        const bool minus = p[1] == '-';
        p += 1 + (minus || p[1] == '+');
        if (!is_digit(*p))
            return false;
        for (; is_digit(*p); p++)
            n.exponent = n.exponent < 100000 ? n.exponent * 10 + (*p - '0') : n.exponent;
        n.exponent = minus ? -n.exponent : n.exponent;
        n.has_exponent = true;
    }
    n.end = p;
    *out = n;
    return true;
}

static unsigned form_of(const parts *n)
{
    if (!n->point)
        return 0;
    const bool thousands =
        n->fraction == 3 && n->whole >= 1 && n->whole <= 3 && n->first != '0' && !n->has_exponent;
    return thousands ? LS_FORM_POINT_OR_GROUP : LS_FORM_POINT;
}

/* Computes the value of a number from its mantissa and its power of ten, if the mantissa is at most
 * 2^53 and the power from 10^-22 to 10^22. Both are then exact doubles, and the result is rounded
 * once. Returns false for other numbers. */
static bool scale(const parts *n, double *value)
{
    const int power = n->exponent - n->fraction;
    if (n->whole + n->fraction > DIGITS || n->mantissa > EXACT_MANTISSA || power > EXACT_POWER ||
        power < -EXACT_POWER)
        return false;
    const double m = (double)n->mantissa;
    const double v = power < 0 ? m / power_of_ten[-power] : m * power_of_ten[power];
    *value = n->minus ? -v : v;
    return true;
}

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
/* Reads eight digits at a time, until fewer than eight follow. The bytes are loaded as one integer,
 * with the first digit in the lowest byte. A byte is a digit if its upper four bits are 3, and are
 * still 3 after 6 is added. */
static const char *take_eights(const char *p, uint64_t *m)
{
    for (;; p += 8) {
        uint64_t v;
        memcpy(&v, p, sizeof v);
        if (((v & 0xF0F0F0F0F0F0F0F0u) |
             (((v + 0x0606060606060606u) & 0xF0F0F0F0F0F0F0F0u) >> 4)) != 0x3333333333333333u)
            return p;
        v = (v & 0x0F0F0F0F0F0F0F0Fu) * 2561 >> 8;
        v = (v & 0x00FF00FF00FF00FFu) * 6553601 >> 16;
        v = (v & 0x0000FFFF0000FFFFu) * 42949672960001u >> 32;
        *m = *m * 100000000 + v;
    }
}
#else
static const char *take_eights(const char *p, uint64_t *m)
{
    (void)m;
    return p;
}
#endif

static inline const char *take_digits(const char *p, uint64_t *m)
{
    uint64_t v = *m;
    p = take_eights(p, &v);
    for (; is_digit(*p); p++)
        v = v * 10 + (uint64_t)(*p - '0');
    *m = v;
    return p;
}

__extension__ typedef unsigned __int128 wide;

/* Returns m / 10^fraction, rounded once to the nearest double, and to the even one of two. The
 * quotient of m, shifted up to 127 bits, has 64 bits or more, because the divisor has at most 64.
 * Its lowest bit is set if there is a remainder, so that the conversion to a double rounds as the
 * exact quotient would. `m` must be above 0. */
static double divide_exactly(uint64_t m, long fraction)
{
    const int shift = 62 + __builtin_clzll(m);
    const wide dividend = (wide)m << shift, divisor = whole_power_of_ten[fraction];
    const wide quotient = dividend / divisor;
    const bool rest = quotient * divisor != dividend;
    return ldexp((double)(quotient | rest), -shift);
}

/* Does the work of ls_number_scan for a number with an exponent. */
static const char *scan_with_exponent(const char *text, double *value, unsigned *form)
{
    parts n;
    if (!take_apart(text, &n) || !scale(&n, value))
        return NULL;
    *form = form_of(&n);
    return n.end;
}

const char *ls_number_scan(const char *text, double *value, unsigned *form)
{
    const char *p = text;
    const bool minus = *p == '-';
    uint64_t m = 0;
    long fraction = 0;
    p += minus || *p == '+';
    const char first = *p, *from = p;
    p = take_digits(p, &m);
    const long whole = p - from;
    *form = 0;
    if (*p == '.') {
        from = ++p;
        p = take_digits(p, &m);
        fraction = p - from;
        *form = fraction == 3 && whole >= 1 && whole <= 3 && first != '0' ? LS_FORM_POINT_OR_GROUP
                                                                          : LS_FORM_POINT;
    }
    if (*p == 'e' || *p == 'E')
        return scan_with_exponent(text, value, form);
    if (whole + fraction == 0 || whole + fraction > DIGITS)
        return NULL;
    const double v =
        m <= EXACT_MANTISSA ? (double)m / power_of_ten[fraction] : divide_exactly(m, fraction);
    *value = minus ? -v : v;
    return p;
}

/* Reads a text if the whole of it is a plain number. */
static bool read_plain(const char *text, size_t n, double *value, parts *number)
{
    char copy[NUMBER_BYTES];
    if (n == 0 || n >= sizeof copy)
        return false;
    memcpy(copy, text, n);
    copy[n] = '\0';
    if (!take_apart(copy, number) || number->end != copy + n)
        return false;
    if (!scale(number, value))
        *value = strtod(copy, NULL);
    return true;
}

bool ls_field_is_number(const char *text, double *value)
{
    parts number;
    return read_plain(text, strlen(text), value, &number);
}

bool ls_field_digits(const char *text, ls_digits *out)
{
    parts n;
    if (!take_apart(text, &n) || *n.end != '\0' || n.end - text >= NUMBER_BYTES)
        return false;
    const char *p = text + (*text == '-' || *text == '+');
    const char *const end = p + n.whole + n.point + n.fraction;
    int place = n.whole - 1; /* power of ten of the digit at p */
    for (; p < end && (*p == '0' || *p == '.'); p++)
        place -= *p == '0';
    *out = (ls_digits){.first = p, .end = p};
    for (int count = 0; p < end; p++) {
        count += *p != '.';
        if (*p != '0' && *p != '.') {
            out->end = p + 1;
            out->count = count;
        }
    }
    if (out->count == 0) /* 0, with any sign and any exponent */
        return true;
    out->power = place + n.exponent;
    out->minus = n.minus;
    return n.exponent < EXPONENTS && n.exponent > -EXPONENTS;
}

/* ---- thousands separators and decimal commas ------------------------------------------------- */

/* Copies `text`, and replaces each non-breaking space and each curly apostrophe, which separate
 * thousands, by a plain apostrophe ('). Commas and points are copied. Returns the length of the
 * copy, or 0 if the text is too long or has a byte that no number contains. */
static size_t copy_marks(char out[DIVIDED_BYTES], const char *text, size_t n)
{
    static const char *const mark[] = {"\xC2\xA0", "\xE2\x80\xAF", "\xE2\x80\x99"};
    size_t used = 0;
    for (size_t i = 0; i < n && used < DIVIDED_BYTES - 1;) {
        size_t length = text[i] && strchr("0123456789+-.,'eE", text[i]) ? 1 : 0;
        out[used] = text[i];
        for (size_t k = 0; length == 0 && k < 3; k++)
            if (n - i >= strlen(mark[k]) && memcmp(text + i, mark[k], strlen(mark[k])) == 0) {
                length = strlen(mark[k]);
                out[used] = '\'';
            }
        if (length == 0)
            return 0;
        i += length;
        used++;
    }
    out[used] = '\0';
    return used < DIVIDED_BYTES - 1 ? used : 0;
}

/* Checks that `text` consists of groups of three digits (the first group: one to three) with the
 * same separator between them. Removes the separators and sets *n to the new length. */
static bool join_digits(char *text, size_t *n)
{
    size_t digits = 0, used = 0;
    char mark = 0;
    for (size_t i = 0; i < *n; i++) {
        if (is_digit(text[i])) {
            digits++;
            text[used++] = text[i];
            continue;
        }
        if (mark ? digits != 3 || text[i] != mark : digits < 1 || digits > 3)
            return false;
        mark = text[i];
        digits = 0;
    }
    if (mark && (digits != 3 || text[0] == '0'))
        return false;
    *n = used;
    return true;
}

static size_t count(const char *text, size_t n, char c)
{
    size_t found = 0;
    for (size_t i = 0; i < n; i++)
        found += text[i] == c;
    return found;
}

static size_t last_of(const char *text, size_t n, char c)
{
    while (n > 0 && text[n - 1] != c)
        n--;
    return n > 0 ? n - 1 : 0;
}

/* Finds the length of the integer part of the number `text`, and the number's form (LS_FORM_…).
 * `decimal`: the decimal separator if known, else 0. Returns false if the commas and points of
 * `text` cannot be the separators of one number. */
static bool find_point(const char *text, size_t n, char decimal, bool has_exponent, size_t *whole,
                       unsigned *form)
{
    const size_t commas = count(text, n, ','), points = count(text, n, '.'),
                 marks = count(text, n, '\'');
    const size_t comma = commas ? last_of(text, n, ',') : n,
                 point = points ? last_of(text, n, '.') : n;
    *whole = n;
    *form = 0;
    if (commas && points) {
        *form = comma > point ? LS_FORM_COMMA : LS_FORM_COMMA_GROUPS;
        *whole = comma > point ? comma : point;
        return (comma > point ? commas : points) == 1;
    }
    if (commas > 1) {
        *form = LS_FORM_COMMA_GROUPS;
    } else if (commas == 1) {
        const bool thousands = comma >= 1 && comma <= 3 && n - comma == 4 && text[0] != '0' &&
                               marks == 0 && !has_exponent;
        *form = thousands ? LS_FORM_COMMA_OR_GROUP : LS_FORM_COMMA;
        *whole = thousands && decimal != ',' ? n : comma;
    } else if (points > 1) {
        return decimal == ',';
    } else if (points == 1) {
        const bool thousands = point >= 1 && point <= 3 && n - point == 4 && text[0] != '0' &&
                               marks == 0 && !has_exponent;
        *form = thousands ? LS_FORM_POINT_OR_GROUP : LS_FORM_POINT;
        *whole = thousands && decimal == ',' ? n : point;
    }
    return true;
}

/* Rewrites a number as a plain number in place: removes the separators of thousands, and makes the
 * decimal separator a point. The caller passes the number without its sign. Returns false if the
 * text is no number. */
static bool make_plain(char *text, size_t *n, char decimal, unsigned *form)
{
    const size_t digits = strcspn(text, "eE");
    size_t whole, joined;
    if (!find_point(text, digits, decimal, digits < *n, &whole, form))
        return false;
    if (decimal && ls_form_decimal(*form) && ls_form_decimal(*form) != decimal)
        return false;
    for (size_t i = whole + 1; i < digits; i++)
        if (!is_digit(text[i]))
            return false;
    joined = whole;
    if (!join_digits(text, &joined))
        return false;
    if (whole < *n) {
        memmove(text + joined, text + whole, *n - whole);
        if (whole < digits)
            text[joined] = '.';
    }
    *n = joined + (*n - whole);
    return true;
}

/* Strips spaces at both ends. */
static const char *trim(const char *text, size_t *n)
{
    while (*n > 0 && *text == ' ') {
        text++;
        --*n;
    }
    while (*n > 0 && text[*n - 1] == ' ')
        --*n;
    return text;
}

bool ls_number_read(const char *text, size_t n, char decimal, double *value, unsigned *form)
{
    char copy[DIVIDED_BYTES];
    parts number;
    text = trim(text, &n);
    if (n == 0 || !(is_digit(text[0]) || strchr("+-.,", text[0])) || text[0] == '\0')
        return false;
    if (read_plain(text, n, value, &number)) {
        *form = form_of(&number);
        if (decimal != ',' || *form == 0)
            return true;
    }
    size_t length = copy_marks(copy, text, n);
    const size_t sign = length > 0 && (copy[0] == '-' || copy[0] == '+');
    length -= length > 0 ? sign : 0;
    if (length == 0 || !make_plain(copy + sign, &length, decimal, form))
        return false;
    return read_plain(copy, sign + length, value, &number);
}

char ls_form_decimal(unsigned form)
{
    if (form & (LS_FORM_POINT | LS_FORM_COMMA_GROUPS))
        return '.';
    return form & LS_FORM_COMMA ? ',' : '\0';
}

/* ---- words ----------------------------------------------------------------------------------- */

const char *ls_missing_word(int i)
{
    static const char *const word[] = {"",     "NA",  "NaN",  "nan",  "null", "?",
                                       "N/A",  "n/a", "NAN",  "NULL", "Null", "\\N",
                                       "#N/A", "#NA", "<NA>", "-nan", "-NaN", NULL};
    return word[i];
}

static bool is_word(const char *word, const char *text, size_t n)
{
    return (n == 0 || *word == *text) && strlen(word) == n && memcmp(word, text, n) == 0;
}

/* The words of ls_missing_word mean a missing value in every column. */
bool ls_field_is_missing(const char *text, size_t n)
{
    text = trim(text, &n);
    if (n > 4 || (n > 0 && is_digit(*text)))
        return false;
    for (int i = 0; ls_missing_word(i); i++)
        if (is_word(ls_missing_word(i), text, n))
            return true;
    return false;
}

/* These words mean a missing value in columns of numbers only; in a column of text they are texts.
 * Infinite numbers count as missing. */
bool ls_field_is_missing_number(const char *text, size_t n)
{
    static const char *const word[] = {"-",    "--",      ".",        "None",     "none",
                                       "NONE", "na",      "inf",      "Inf",      "INF",
                                       "nil",  "missing", "infinity", "Infinity", "NaT"};
    text = trim(text, &n);
    if (n == 0 || is_digit(*text))
        return false;
    const bool sign = n > 3 && (text[0] == '-' || text[0] == '+');
    for (size_t i = 0; i < sizeof word / sizeof *word; i++)
        if (is_word(word[i], text, n) ||
            (sign && (word[i][0] | 32) == 'i' && is_word(word[i], text + 1, n - 1)))
            return true;
    return false;
}

/* Matches the start of `text` with a form in which 9 stands for one or two digits and 4 for four
 * digits. Returns the length of the match in bytes; 0: no match. */
static size_t match(const char *text, size_t n, const char *form)
{
    size_t at = 0;
    for (; *form; form++) {
        size_t digits = 0;
        const size_t most = *form == '4' ? 4 : 2;
        if (*form != '4' && *form != '9') {
            if (at == n || text[at++] != *form)
                return 0;
            continue;
        }
        while (at < n && digits < most && is_digit(text[at])) {
            at++;
            digits++;
        }
        if (digits == 0 || (*form == '4' && digits != 4))
            return 0;
    }
    return at;
}

static bool is_date(const char *text, size_t n)
{
    static const char *const form[] = {"4-9-9", "4/9/9", "9/9/4", "9.9.4", "9-9-4", "9/9/9"};
    for (size_t i = 0; i < sizeof form / sizeof *form; i++) {
        const size_t end = match(text, n, form[i]);
        if (end > 0 && (end == n || text[end] == ' ' || text[end] == 'T'))
            return true;
    }
    return false;
}

static bool is_any_number(const char *text, size_t n)
{
    double value;
    unsigned form;
    return ls_number_read(text, n, 0, &value, &form);
}

static bool is_money(const char *text, size_t n)
{
    static const char *const sign[] = {"$", "\xE2\x82\xAC", "\xC2\xA3", "\xC2\xA5", "USD", "EUR"};
    const size_t minus = n > 0 && text[0] == '-';
    for (size_t i = 0; i < sizeof sign / sizeof *sign; i++) {
        const size_t length = strlen(sign[i]);
        if (n <= length + minus)
            continue;
        if (memcmp(text + minus, sign[i], length) == 0 &&
            is_any_number(text + minus + length, n - minus - length))
            return true;
        if (memcmp(text + n - length, sign[i], length) == 0 && is_any_number(text, n - length))
            return true;
    }
    return false;
}

const char *ls_field_looks_like(const char *text, size_t n)
{
    if (n == 0 || n > DIVIDED_BYTES)
        return NULL;
    if (text[n - 1] == '%' && is_any_number(text, n - 1))
        return "a percentage";
    if (is_money(text, n))
        return "an amount of money";
    if (is_date(text, n))
        return "a date";
    const size_t time = match(text, n, "9:9");
    if (time > 0 && (time == n || text[time] == ':' || text[time] == ' '))
        return "a time";
    return NULL;
}
