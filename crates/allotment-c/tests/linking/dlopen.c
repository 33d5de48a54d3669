/* dlopen PATH: loads the library while other threads run, and uses it on them. */
#include <allotment.h>

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 8, BLOCKS = 10000 };

static pthread_barrier_t barrier;
static void *(*allot_malloc_there)(size_t);
static void (*allot_free_there)(void *);
static allot_slab *(*by_size)(size_t, size_t);
static void *(*slab_alloc)(allot_slab *);
static void (*slab_free)(allot_slab *, void *);
static uint64_t (*current)(void);

static void *look_up(void *library, const char *name)
{
    void *address = dlsym(library, name);
    if (address == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    return address;
}

#define LOOK_UP(variable, library, name) (*(void **)&(variable) = look_up(library, name))

static void *work(void *unused)
{
    static void *blocks[THREADS][BLOCKS], *slots[THREADS][BLOCKS];
    static int started;
    int me = __atomic_fetch_add(&started, 1, __ATOMIC_RELAXED);
    (void)unused;
    pthread_barrier_wait(&barrier); /* every thread is there before the library is */
    pthread_barrier_wait(&barrier); /* it is loaded */
    allot_slab *slab = by_size(64, 16);
    for (int i = 0; i < BLOCKS; i++) {
        blocks[me][i] = allot_malloc_there(48);
        slots[me][i] = slab_alloc(slab);
        memset(blocks[me][i], me, 48);
        memset(slots[me][i], me, 64);
    }
    if (current() != 0)
        exit(2);
    pthread_barrier_wait(&barrier); /* each frees what its neighbour made */
    int other = (me + 1) % THREADS;
    for (int i = 0; i < BLOCKS; i++) {
        if (*(char *)blocks[other][i] != other || ((char *)slots[other][i])[63] != other)
            exit(3);
        allot_free_there(blocks[other][i]);
        slab_free(slab, slots[other][i]);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc != 2)
        return 4;
    pthread_t threads[THREADS];
    pthread_barrier_init(&barrier, NULL, THREADS + 1);
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, work, NULL) != 0)
            return 5;
    pthread_barrier_wait(&barrier);
    void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 6;
    }
    LOOK_UP(allot_malloc_there, library, "allot_malloc");
    LOOK_UP(allot_free_there, library, "allot_free");
    LOOK_UP(by_size, library, "allot_slab_by_size");
    LOOK_UP(slab_alloc, library, "allot_slab_alloc");
    LOOK_UP(slab_free, library, "allot_slab_free");
    LOOK_UP(current, library, "allot_current");
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    /* The threads still run its code and end with its thread-locals. */
    dlclose(library);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    puts("loaded and used");
    return 0;
}
