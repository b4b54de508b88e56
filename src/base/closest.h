/* "Did you mean …?" for misspelt names. Any thread; allocates nothing; never fails. */
#ifndef BASE_CLOSEST_H
#define BASE_CLOSEST_H

#include <stddef.h>

/* The candidate that `word` most probably stands for, or NULL when none is near. Near means at most
 * two edits or a third of the word's letters, whichever is more (one edit for words of up to three
 * letters); an edit inserts, drops or replaces a letter or swaps two neighbours, and the case of
 * ASCII letters does not count. The first of equally near candidates wins. Words of more than 63
 * bytes are near nothing. */
const char *ls_closest(const char *word, const char *const *candidates, size_t count);

#endif
