/* SPDX-License-Identifier: MIT */
/* Compares digests and words the result (digest.h). */
#include "base/digest.h"

#include <stdio.h>

bool ls_digests_agree(const uint64_t *digest, int count)
{
    for (int i = 1; i < count; i++)
        if (digest[i] != digest[0])
            return false;
    return true;
}

/* Returns the index of a digest that more than half of all copies have, or −1. */
static int find_majority(const uint64_t *digest, int count)
{
    for (int i = 0; i < count; i++) {
        int same = 0;
        for (int k = 0; k < count; k++)
            same += digest[k] == digest[i];
        if (2 * same > count)
            return i;
    }
    return -1;
}

/* Writes the names of all copies that differ from copy `right` (−1: of all copies), and returns the
 * length of the list. */
static size_t list_names(char *out, size_t size, const uint64_t *digest, int count, int right,
                         ls_digest_name *name, void *user)
{
    size_t used = 0;
    int left = 0;
    for (int i = 0; i < count; i++)
        left += right < 0 || digest[i] != digest[right];
    for (int i = 0; i < count && used < size / 2; i++) {
        if (right >= 0 && digest[i] == digest[right])
            continue;
        used += (size_t)snprintf(out + used, size - used, "%s%.64s",
                                 used == 0   ? ""
                                 : left == 1 ? " and "
                                             : ", ",
                                 name(user, i));
        left--;
    }
    return used;
}

void ls_digest_explain(char *out, size_t size, const uint64_t *digest, int count,
                       ls_digest_name *name, void *user)
{
    const int right = find_majority(digest, count);
    int same = 0;
    for (int i = 0; right >= 0 && i < count; i++)
        same += digest[i] == digest[right];
    const size_t used = list_names(out, size, digest, count, right, name, user);
    if (used < size && right >= 0)
        snprintf(out + used, size - used, " %s another copy of the model than the other %d",
                 count - same > 1 ? "have" : "has", same);
    else if (used < size)
        snprintf(out + used, size - used,
                 " have different copies of the model, and which is right is unknown");
}
