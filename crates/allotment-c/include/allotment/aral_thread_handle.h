/* Each thread's handle: a slab handle to the ARAL that it allocates from most, which makes
 * aral_mallocz() and aral_freez() inline. Internal: programs must not use it.
 *
 * A thread has a handle to one ARAL at a time. After `misses_allowed` allocations from other ARALs,
 * it replaces its handle by one to the ARAL of the last of them, which most likely is the one that it
 * uses most by then. The number doubles at each move, so that a thread that alternates between ARALs
 * soon stops moving. A handle holds a reference to its ARAL. An ARAL that is destroyed meanwhile is
 * freed when the last thread releases its handle to it: when the thread moves to another ARAL, or
 * when it ends.
 */
#ifndef ALLOTMENT_ARAL_THREAD_HANDLE_H
#define ALLOTMENT_ARAL_THREAD_HANDLE_H

#include "ancestors.h"

#ifndef __GLIBC__
#include <pthread.h>
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef struct aral ARAL;

struct allot_netdata_thread_handle {
    ARAL *aral;                /* NULL for none */
    allot_slab_handle *handle; /* to that ARAL's slab; NULL for none */
    unsigned misses;           /* allocations from other ARALs after the last move */
    unsigned misses_allowed;   /* misses before the next move; 0 means the initial number */
    bool is_registered;        /* the thread's end releases the handle */
    bool has_ended;            /* the thread is ending; it takes no handle any more */
};

#ifdef __GLIBC__
/* Accessed without a call, also in a shared library. */
#define ALLOT_NETDATA_THREAD __attribute__((tls_model("initial-exec")))
#else
#define ALLOT_NETDATA_THREAD
#endif
ALLOT_NETDATA_SHARED ALLOT_NETDATA_THREAD __thread struct allot_netdata_thread_handle allot_netdata_thread_handle;

static inline void allot_netdata_release_aral(ARAL *ar);

static inline void allot_netdata_release_handle(void)
{
    ARAL *ar = allot_netdata_thread_handle.aral;
    if (ar != NULL) {
        allot_slab_handle_destroy(allot_netdata_thread_handle.handle);
        allot_netdata_thread_handle.handle = NULL;
        allot_netdata_thread_handle.aral = NULL;
        allot_netdata_release_aral(ar);
    }
}

static inline void allot_netdata_thread_ends(void *unused)
{
    (void)unused;
    allot_netdata_thread_handle.has_ended = true;
    allot_netdata_release_handle();
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
           && pthread_setspecific(allot_netdata_key, &allot_netdata_thread_handle) == 0;
}
#endif

#define ALLOT_NETDATA_MIN_MISSES 64u
#define ALLOT_NETDATA_MAX_MISSES (1u << 20)

/* Called when a thread allocates from an ARAL to which it has no handle. Returns whether it has one
 * afterwards. */
__attribute__((cold)) static inline bool allot_netdata_try_move_handle(ARAL *ar, allot_slab *slab, size_t *holders)
{
    struct allot_netdata_thread_handle *mine = &allot_netdata_thread_handle;
    unsigned allowed = mine->misses_allowed == 0 ? ALLOT_NETDATA_MIN_MISSES : mine->misses_allowed;
    mine->misses += 1;
    if (mine->misses < allowed || mine->has_ended) {
        return false;
    }
    mine->misses = 0;
    mine->misses_allowed = allowed < ALLOT_NETDATA_MAX_MISSES ? allowed * 2 : allowed;
    if (!mine->is_registered) {
        mine->is_registered = allot_netdata_register();
    }
    /* Without a handle, the caller uses the slab itself. */
    allot_slab_handle *handle = mine->is_registered ? allot_slab_handle_try_create(slab) : NULL;
    if (handle == NULL) {
        return false;
    }
    allot_netdata_release_handle();
    (void)__atomic_fetch_add(holders, 1, __ATOMIC_RELAXED);
    mine->aral = ar;
    mine->handle = handle;
    return true;
}

#ifdef __cplusplus
}
#endif

#endif
