/* Threads free objects that other threads allocated, while those continue or after they have ended. */
#include <allotment.h>

#include <pthread.h>
#include <stdatomic.h>

#include "stamped.h"

#define THREADS 6
#define PLACES 512
#define TURNS 20000

/* Each place holds an object or NULL; the thread that takes an object frees it. */
static _Atomic(unsigned char *) places[PLACES];
static allot_slab *slab;
static unsigned size_of_slot = 56;

enum way { BY_SLAB, BY_HANDLE, BY_ADDRESS, BY_POOL, BY_BLOCK, WAYS };

/* An object begins with its way, its size, and the byte that the rest of it is. */
struct object {
    uint32_t way;
    uint32_t size;
    unsigned char fill;
    unsigned char rest[7];
};

static void give_up(struct object *object, allot_slab_handle *handle)
{
    for (uint32_t i = sizeof *object; i < object->size; i++)
        EXPECT(((unsigned char *)object)[i] == object->fill);
    switch (object->way) {
    case BY_SLAB: allot_slab_free(slab, object); break;
    case BY_HANDLE:
        if (handle != NULL)
            allot_slab_handle_free(handle, object);
        else
            allot_slab_free(slab, object);
        break;
    case BY_ADDRESS: allot_slab_free_anywhere(object); break;
    case BY_POOL: allot_free_sized(object, object->size, 8); break;
    default: allot_free(object);
    }
}

static struct object *get(enum way way, uint32_t size, allot_slab_handle *handle, allot_pool *pool, uint64_t *state)
{
    struct object *object;
    switch (way) {
    case BY_HANDLE: object = (struct object *)allot_slab_handle_alloc(handle); break;
    case BY_SLAB:
    case BY_ADDRESS: object = (struct object *)allot_slab_alloc(slab); break;
    case BY_POOL: object = (struct object *)allot_pool_alloc(pool, size, 8); break;
    default: object = (struct object *)allot_malloc(size);
    }
    unsigned char fill = (unsigned char)draw(state, 256);
    memset(object, fill, size);
    object->way = way;
    object->size = size;
    object->fill = fill;
    return object;
}

static void *come_and_go(void *argument)
{
    uint64_t state = 0x9E3779B97F4A7C15u * ((uintptr_t)argument + 1);
    allot_pool *pool = allot_pool_create(NULL);
    allot_slab_handle *handle = allot_slab_handle_create(slab);
    allot_entered entered = allot_pool_enter(pool);
    for (int turn = 0; turn < TURNS; turn++) {
        enum way way = (enum way)draw(&state, WAYS);
        uint32_t size = way < BY_POOL ? size_of_slot : (uint32_t)(sizeof(struct object) + draw(&state, draw(&state, 50) ? 300 : 70000));
        struct object *object = get(way, size, handle, pool, &state);
        object = (struct object *)atomic_exchange(&places[draw(&state, PLACES)], (unsigned char *)object);
        if (object != NULL)
            give_up(object, handle);
    }
    allot_pool_leave(entered);
    allot_slab_handle_destroy(handle);
    allot_pool_destroy(pool);
    return NULL;
}

int main(void)
{
    const allot_options ways[] = {{.name = "plain"}, {.name = "packed", .packing = true}, {.release = {ALLOT_AT_ONCE, 0}}, {.hardened = true}};
    for (int i = 0; i < 4; i++) {
        pthread_t threads[THREADS];
        slab = allot_slab_create(size_of_slot, 8, &ways[i]);
        for (uintptr_t thread = 0; thread < THREADS; thread++)
            EXPECT(pthread_create(&threads[thread], NULL, come_and_go, (void *)(thread + i * THREADS)) == 0);
        for (int thread = 0; thread < THREADS; thread++)
            EXPECT(pthread_join(threads[thread], NULL) == 0);
        size_t left = 0, slots = 0;
        for (int place = 0; place < PLACES; place++) {
            struct object *object = (struct object *)atomic_exchange(&places[place], NULL);
            if (object != NULL) {
                slots += object->way < BY_POOL;
                left += 1;
                give_up(object, NULL);
            }
        }
        EXPECT(left > PLACES / 2 && slots > 0);
        EXPECT(allot_slab_statistics(slab).live_objects == 0);
        allot_slab_destroy(slab);
    }
    return 0;
}
