/* A lock that is held for a few instructions. A child made by fork while another thread of its
 * parent held it takes it over: it knows by the number of forks that the holder does not exist. */
#include "internal.h"

#include <pthread.h>
#include <sched.h>

/* Of this process and its ancestors, plus 1. */
static uint32_t forks = 1;

static void count_fork(void)
{
    (void)__atomic_fetch_add(&forks, 1, __ATOMIC_RELAXED);
}

static pthread_once_t once = PTHREAD_ONCE_INIT;

static void watch(void)
{
    /* Without memory for the handler, a child may wait for a lock that its parent left locked. */
    (void)pthread_atfork(NULL, NULL, count_fork);
}

void netdata_watch_forks(void)
{
    (void)pthread_once(&once, watch);
}

bool netdata_try_lock(struct lock *lock)
{
    uint32_t now = __atomic_load_n(&forks, __ATOMIC_RELAXED), holder = 0;
    /* Acquire pairs with the release in netdata_unlock(). */
    return __atomic_compare_exchange_n(&lock->holder, &holder, now, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)
           || (holder != now
               && __atomic_compare_exchange_n(
                   &lock->holder, &holder, now, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED));
}

void netdata_lock(struct lock *lock)
{
    while (!netdata_try_lock(lock)) {
        (void)sched_yield();
    }
}

void netdata_unlock(struct lock *lock)
{
    __atomic_store_n(&lock->holder, 0, __ATOMIC_RELEASE);
}
