/* Dealing: several threads divide a range of items among themselves while they work, so that a
 * thread that is slower, or has less of a CPU, gets fewer items. Each thread's items are adjacent.
 *
 *     ls_deal_begin(&hand);                          // each taker, once a round
 *     while ((item = ls_deal_take(&hand)) >= 0) …    // until no item is left for this taker
 *     … all takers meet (sync/barrier.h) …           // between two rounds
 *
 * A *taker* is one of these threads. Takers are numbered in the order of their first items. Taker i
 * always gets its first item, first[i], and nobody else does. The items between first[i] and
 * first[i + 1] are a *gap*. Taker i takes items from the left end of this gap, and taker i + 1
 * takes items from its right end, until the gap is empty. A taker that has a gap on both sides
 * takes from the one with more items left. The range of a deal begins with first[0] and ends with
 * first[takers − 1], so every item is a first item or lies in a gap.
 *
 * Why each item of a gap is dealt exactly once a round. A gap of n items has one atomic word, which
 * contains the number of a round, and how many items were taken from the left (l) and from the
 * right (r) in that round. The word changes only when a taker takes an item, by a compare-exchange.
 *
 * - What a taker reads in round k. All takers meet between two rounds, so every change of an
 *   earlier round happens before every read in round k, and no change of round k + 1 precedes such
 *   a read. By coherence the read returns either the last value of the earlier rounds or a value of
 *   round k. If the value has another round than k, it is the former: the taker treats l and r as
 *   0. (The value may be outdated, because other takers have changed the word meanwhile. The
 *   taker's compare-exchange then fails.)
 * - A successful compare-exchange reads the value immediately before its own in the word's
 *   modification order. So the changes of round k are like the steps of a counter: the first one
 *   makes l + r equal to 1, and each later one increases l + r by 1. None is made when l + r is n.
 *   Hence there are at most n changes, and a taker finds the gap empty only after exactly n.
 * - The change to a new l takes the item number l from the left, and the change to a new r the item
 *   number r from the right. Since l + r ≤ n, no item is taken from both ends.
 *
 * Memory order. All accesses to the word are relaxed. The word decides who takes an item, and no
 * taker derives from it what another taker has written elsewhere. What takers write while they work
 * on their items becomes visible to the others at the meeting that ends the round.
 *
 * A taker that stalls in a round, and continues later, may still take items of that round from the
 * same ls_deal. So the other takers go on with a new ls_deal, and the old one is kept as long as a
 * stalled taker may use it.
 */
#ifndef SYNC_DEAL_H
#define SYNC_DEAL_H

#include <lockstep/host.h>
#include <lockstep/status.h>
#include <stdint.h>

enum { LS_DEAL_ITEMS_MAX = 65536 }; /* most items */

typedef struct ls_deal ls_deal;

/* A taker and its items of the current round, lo … hi − 1. Only the taker's thread uses it. */
typedef struct ls_hand {
    ls_deal *deal;
    int taker;
    uint32_t round;
    int lo, hi;
} ls_hand;

/* Creates a deal of all items from first[0] to first[takers − 1], both included, among `takers`
 * threads. first[i] is the first item of taker i. Errors: LS_EINVAL (`first` does not ascend, there
 * are too many items), LS_ENOMEM. */
int ls_deal_create(ls_deal **out, const int *first, int takers, const ls_host *host, ls_error *err);
/* Frees a deal. NULL is allowed. */
void ls_deal_destroy(ls_deal *deal);

/* Makes *hand the hand of taker `taker`, before its first round. */
void ls_deal_join(ls_hand *hand, ls_deal *deal, int taker);
/* Returns the taker's first item. */
int ls_deal_first(const ls_hand *hand);
/* Writes the range *lo … *hi − 1 of all items that the taker can get: its first item and both
 * gaps. */
void ls_deal_reach(const ls_hand *hand, int *lo, int *hi);
/* Begins a round with no items in the hand. */
void ls_deal_begin(ls_hand *hand);
/* Takes an item. The first call of a round takes the taker's first item; each later call takes an
 * item that is adjacent to those in the hand, on their left (hand->lo is then that item) or on
 * their right. Returns the item, or −1 if none is left for this taker. */
int ls_deal_take(ls_hand *hand);

#endif
