/* Each thread's seat: a slab handle to the ARAL that it allocates from most, which makes
 * aral_mallocz() and aral_freez() inline. Internal: programs must not use it.
 *
 * A thread has a seat at one ARAL at a time. After `patience` allocations from other ARALs, it
 * moves its seat to the ARAL of the last of them, which most likely is the one that it now uses
 * most. The number doubles at each move, so that a thread that alternates between ARALs soon stops
 * moving. A seat holds a reference to its ARAL. An ARAL that is destroyed meanwhile is freed when
 * the last thread gives up its seat there: when it moves to another ARAL, or when it ends.
 */
#ifndef ALLOTMENT_ARAL_SEAT_H
#define ALLOTMENT_ARAL_SEAT_H

#include "ancestors.h"

#ifndef __GLIBC__
#include <pthread.h>
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef struct aral ARAL;

struct allot_netdata_seat {
    ARAL *at;
    allot_slab_handle *handle; /* of that ARAL's slab; NULL for none */
    unsigned visits;           /* allocations from other ARALs after the last move */
    unsigned patience;         /* visits before the next move; 0 means the initial number */
    bool is_registered;        /* the thread's end gives the seat up */
    bool has_ended;            /* the thread is ending; it takes no seat any more */
};

#ifdef __GLIBC__
/* Accessed without a call, also in a shared library. */
#define ALLOT_NETDATA_THREAD __attribute__((tls_model("initial-exec")))
#else
#define ALLOT_NETDATA_THREAD
#endif
ALLOT_NETDATA_SHARED ALLOT_NETDATA_THREAD __thread struct allot_netdata_seat allot_netdata_seat;

static inline void allot_netdata_let_go(ARAL *ar);

static inline void allot_netdata_get_up(void)
{
    ARAL *at = allot_netdata_seat.at;
    if (at != NULL) {
        allot_slab_handle_destroy(allot_netdata_seat.handle);
        allot_netdata_seat.handle = NULL;
        allot_netdata_seat.at = NULL;
        allot_netdata_let_go(at);
    }
}

static inline void allot_netdata_thread_ends(void *unused)
{
    (void)unused;
    allot_netdata_seat.has_ended = true;
    allot_netdata_get_up();
}

#ifdef __GLIBC__
/* The function with which C++ registers destructors of thread_local variables. It keeps the shared
 * library of the registered function loaded. */
int __cxa_thread_atexit_impl(void (*function)(void *), void *argument, void *library);
extern void *__dso_handle __attribute__((visibility("hidden")));

static inline bool allot_netdata_register(void)
{
    return __cxa_thread_atexit_impl(allot_netdata_thread_ends, NULL, &__dso_handle) == 0;
}
#else
ALLOT_NETDATA_SHARED pthread_key_t allot_netdata_key;
ALLOT_NETDATA_SHARED pthread_once_t allot_netdata_once = PTHREAD_ONCE_INIT;
ALLOT_NETDATA_SHARED bool allot_netdata_has_key;

static inline void allot_netdata_make_key(void)
{
    allot_netdata_has_key = pthread_key_create(&allot_netdata_key, allot_netdata_thread_ends) == 0;
}

static inline bool allot_netdata_register(void)
{
    return pthread_once(&allot_netdata_once, allot_netdata_make_key) == 0 && allot_netdata_has_key
           && pthread_setspecific(allot_netdata_key, &allot_netdata_seat) == 0;
}
#endif

#define ALLOT_NETDATA_FIRST_PATIENCE 64u
#define ALLOT_NETDATA_MOST_PATIENCE (1u << 20)

/* Called when a thread allocates from an ARAL at which it has no seat. Returns whether it has one
 * now. */
__attribute__((cold)) static inline bool allot_netdata_visits(ARAL *ar, allot_slab *slab, size_t *holders)
{
    struct allot_netdata_seat *seat = &allot_netdata_seat;
    unsigned patience = seat->patience == 0 ? ALLOT_NETDATA_FIRST_PATIENCE : seat->patience;
    seat->visits += 1;
    if (seat->visits < patience || seat->has_ended) {
        return false;
    }
    seat->visits = 0;
    seat->patience = patience < ALLOT_NETDATA_MOST_PATIENCE ? patience * 2 : patience;
    if (!seat->is_registered) {
        seat->is_registered = allot_netdata_register();
    }
    /* Without a handle, the caller uses the slab itself. */
    allot_slab_handle *handle = seat->is_registered ? allot_slab_handle_try_create(slab) : NULL;
    if (handle == NULL) {
        return false;
    }
    allot_netdata_get_up();
    (void)__atomic_fetch_add(holders, 1, __ATOMIC_RELAXED);
    seat->at = ar;
    seat->handle = handle;
    return true;
}

#ifdef __cplusplus
}
#endif

#endif
