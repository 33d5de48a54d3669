/* A thread's short way to the ARAL that it allocates from most: a slab handle, which makes aral_mallocz() and aral_freez()
 * inline. Nothing here is for others to use.
 *
 * A thread sits at one ARAL at a time. When it has allocated so often elsewhere, it sits down where it is then: most
 * likely where it allocates most. That number doubles each time, so that a thread that goes to and fro soon stays. Whoever
 * sits at an ARAL holds it: one that is destroyed meanwhile ends when the last thread gets up, which it does when it sits
 * down elsewhere, or ends itself.
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
    unsigned visits;           /* elsewhere, since it sat down */
    unsigned patience;         /* visits before it sits down again; 0: as few as at first */
    bool is_registered;        /* to get up when the thread ends */
    bool has_ended;            /* it has got up, and nobody would see to it again */
};

#ifdef __GLIBC__
/* No call to find it, in a shared library either. */
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
/* What C++ registers destructors of thread_local variables with: it keeps the shared library that the function is in. */
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

/* The thread allocates from an ARAL at which it doesn't sit. Whether it sits there now. */
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
    /* What can't be had is not needed: there is the longer way. */
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
