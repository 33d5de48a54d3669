/* One ARAL for each size, found by a hash table that grows with the number of sizes. */
#include "internal.h"

#include <stdio.h>
#include <stdlib.h>

#define FIRST_BUCKETS 64

static struct {
    struct lock lock;
    ARAL **buckets; /* NULL: `first` */
    size_t mask;    /* the number of buckets, a power of two, minus 1; 0: FIRST_BUCKETS - 1 */
    size_t sizes;
    ARAL *first[FIRST_BUCKETS];
} table;

/* All functions below need the lock. */

static size_t mask(void)
{
    return table.mask == 0 ? FIRST_BUCKETS - 1 : table.mask;
}

static ARAL **bucket_in(ARAL **buckets, size_t mask, size_t size)
{
    return &buckets[(size * 0x9E3779B97F4A7C15u >> 32) & mask];
}

static ARAL **bucket_of(size_t size)
{
    return bucket_in(table.buckets == NULL ? table.first : table.buckets, mask(), size);
}

/* The pointer to the ARAL of this size, or the NULL at the end of its bucket. */
static ARAL **find(size_t size)
{
    ARAL **link = bucket_of(size);
    while (*link != NULL && (*link)->element_size != size) {
        link = &(*link)->next_of_size;
    }
    return link;
}

/* Without memory the table stays as it is, and its buckets get longer. */
static void grow(void)
{
    size_t new_mask = mask() * 2 + 1;
    ARAL **larger = (ARAL **)calloc(new_mask + 1, sizeof *larger);
    if (larger == NULL) {
        return;
    }
    ARAL **old = table.buckets == NULL ? table.first : table.buckets;
    for (size_t at = 0; at <= mask(); at++) {
        for (ARAL *ar = old[at], *next; ar != NULL; ar = next) {
            next = ar->next_of_size;
            ARAL **bucket = bucket_in(larger, new_mask, ar->element_size);
            ar->next_of_size = *bucket;
            *bucket = ar;
        }
    }
    free(table.buckets);
    table.buckets = larger;
    table.mask = new_mask;
}

static void insert(ARAL *ar)
{
    if (table.sizes > mask()) {
        grow();
    }
    ARAL **bucket = bucket_of(ar->element_size);
    ar->next_of_size = *bucket;
    *bucket = ar;
    table.sizes += 1;
}

static void remove_size(const ARAL *ar)
{
    ARAL **link = find(ar->element_size);
    if (*link == ar) { /* it isn't in a child made by fork while another thread made the table grow */
        *link = ar->next_of_size;
        table.sizes -= 1;
    }
}

ANCESTOR ARAL *aral_by_size_acquire(size_t size)
{
    netdata_watch_forks();
    ARAL *made = NULL;
    for (;;) {
        netdata_lock(&table.lock);
        ARAL *ar = *find(size);
        if (ar == NULL && made != NULL) {
            insert(made);
            ar = made;
            made = NULL;
        }
        if (ar != NULL) {
            ar->users += 1;
        }
        netdata_unlock(&table.lock);
        if (ar != NULL) {
            if (made != NULL) {
                netdata_end_aral(made); /* another thread listed its ARAL first */
            }
            return ar;
        }
        /* Created without the lock, because a failure handler may take it. */
        char name[ARAL_MAX_NAME + 1];
        snprintf(name, sizeof name, "size-%zu", size);
        made = netdata_create_aral(name, size, 0, &netdata_by_size, NULL, NULL, true, false);
    }
}

ANCESTOR void aral_by_size_release(ARAL *ar)
{
    if (ar == NULL) {
        return;
    }
    netdata_lock(&table.lock);
    size_t users = ar->users;
    if (users > 0) {
        ar->users -= 1;
    }
    if (users == 1) {
        remove_size(ar);
    }
    netdata_unlock(&table.lock);
    if (users == 0) {
        netdata_fail(ALLOT_IN_USE, 0, "slab", ar->name,
                     "aral_by_size_release() got an ARAL of aral_create(): use aral_destroy()");
    }
    if (users == 1) {
        netdata_end_aral(ar);
    }
}
