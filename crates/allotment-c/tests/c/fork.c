/* A process forks while its threads are inside hardened allocators. The children use what they inherit and what
 * they make; none hangs. ALLOTMENT_FORKS is the number of forks.
 *
 * skip: address-sanitizer: a lost thread may have held a lock of its allocator at the fork
 */
#include <allotment.h>

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "stamped.h"

#define THREADS 3
#define PLACES 256
#define SIZE 56

static const allot_options hardened = {.name = "forked", .hardened = true};

static allot_slab *slab;
static atomic_bool stop;
/* Each place holds a block or NULL; the thread that takes a block frees it. */
static _Atomic(void *) slots[PLACES], blocks[PLACES];

static void free_taken(_Atomic(void *) *places, uint64_t *state, void *fresh)
{
    void *old = atomic_exchange(&places[draw(state, PLACES)], fresh);
    if (old == NULL)
        return;
    if (places == slots)
        allot_slab_free(slab, old);
    else
        allot_free_sized(old, SIZE, 8);
}

/* One turn with each allocator. */
static void use_all(allot_pool *pool, uint64_t *state)
{
    free_taken(slots, state, allot_slab_alloc(slab));
    free_taken(blocks, state, allot_pool_alloc(pool, SIZE, 8));
    allot_slab *shared = allot_slab_by_size((size_t)draw(state, 2000) + 1, 8);
    allot_slab_free(shared, allot_slab_alloc(shared));
    allot_slab_destroy(shared);
    allot_arena *arena = allot_arena_create(&hardened);
    allot_free_list *list = allot_free_list_create(40, 8, &hardened);
    allot_reap *reap = allot_reap_create(&hardened);
    memset(allot_arena_alloc(arena, 100), 1, 100);
    allot_free_list_free(list, allot_free_list_alloc(list));
    allot_reap_free_sized(reap, allot_reap_alloc(reap, 100, 8), 100, 8);
    allot_reap_destroy(reap);
    allot_free_list_destroy(list);
    allot_arena_destroy(arena);
}

static void *come_and_go(void *argument)
{
    uint64_t state = 0x9E3779B97F4A7C15u * ((uintptr_t)argument + 1);
    while (!atomic_load(&stop)) {
        allot_pool *pool = allot_pool_create(&hardened);
        for (int turn = 0; turn < 20; turn++)
            use_all(pool, &state);
        allot_pool_destroy(pool);
    }
    return NULL;
}

/* Ends without the exit handlers of the parent. */
static void in_child(allot_pool *pool, uint64_t *state)
{
    alarm(60);
    for (int turn = 0; turn < 50; turn++)
        use_all(pool, state);
    for (int place = 0; place < PLACES; place++) {
        free_taken(slots, state, NULL);
        free_taken(blocks, state, NULL);
    }
    allot_slab_trim(slab);
    EXPECT(allot_slab_statistics(slab).held_bytes > 0);
    static char report[1 << 16];
    EXPECT(allot_report_json(report, sizeof(report)) > 0 && strstr(report, "forked") != NULL);
    _exit(0);
}

/* Whether a double free of an object from before the fork ends the child. */
static void double_free_in_child(void *object)
{
    pid_t child = fork();
    EXPECT(child >= 0);
    if (child == 0) {
        setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
        alarm(60);
        fclose(stderr);
        allot_slab_free(slab, object);
        allot_slab_free(slab, object);
        _exit(0);
    }
    int status;
    EXPECT(waitpid(child, &status, 0) == child);
    EXPECT(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

static void work(void)
{
    const char *wanted = getenv("ALLOTMENT_FORKS");
    long forks = wanted == NULL ? 40 : atol(wanted);
    uint64_t state = 7;
    pthread_t threads[THREADS];
    allot_set_hardened(true);
    slab = allot_slab_create(SIZE, 8, &hardened);
    allot_pool *pool = allot_pool_create(&hardened);
    void *object = allot_slab_alloc(slab);
    for (uintptr_t thread = 0; thread < THREADS; thread++)
        EXPECT(pthread_create(&threads[thread], NULL, come_and_go, (void *)thread) == 0);
    for (long i = 0; i < forks; i++) {
        use_all(pool, &state);
        pid_t child = fork();
        EXPECT(child >= 0);
        if (child == 0)
            in_child(pool, &state);
        int status;
        EXPECT(waitpid(child, &status, 0) == child);
        EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    double_free_in_child(object);
    atomic_store(&stop, true);
    for (int thread = 0; thread < THREADS; thread++)
        EXPECT(pthread_join(threads[thread], NULL) == 0);
    for (int place = 0; place < PLACES; place++) {
        void *slot = atomic_exchange(&slots[place], NULL), *block = atomic_exchange(&blocks[place], NULL);
        if (slot != NULL)
            allot_slab_free(slab, slot);
        if (block != NULL)
            allot_free_sized(block, SIZE, 8);
    }
    allot_slab_free(slab, object);
    EXPECT(allot_slab_statistics(slab).live_objects == 0);
    allot_slab_destroy(slab);
    allot_pool_destroy(pool);
}

int main(int count, char **arguments)
{
    return main_of(count, arguments, NULL, 0, work);
}
