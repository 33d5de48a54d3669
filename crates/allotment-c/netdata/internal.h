/* What the files of this folder share. They implement the functions of allotment_netdata.h with
 * those of allotment.h.
 *
 *   locks.c        a lock that a fork does not leave locked
 *   failures.c     how a function without try_ fails
 *   symbols.c      the inline functions of the headers, as symbols
 *   list.c         struct free_list
 *   onewayalloc.c  ONEWAYALLOC
 *   pages.c        sources for the pages of an ARAL
 *   statistics.c   struct aral_statistics, and the functions that read it
 *   threads.c      each thread's handle to an ARAL, and its elements that the statistics lack
 *   aral.c         the life of an ARAL, and its elements
 *   by_size.c      one ARAL for each size
 *   tests.c        aral_unittest() and the like
 *
 * Names of ancestors are weak symbols, so that a program's own function of that name replaces one.
 */
#ifndef ALLOTMENT_NETDATA_INTERNAL_H
#define ALLOTMENT_NETDATA_INTERNAL_H

#include "../include/allotment_netdata.h"

#include <sys/types.h>

/* A function of an ancestor's name. */
#define ANCESTOR __attribute__((weak, visibility("default")))

/* A function that the headers call. */
#define EXPORTED __attribute__((visibility("default")))

#define HARDWARE_PAGE ((size_t)4096)
#define LARGEST_PAGE ((size_t)2 << 20)
#define DEFAULT_PAGE ((size_t)64 << 10)

/* All zero is a free lock. */
struct lock {
    uint32_t holder; /* 0, or the number of forks, plus 1, when it was taken */
};

/* What an ARAL adds to the fields of its aral_statistics. */
struct figures {
    size_t structures, structure_bytes, pages, allocated_bytes, used_bytes, padding_bytes;
};

struct aral {
    allot_slab *slab;
    size_t element_size;
    struct aral_statistics *statistics;
    bool mapped;
    size_t holders; /* the creator, and each thread's reference: the last of them frees it */
    char *file;     /* path of the file with the pages, or NULL */
    pid_t process;

    /* Those of by_size.c, under its lock. */
    size_t users; /* of aral_by_size_acquire(); 0: created by aral_create() */
    ARAL *next_of_size;

    /* Those of statistics.c. */
    struct lock lock;       /* of what follows; `statistics` is not accessed without it */
    bool ended;             /* `statistics` may be gone */
    int64_t live;           /* elements in use, as far as threads have added them */
    struct figures counted; /* the ARAL's part of `statistics` */

    struct aral_statistics own;
    char name[ARAL_MAX_NAME + 1];
};

/* locks.c */

/* Called before a lock is used. */
void netdata_watch_forks(void);

void netdata_lock(struct lock *lock);
/* Returns whether the lock was free. */
bool netdata_try_lock(struct lock *lock);
void netdata_unlock(struct lock *lock);

/* failures.c */

/* Calls the failure handler, then aborts. */
__attribute__((noreturn, cold)) void netdata_fail(
    allot_error_kind kind, size_t requested, const char *allocator, const char *name, const char *message);

/* pages.c */

/* Pages that core dumps exclude. */
allot_source *netdata_undumped_source(void);

/* Pages in a file of this name and a number. `*path` is allocated by malloc. */
allot_source *netdata_file_source(const char *directory, const char *filename, char **path);

/* statistics.c */

extern struct aral_statistics netdata_by_size;

/* Adds a balance of elements, and the ARAL's pages, to its statistics. Returns the largest balance
 * that may wait. */
int32_t netdata_add_to_statistics(ARAL *ar, int32_t balance);

/* The same, unless another thread is adding to them. Returns whether the balance was added, and
 * stores the largest one that may wait. */
bool netdata_try_add_to_statistics(ARAL *ar, int32_t balance, int32_t *most);

/* Takes the ARAL out of its statistics, which are not accessed any more. */
void netdata_leave_statistics(ARAL *ar);

/* threads.c */

/* Makes the ARAL the one that the thread has its handle to, if the thread allocates from it often
 * enough. Returns whether it did. */
bool netdata_try_move_handle(ARAL *ar);

/* Adds elements to the thread's balance for an ARAL. */
void netdata_count_elements(ARAL *ar, int32_t count);

/* Adds the thread's balances for the ARALs of this structure to it. */
void netdata_add_balances(const struct aral_statistics *stats);

/* Gives up the thread's references to an ARAL. */
void netdata_forget_aral(ARAL *ar);

/* aral.c */

ARAL *netdata_create_aral(const char *name, size_t element_size, size_t max_page_size,
                          struct aral_statistics *stats, const char *file, const char *directory, bool mapped,
                          bool dont_dump);

/* Ends an ARAL that nobody uses. */
void netdata_end_aral(ARAL *ar);

/* Gives up a reference to the structure. */
void netdata_release_aral(ARAL *ar);

#endif
