/* SPDX-License-Identifier: MIT */
/* Dynamic scheduling: several threads divide a range of items among themselves while they work. A
 * thread that is slower, or has less of a CPU, gets fewer items. The items that a thread gets are
 * adjacent.
 *
 *     ls_deal_begin(&hand);                          // each taker, once a round
 *     while ((item = ls_deal_take(&hand)) >= 0) …    // until this taker can get no more items
 *     … all takers wait for each other (sync/barrier.h) …    // between two rounds
 *
 * Terms (from card games): a *deal* is a range of items with the threads that divide it. A *taker*
 * is one of these threads. A *hand* is the items that one taker has got in the current round. A
 * *round* is one division of the whole range; the next round divides the same range again.
 *
 * The creator of the deal reserves one item for each taker, its *first item*: first[i] for taker i.
 * Only taker i can take that item, and it does so in every round. The array `first` ascends. The
 * items between first[i] and first[i + 1] are a *gap*. Taker i takes items from the low end of this
 * gap, and taker i + 1 takes items from its high end, until the gap is empty. A taker compares the
 * gap below its hand with the gap above its hand, and takes an item from the gap that contains more
 * items. The range of a deal begins with first[0] and ends with first[takers − 1], so every item is
 * a first item or lies in a gap.
 *
 * Why each item of a gap is taken exactly once a round. A gap of n items has one atomic word, which
 * contains the number of a round, the number l of items taken from the low end in that round, and
 * the number r of items taken from the high end. The word changes only when a taker takes an item,
 * by a compare-exchange.
 *
 * - What a taker reads in round k. All takers pass a barrier between two rounds. So every change of
 *   an earlier round happens before every read in round k, and every read in round k happens before
 *   every change of round k + 1. By coherence the read returns either the last value of the earlier
 *   rounds or a value of round k. If the value contains another round than k, the value is the last
 *   one of the earlier rounds, and the taker treats l and r as 0. (The value can be outdated,
 *   because other takers can have changed the word since the read. The taker's compare-exchange
 *   then fails, and the taker tries again.)
 * - A successful compare-exchange reads the value immediately before its own in the modification
 *   order of the word. So the changes of round k are like the steps of a counter: the first change
 *   makes l + r equal to 1, and each later change increases l + r by 1. No change is made when
 *   l + r is n. Hence there are at most n changes, and a taker finds the gap empty only after
 *   exactly n changes.
 * - A change that increases l takes item number l, counted from the low end, where the number of
 *   the first item is 1 and l is the value after the change. A change that increases r takes item
 *   number r in the same way, counted from the high end. Since l + r ≤ n, no item is taken from
 *   both ends.
 *
 * Memory order. All accesses to the word are relaxed. The word decides which taker gets an item,
 * and no taker derives from the word what another taker has written elsewhere. What takers write
 * while they work on their items becomes visible to the others at the barrier that ends the round.
 *
 * A taker that stalls in a round, and continues later, can still take items of that round from the
 * same ls_deal. So the caller must create a new ls_deal for the other takers, and must not free the
 * old one as long as a stalled taker can use it.
 */
#ifndef SYNC_DEAL_H
#define SYNC_DEAL_H

#include <lockstep/host.h>
#include <lockstep/status.h>
#include <stdint.h>

enum { LS_DEAL_ITEMS_MAX = 65536 }; /* largest number of items */

typedef struct ls_deal ls_deal;

/* A taker's hand: its items of the current round, lo … hi − 1. Only the taker's thread uses the
 * hand. */
typedef struct ls_hand {
    ls_deal *deal;
    int taker;
    uint32_t round;
    int lo, hi;
} ls_hand;

/* Creates a deal of all items from first[0] to first[takers − 1], both included, among `takers`
 * threads. first[i] is the first item of taker i. Errors: LS_EINVAL (`first` does not ascend, or
 * there are more than LS_DEAL_ITEMS_MAX items), LS_ENOMEM. */
int ls_deal_create(ls_deal **out, const int *first, int takers, const ls_host *host, ls_error *err);
/* Frees a deal. NULL is allowed. */
void ls_deal_destroy(ls_deal *deal);

/* Initialises *hand as the hand of taker number `taker`, before its first round. */
void ls_deal_join(ls_hand *hand, ls_deal *deal, int taker);
/* Returns the taker's first item. */
int ls_deal_first(const ls_hand *hand);
/* Sets *lo and *hi so that *lo … *hi − 1 are all items that the taker can get: its first item and
 * the gaps below and above that item. */
void ls_deal_reach(const ls_hand *hand, int *lo, int *hi);
/* Begins a round: empties the hand. */
void ls_deal_begin(ls_hand *hand);
/* Takes an item. The first call of a round takes the taker's first item. Each later call takes the
 * item just below the hand, which becomes hand->lo, or the item just above the hand, which becomes
 * hand->hi − 1. Returns the item, or −1 if the taker can get no more items in this round. */
int ls_deal_take(ls_hand *hand);

#endif
