/* An order in which step-900 stands before step-1000. */
#ifndef STORE_NATURAL_H
#define STORE_NATURAL_H

/* Negative, 0 or positive, as strcmp; runs of digits compare as numbers. 0 only for equal texts. */
int ls_natural_order(const char *a, const char *b);

#endif
