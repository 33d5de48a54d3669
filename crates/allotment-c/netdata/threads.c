/* Each thread's handle to an ARAL, and the elements that it has not added to statistics yet.
 *
 * A thread has a slab handle to one ARAL at a time. After `misses_allowed` allocations from other
 * ARALs, it replaces its handle by one to the ARAL of the last of them, which most likely is the one
 * that it uses most by then. The number doubles at each move, so that a thread that alternates
 * between ARALs soon stops moving.
 *
 * The thread counts elements of the handle's ARAL in `allot_netdata_thread`, and those of some other
 * ARALs in `others`: each ARAL has one place there. So most calls write to the thread's own memory
 * only.
 *
 * The handle, and each place, holds a reference to its ARAL. An ARAL that is destroyed meanwhile is
 * freed when the last thread gives up its reference: when the handle or the place goes to another
 * ARAL, or when the thread ends.
 */
#include "internal.h"

#include <stdlib.h>

#ifndef __GLIBC__
#include <pthread.h>
#endif

EXPORTED ALLOT_NETDATA_THREAD __thread struct allot_netdata_thread allot_netdata_thread;

/* A power of two. */
#define PLACES 8

#define MIN_MISSES 64u
#define MAX_MISSES (1u << 20)

struct place {
    ARAL *aral; /* NULL for none */
    int32_t balance, most;
};

/* On the heap, because libraries that are loaded later share little thread-local storage. */
struct state {
    struct place others[PLACES];
    unsigned misses;         /* allocations from other ARALs after the last move of the handle */
    unsigned misses_allowed; /* misses before the next move */
};

/* NULL until the end of the thread is registered, and from its end on. The thread has no references
 * then. */
static ALLOT_NETDATA_THREAD __thread struct state *state;

/* A destructor that runs later may still use ARALs. Another end would not be called. */
static ALLOT_NETDATA_THREAD __thread bool has_ended;

static struct place *place_of(const ARAL *ar)
{
    /* Structures of malloc, each larger than 256 bytes. */
    uintptr_t address = (uintptr_t)ar >> 6;
    return &state->others[(address ^ address >> 3 ^ address >> 6) % PLACES];
}

static void empty(struct place *place)
{
    ARAL *ar = place->aral;
    if (ar != NULL) {
        (void)netdata_add_to_statistics(ar, place->balance);
        place->balance = 0;
        place->aral = NULL;
        netdata_release_aral(ar);
    }
}

static void add_whole_balance(void)
{
    struct allot_netdata_thread *mine = &allot_netdata_thread;
    mine->most = netdata_add_to_statistics(mine->aral, mine->balance);
    mine->least = -mine->most;
    mine->balance = 0;
}

EXPORTED void *allot_netdata_add_balance(void *element)
{
    struct allot_netdata_thread *mine = &allot_netdata_thread;
    if (netdata_try_add_to_statistics(mine->aral, mine->balance, &mine->most)) {
        mine->balance = 0;
    }
    mine->least = -mine->most;
    return element;
}

static void release_handle(void)
{
    struct allot_netdata_thread *mine = &allot_netdata_thread;
    ARAL *ar = mine->aral;
    if (ar != NULL) {
        add_whole_balance();
        allot_slab_handle_destroy(mine->handle);
        mine->handle = NULL;
        mine->aral = NULL;
        netdata_release_aral(ar);
    }
}

static void thread_ends(void *unused)
{
    (void)unused;
    has_ended = true;
    release_handle();
    for (size_t at = 0; at < PLACES; at++) {
        empty(&state->others[at]);
    }
    free(state);
    state = NULL;
}

#ifdef __GLIBC__
/* The function with which C++ registers destructors of thread_local variables. It keeps the shared
 * library of the registered function loaded. */
int __cxa_thread_atexit_impl(void (*function)(void *), void *argument, void *library);
extern void *__dso_handle __attribute__((visibility("hidden")));

static bool register_end(void)
{
    return __cxa_thread_atexit_impl(thread_ends, NULL, &__dso_handle) == 0;
}
#else
static pthread_key_t key;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool has_key;

static void make_key(void)
{
    has_key = pthread_key_create(&key, thread_ends) == 0;
}

static bool register_end(void)
{
    return pthread_once(&once, make_key) == 0 && has_key && pthread_setspecific(key, state) == 0;
}
#endif

/* Whether the thread can have references. */
static bool has_state(void)
{
    if (ALLOT_UNLIKELY(state == NULL)) {
        if (has_ended) {
            return false;
        }
        state = (struct state *)calloc(1, sizeof *state);
        if (state == NULL) {
            return false;
        }
        state->misses_allowed = MIN_MISSES;
        if (!register_end()) {
            free(state);
            state = NULL;
            return false;
        }
    }
    return true;
}

static void hold(ARAL *ar)
{
    /* Relaxed: the caller has a reference. */
    (void)__atomic_fetch_add(&ar->holders, 1, __ATOMIC_RELAXED);
}

bool netdata_try_move_handle(ARAL *ar)
{
    if (!has_state()) {
        return false;
    }
    state->misses += 1;
    if (state->misses < state->misses_allowed) {
        return false;
    }
    state->misses = 0;
    if (state->misses_allowed < MAX_MISSES) {
        state->misses_allowed *= 2;
    }
    /* Without a handle, the caller uses the slab itself. */
    allot_slab_handle *handle = allot_slab_handle_try_create(ar->slab);
    if (handle == NULL) {
        return false;
    }
    release_handle();
    struct place *place = place_of(ar);
    if (place->aral == ar) {
        empty(place);
    }
    hold(ar);
    allot_netdata_thread.aral = ar;
    allot_netdata_thread.handle = handle;
    add_whole_balance();
    return true;
}

void netdata_count_elements(ARAL *ar, int32_t count)
{
    struct allot_netdata_thread *mine = &allot_netdata_thread;
    if (mine->aral == ar) {
        mine->balance += count;
        if (mine->balance > mine->most || mine->balance < mine->least) {
            (void)allot_netdata_add_balance(NULL);
        }
        return;
    }
    if (!has_state()) {
        (void)netdata_add_to_statistics(ar, count);
        return;
    }
    struct place *place = place_of(ar);
    if (place->aral != ar) {
        empty(place);
        hold(ar);
        place->aral = ar;
        place->most = 0;
    }
    place->balance += count;
    bool is_due = place->balance > place->most || place->balance < -place->most;
    if (is_due && netdata_try_add_to_statistics(ar, place->balance, &place->most)) {
        place->balance = 0;
    }
}

void netdata_add_balances(const struct aral_statistics *stats)
{
    if (allot_netdata_thread.aral != NULL && allot_netdata_thread.aral->statistics == stats) {
        add_whole_balance();
    }
    for (size_t at = 0; state != NULL && at < PLACES; at++) {
        struct place *place = &state->others[at];
        if (place->aral != NULL && place->aral->statistics == stats) {
            place->most = netdata_add_to_statistics(place->aral, place->balance);
            place->balance = 0;
        }
    }
}

void netdata_forget_aral(ARAL *ar)
{
    if (allot_netdata_thread.aral == ar) {
        release_handle();
    }
    if (state != NULL && place_of(ar)->aral == ar) {
        empty(place_of(ar));
    }
}
