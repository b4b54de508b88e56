#include "store/natural.h"

#include <string.h>

static int is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Compares the numbers that both begin with, and steps over them. */
static int compare_numbers(const char **a, const char **b)
{
    size_t n = 0, m = 0;
    while (**a == '0')
        ++*a;
    while (**b == '0')
        ++*b;
    while (is_digit((*a)[n]))
        n++;
    while (is_digit((*b)[m]))
        m++;
    int order = n != m ? (n < m ? -1 : 1) : memcmp(*a, *b, n);
    *a += n;
    *b += m;
    return order;
}

int ls_natural_order(const char *a, const char *b)
{
    const char *p = a;
    const char *q = b;
    while (*p && *q) {
        int order = 0;
        if (is_digit(*p) && is_digit(*q))
            order = compare_numbers(&p, &q);
        else
            order = (unsigned char)*p++ - (unsigned char)*q++;
        if (order != 0)
            return order;
    }
    /* One begins the other; or they differ in leading zeros alone. */
    return *p ? 1 : *q ? -1 : strcmp(a, b);
}
