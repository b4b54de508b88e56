/* Dealing: several threads divide a range of items among themselves while they work, so that a
 * thread that is slower, or has less of a CPU, gets fewer items. Each thread's items are adjacent.
 *
 *     ls_deal_begin(&hand);                          // each taker, once a round
 *     while ((item = ls_deal_take(&hand)) >= 0) …    // until no item is left for this taker
 *     … all takers meet (sync/barrier.h) …           // between two rounds
 *
 * Each taker has a first item of its own, which nobody else gets. Between the first items of two
 * neighbours lies a gap, and both take from it: one from its left end, the other from its right
 * end. A taker between two gaps takes from the one that has more items left. The first item of the
 * first taker is the first of all, and that of the last taker is the last of all, so a round deals
 * every item.
 *
 * Why each item is dealt once a round. A gap has one atomic word: the round, and the numbers of
 * items that were taken from its left and from its right in that round. It is only changed by
 * read-modify-writes, which see each other's results in one order. A taker that finds a word of
 * another round than its own treats both numbers as 0. The takers meet between two rounds, so every
 * change in an earlier round happens before each read in this one, and a word of another round is
 * an older one (coherence). A change adds 1 to one of the numbers while their sum is less than the
 * number of items, and the value that it read says which item that is.
 *
 * Memory order. All accesses are relaxed. A word tells who takes an item and nothing else; no taker
 * concludes from it what another one wrote. What takers write while they work on their items
 * becomes visible where they meet.
 *
 * A taker that stalls in a round, and continues later, may still take items of that round from the
 * same ls_deal. So the others go on with a new one, and the old one is kept while a stalled taker
 * may use it.
 */
#ifndef SYNC_DEAL_H
#define SYNC_DEAL_H

#include <lockstep/host.h>
#include <lockstep/status.h>
#include <stdint.h>

enum { LS_DEAL_ITEMS_MAX = 65536 }; /* most items */

typedef struct ls_deal ls_deal;

/* A taker and its items of the current round, lo … hi − 1. Used by its thread only. */
typedef struct ls_hand {
    ls_deal *deal;
    int taker;
    uint32_t round;
    int lo, hi;
} ls_hand;

/* Creates the deal of the items first[0] … first[takers − 1] among `takers` threads; first[i] is
 * the first item of taker i. Errors: LS_EINVAL (`first` does not ascend, there are too many items),
 * LS_ENOMEM. */
int ls_deal_create(ls_deal **out, const int *first, int takers, const ls_host *host, ls_error *err);
/* Frees it. NULL is allowed. */
void ls_deal_destroy(ls_deal *deal);

/* Makes *hand the hand of taker `taker`, before its first round. */
void ls_deal_join(ls_hand *hand, ls_deal *deal, int taker);
/* Returns the taker's first item. */
int ls_deal_first(const ls_hand *hand);
/* Writes the range of the items that may be dealt to the taker: *lo … *hi − 1. */
void ls_deal_reach(const ls_hand *hand, int *lo, int *hi);
/* Begins a round: the hand is empty. */
void ls_deal_begin(ls_hand *hand);
/* Takes an item, which is next to those that the taker has: the one on their left (hand->lo is then
 * the item) or on their right. Returns it, or −1 if none is left for this taker. */
int ls_deal_take(ls_hand *hand);

#endif
