/* struct aral_statistics: each ARAL adds its part, and takes it out when it ends. So no function
 * visits other ARALs.
 *
 * A thread that has elements to add locks the ARAL. That keeps two threads from adding the same
 * pages, and a thread that ends late from writing to a structure whose ARALs have all ended. Several
 * ARALs add to one structure, and the program reads it: its fields are accessed atomically. Relaxed,
 * because they order nothing else.
 */
#include "internal.h"

struct aral_statistics netdata_by_size;

/* The largest balance that waits, and the same while other threads are adding theirs. */
#define MOST_WAITING 63
#define MOST_DEFERRED 1023

static void replace(size_t *field, size_t before, size_t now)
{
    if (now != before) {
        (void)__atomic_fetch_add(field, now - before, __ATOMIC_RELAXED);
    }
}

/* Needs the lock. */
static void replace_part(ARAL *ar, struct figures now)
{
    struct figures before = ar->counted;
    struct aral_page_type_stats *pages = ar->mapped ? &ar->statistics->mmap : &ar->statistics->malloc;
    replace(&ar->statistics->structures.allocations, before.structures, now.structures);
    replace(&ar->statistics->structures.allocated_bytes, before.structure_bytes, now.structure_bytes);
    replace(&pages->allocations, before.pages, now.pages);
    replace(&pages->allocated_bytes, before.allocated_bytes, now.allocated_bytes);
    replace(&pages->used_bytes, before.used_bytes, now.used_bytes);
    replace(&pages->padding_bytes, before.padding_bytes, now.padding_bytes);
    ar->counted = now;
}

/* Needs the lock. */
static struct figures part_of(const ARAL *ar)
{
    allot_statistics pages = allot_slab_page_statistics(ar->slab);
    struct figures part;
    part.structures = 1 + (size_t)pages.chunks;
    part.structure_bytes = sizeof *ar + (size_t)pages.structure_bytes;
    part.pages = (size_t)pages.chunks;
    /* Negative while a thread has added that it freed elements, and another not that it allocated
     * them. */
    part.used_bytes = ar->live > 0 ? (size_t)ar->live * ar->element_size : 0;
    part.allocated_bytes = (size_t)pages.free_bytes > part.used_bytes ? (size_t)pages.free_bytes : part.used_bytes;
    part.padding_bytes = (size_t)pages.wasted_bytes;
    return part;
}

/* Needs the lock, which it gives back. */
static int32_t add_and_unlock(ARAL *ar, int32_t balance)
{
    ar->live += balance;
    if (!ar->ended) {
        replace_part(ar, part_of(ar));
    }
    int64_t waiting = ar->live / 16;
    netdata_unlock(&ar->lock);
    return waiting <= 0 ? 0 : waiting < MOST_WAITING ? (int32_t)waiting : MOST_WAITING;
}

int32_t netdata_add_to_statistics(ARAL *ar, int32_t balance)
{
    netdata_lock(&ar->lock);
    return add_and_unlock(ar, balance);
}

bool netdata_try_add_to_statistics(ARAL *ar, int32_t balance, int32_t *most)
{
    if (netdata_try_lock(&ar->lock)) {
        *most = add_and_unlock(ar, balance);
        return true;
    }
    if (*most < MOST_DEFERRED) {
        *most += MOST_WAITING + 1;
        return false;
    }
    *most = netdata_add_to_statistics(ar, balance);
    return true;
}

void netdata_leave_statistics(ARAL *ar)
{
    struct figures nothing;
    memset(&nothing, 0, sizeof nothing);
    netdata_lock(&ar->lock);
    ar->ended = true;
    replace_part(ar, nothing);
    netdata_unlock(&ar->lock);
}

static size_t read_field(const size_t *field)
{
    return __atomic_load_n(field, __ATOMIC_RELAXED);
}

ANCESTOR size_t aral_structures_bytes_from_stats(struct aral_statistics *stats)
{
    if (stats == NULL) {
        return 0;
    }
    netdata_add_balances(stats);
    return read_field(&stats->structures.allocated_bytes);
}

ANCESTOR size_t aral_used_bytes_from_stats(struct aral_statistics *stats)
{
    if (stats == NULL) {
        return 0;
    }
    netdata_add_balances(stats);
    return read_field(&stats->malloc.used_bytes) + read_field(&stats->mmap.used_bytes);
}

static size_t free_bytes(const struct aral_page_type_stats *pages)
{
    size_t used = read_field(&pages->used_bytes), allocated = read_field(&pages->allocated_bytes);
    /* Other threads may change the two meanwhile. */
    return allocated > used ? allocated - used : 0;
}

ANCESTOR size_t aral_free_bytes_from_stats(struct aral_statistics *stats)
{
    if (stats == NULL) {
        return 0;
    }
    netdata_add_balances(stats);
    return free_bytes(&stats->malloc) + free_bytes(&stats->mmap);
}

ANCESTOR size_t aral_padding_bytes_from_stats(struct aral_statistics *stats)
{
    if (stats == NULL) {
        return 0;
    }
    netdata_add_balances(stats);
    return read_field(&stats->malloc.padding_bytes) + read_field(&stats->mmap.padding_bytes);
}

ANCESTOR size_t aral_structures_bytes(ARAL *ar)
{
    return ar == NULL ? 0 : sizeof *ar + (size_t)allot_slab_statistics(ar->slab).structure_bytes;
}

ANCESTOR size_t aral_used_bytes(ARAL *ar)
{
    return ar == NULL ? 0 : (size_t)allot_slab_statistics(ar->slab).live_bytes;
}

ANCESTOR size_t aral_free_bytes(ARAL *ar)
{
    return ar == NULL ? 0 : (size_t)allot_slab_statistics(ar->slab).free_bytes;
}

ANCESTOR size_t aral_padding_bytes(ARAL *ar)
{
    return ar == NULL ? 0 : (size_t)allot_slab_statistics(ar->slab).wasted_bytes;
}

ANCESTOR struct aral_statistics *aral_get_statistics(ARAL *ar)
{
    if (ar == NULL) {
        return NULL;
    }
    netdata_add_balances(ar->statistics);
    (void)netdata_add_to_statistics(ar, 0);
    return ar->statistics;
}

ANCESTOR struct aral_statistics *aral_by_size_statistics(void)
{
    netdata_add_balances(&netdata_by_size);
    return &netdata_by_size;
}

ANCESTOR size_t aral_by_size_structures_bytes(void)
{
    return aral_structures_bytes_from_stats(&netdata_by_size);
}

ANCESTOR size_t aral_by_size_used_bytes(void)
{
    return aral_used_bytes_from_stats(&netdata_by_size);
}

ANCESTOR size_t aral_by_size_free_bytes(void)
{
    return aral_free_bytes_from_stats(&netdata_by_size);
}

ANCESTOR size_t aral_by_size_padding_bytes(void)
{
    return aral_padding_bytes_from_stats(&netdata_by_size);
}
