// Threads and locks: `hot` (all threads work under one mutex), `cold` (a mutex without contention), `shared` (a writer
// among readers), `timed` (every call that waits for some time only, and one that gives up), `dead` (a mutex whose owner died).

#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { THREADS = 4 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t shared = PTHREAD_RWLOCK_INITIALIZER;
static volatile unsigned total;

static void spin(int turns)
{
    for (int i = 0; i < turns; i++)
        total = total * 16777619u + i;
}

static void update_total(void)
{
    pthread_mutex_lock(&mutex);
    spin(2000);
    usleep(100);
    pthread_mutex_unlock(&mutex);
}

static void *update(void *nothing)
{
    free(malloc(10));
    for (int i = 0; i < 300; i++)
        update_total();
    return nothing;
}

static void read_shared(void)
{
    pthread_rwlock_rdlock(&shared);
    spin(500);
    pthread_rwlock_unlock(&shared);
}

static void *read_often(void *nothing)
{
    free(malloc(10));
    for (int i = 0; i < 3000; i++)
        read_shared();
    return nothing;
}

static void write_shared(void)
{
    pthread_rwlock_wrlock(&shared);
    usleep(2000);
    pthread_rwlock_unlock(&shared);
}

static struct timespec in_a_minute(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    time.tv_sec += 60;
    return time;
}

// The turn whose lock is held by the first thread; the turn in which the other asks for it; the turn that is over.
static atomic_int held, asked, over;
static atomic_int other;

enum { TURNS = 6 };

static void *wait_for_some_time(void *nothing)
{
    struct timespec wall = in_a_minute(CLOCK_REALTIME), monotonic = in_a_minute(CLOCK_MONOTONIC);
    struct timespec past = { 1, 0 };
    other = syscall(SYS_gettid);
    long failed = 0;
    for (int turn = 1; turn <= TURNS; turn++) {
        while (held != turn)
            sched_yield();
        if (turn == 1)
            failed += pthread_mutex_timedlock(&mutex, &past) != ETIMEDOUT;
        asked = turn;
        switch (turn) {
        case 1: failed += pthread_mutex_timedlock(&mutex, &wall); break;
        case 2: failed += pthread_mutex_clocklock(&mutex, CLOCK_MONOTONIC, &monotonic); break;
        case 3: failed += pthread_rwlock_timedrdlock(&shared, &wall); break;
        case 4: failed += pthread_rwlock_clockrdlock(&shared, CLOCK_MONOTONIC, &monotonic); break;
        case 5: failed += pthread_rwlock_timedwrlock(&shared, &wall); break;
        case 6: failed += pthread_rwlock_clockwrlock(&shared, CLOCK_MONOTONIC, &monotonic); break;
        }
        if (turn <= 2)
            pthread_mutex_unlock(&mutex);
        else
            pthread_rwlock_unlock(&shared);
        over = turn;
    }
    return failed ? (void *)failed : nothing;
}

// Whether the other thread sleeps, which it does for nothing but the lock.
static int sleeps(void)
{
    char path[100], text[200] = "";
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", other);
    FILE *file = fopen(path, "r");
    if (!file || !fgets(text, sizeof text, file))
        exit(1);
    fclose(file);
    return strrchr(text, ')')[2] == 'S';
}

static void hold_until_asked(int turn)
{
    if (turn <= 2)
        pthread_mutex_lock(&mutex);
    else
        pthread_rwlock_wrlock(&shared);
    held = turn;
    while (asked != turn || !sleeps())
        sched_yield();
    if (turn <= 2)
        pthread_mutex_unlock(&mutex);
    else
        pthread_rwlock_unlock(&shared);
    while (over != turn)
        sched_yield();
}

static void *die_with_it(void *robust)
{
    pthread_mutex_lock(robust);
    return 0;
}

int main(int count, char **words)
{
    pthread_t threads[THREADS];
    const char *what = words[count - 1];
    void *result = 0;
    if (strcmp(what, "hot") == 0 || strcmp(what, "shared") == 0) {
        int hot = strcmp(what, "hot") == 0;
        for (int i = 0; i < THREADS; i++)
            pthread_create(&threads[i], 0, hot ? update : read_often, 0);
        for (int i = 0; !hot && i < 30; i++) {
            write_shared();
            usleep(200);
        }
        for (int i = 0; i < THREADS; i++)
            pthread_join(threads[i], 0);
    } else if (strcmp(what, "cold") == 0) {
        free(malloc(10));
        for (int i = 0; i < 300; i++)
            update_total();
    } else if (strcmp(what, "timed") == 0) {
        pthread_create(&threads[0], 0, wait_for_some_time, 0);
        for (int turn = 1; turn <= TURNS; turn++)
            hold_until_asked(turn);
        pthread_join(threads[0], &result);
    } else {
        pthread_mutexattr_t robust;
        pthread_mutexattr_init(&robust);
        pthread_mutexattr_setrobust(&robust, PTHREAD_MUTEX_ROBUST);
        pthread_mutex_init(&mutex, &robust);
        pthread_create(&threads[0], 0, die_with_it, &mutex);
        pthread_join(threads[0], 0);
        if (pthread_mutex_lock(&mutex) != EOWNERDEAD)
            return 1;
        pthread_mutex_consistent(&mutex);
        pthread_mutex_unlock(&mutex);
    }
    printf("%u\n", total);
    return result != 0;
}
