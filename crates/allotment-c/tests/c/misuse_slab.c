/* Slabs and their handles: misuse is named and stopped, or a try_ call reports it. */
#include <allotment.h>

#include <pthread.h>

#include "expect.h"

static const allot_options hardened = {.name = "guarded", .hardened = true};

static void on_another_thread(void *(*run)(void *), void *argument)
{
    pthread_t thread;
    EXPECT(pthread_create(&thread, NULL, run, argument) == 0);
    EXPECT(pthread_join(thread, NULL) == 0);
}

static allot_slab *guarded(void)
{
    return allot_slab_create(48, 8, &hardened);
}

static void double_free(void)
{
    allot_slab *slab = guarded();
    void *slot = allot_slab_alloc(slab);
    allot_slab_free(slab, slot);
    allot_slab_free(slab, slot);
}

static void double_free_by_a_handle(void)
{
    allot_slab_handle *handle = allot_slab_handle_create(guarded());
    void *slot = allot_slab_handle_alloc(handle);
    allot_slab_handle_free(handle, slot);
    allot_slab_handle_free(handle, slot);
}

static void double_free_by_address(void)
{
    void *slot = allot_slab_alloc(guarded());
    allot_slab_free_anywhere(slot);
    allot_slab_free_anywhere(slot);
}

static void double_free_of_many(void)
{
    void *slots[3];
    allot_slab *slab = guarded();
    allot_slab_alloc_many(slab, slots, 3);
    slots[2] = slots[0];
    allot_slab_free_many(slab, slots, 3);
}

static void foreign_pointer(void)
{
    allot_slab_free(guarded(), malloc(48));
}

static void foreign_pointer_by_a_handle(void)
{
    allot_slab_handle_free(allot_slab_handle_create(guarded()), malloc(48));
}

static void foreign_pointer_by_address(void)
{
    allot_slab_free_anywhere(malloc(48));
}

static void pointer_to_nowhere_by_address(void)
{
    allot_slab_free_anywhere((void *)(uintptr_t)0xDEADBEEFCAFEF00Du);
}

static void slot_of_another_slab(void)
{
    allot_slab *slab = allot_slab_create(48, 8, &(allot_options){.name = "right"});
    void *own = allot_slab_alloc(slab);
    void *slot = allot_slab_alloc(allot_slab_create(48, 8, &(allot_options){.name = "wrong"}));
    allot_slab_free(slab, own);
    allot_slab_free(slab, slot);
}

static void slot_of_another_slab_by_a_handle(void)
{
    allot_slab_handle *handle = allot_slab_handle_create(allot_slab_create(48, 8, &(allot_options){.name = "right"}));
    void *slot = allot_slab_alloc(allot_slab_create(48, 8, NULL));
    allot_slab_handle_free(handle, allot_slab_handle_alloc(handle));
    allot_slab_handle_free(handle, slot);
}

static void overrun(void)
{
    allot_slab *slab = guarded();
    char *slot = (char *)allot_slab_alloc(slab);
    slot[48] = 1;
    allot_slab_free(slab, slot);
}

static void write_after_free(void)
{
    allot_slab *slab = guarded();
    volatile char *slot = (volatile char *)allot_slab_alloc(slab);
    allot_slab_free(slab, (void *)(uintptr_t)slot);
    slot[5] = 1;
    allot_slab_trim(slab);
}

static void use_after_destroy(void)
{
    allot_slab *slab = guarded();
    void *slot = allot_slab_alloc(slab);
    allot_slab_free(slab, slot);
    allot_slab_destroy(slab);
    (void)allot_slab_alloc(slab);
}

static void free_after_destroy(void)
{
    allot_slab *slab = guarded();
    void *slot = allot_slab_alloc(slab);
    allot_slab_destroy(slab);
    allot_slab_free(slab, slot);
}

static void destroyed_twice(void)
{
    allot_slab *slab = guarded();
    allot_slab_destroy(slab);
    allot_slab_destroy(slab);
}

static void use_of_a_destroyed_handle(void)
{
    allot_slab_handle *handle = allot_slab_handle_create(guarded());
    allot_slab_handle_destroy(handle);
    (void)allot_slab_handle_alloc(handle);
}

static void free_by_a_destroyed_handle(void)
{
    allot_slab_handle *handle = allot_slab_handle_create(guarded());
    void *slot = allot_slab_handle_alloc(handle);
    allot_slab_handle_destroy(handle);
    allot_slab_handle_free(handle, slot);
}

static void destroyed_with_handles(void)
{
    allot_slab *slab = allot_slab_create(8, 8, &(allot_options){.name = "with handles"});
    (void)allot_slab_handle_create(slab);
    allot_slab_destroy(slab);
}

static void *take(void *handle)
{
    return allot_slab_handle_alloc((allot_slab_handle *)handle);
}

static void handle_of_another_thread(void)
{
    on_another_thread(take, allot_slab_handle_create(guarded()));
}

static void *destroy(void *handle)
{
    allot_slab_handle_destroy((allot_slab_handle *)handle);
    return NULL;
}

static void handle_destroyed_by_another_thread(void)
{
    on_another_thread(destroy, allot_slab_handle_create(allot_slab_create(8, 8, NULL)));
}

static void no_slab(void)
{
    (void)allot_slab_alloc(NULL);
}

static void no_slab_to_free(void)
{
    allot_slab_free(NULL, (void *)(uintptr_t)64);
}

static void no_handle(void)
{
    allot_slab_handle_free(NULL, (void *)(uintptr_t)64);
}

static void no_slab_for_statistics(void)
{
    (void)allot_slab_statistics(NULL);
}

static void no_such_slab(void)
{
    static char nothing[256];
    allot_set_hardened(true);
    (void)allot_slab_alloc((allot_slab *)(void *)(nothing + 16));
}

static void slab_at_no_address(void)
{
    allot_set_hardened(true);
    allot_slab_free((allot_slab *)(uintptr_t)0x123456789000u, (void *)(uintptr_t)64);
}

static void arena_for_a_slab(void)
{
    allot_set_hardened(true);
    (void)allot_slab_alloc((allot_slab *)(void *)allot_arena_create(NULL));
}

static void shared_slot_freed_twice(void)
{
    allot_set_hardened(true);
    allot_slab *one = allot_slab_by_size(40, 8), *other = allot_slab_by_size(48, 8);
    void *slot = allot_slab_alloc(one);
    allot_slab_free(other, slot);
    allot_slab_free(one, slot);
}

static void beyond_the_budget(void)
{
    allot_slab *slab = allot_slab_create(100000, 8, &(allot_options){.name = "poor", .budget = allot_budget_create(150000)});
    (void)allot_slab_alloc(slab);
    (void)allot_slab_alloc(slab);
}

static void bad_alignment(void)
{
    (void)allot_slab_create(8, 24, NULL);
}

static const struct deadly cases[] = {
    {"double-free", "allotment: slab 'guarded': double free: 48 bytes", double_free},
    {"double-free-by-a-handle", "slab 'guarded': double free", double_free_by_a_handle},
    {"double-free-by-address", "slab 'guarded': double free", double_free_by_address},
    {"double-free-of-many", "slab 'guarded': double free", double_free_of_many},
    {"foreign-pointer", "slab 'guarded': foreign pointer", foreign_pointer},
    {"foreign-pointer-by-a-handle", "slab 'guarded': foreign pointer", foreign_pointer_by_a_handle},
    {"foreign-pointer-by-address", "slab: foreign pointer, not a slot of any slab", foreign_pointer_by_address},
    {"pointer-to-nowhere-by-address", "slab: foreign pointer, not a slot of any slab: 0xdeadbeefcafef00d", pointer_to_nowhere_by_address},
    {"slot-of-another-slab", "slab 'right': foreign pointer, no live object of this allocator", slot_of_another_slab},
    {"slot-of-another-slab-by-a-handle", "slab 'right': foreign pointer", slot_of_another_slab_by_a_handle},
    {"overrun", "slab 'guarded': overrun", overrun},
    {"write-after-free", "slab 'guarded': write after free", write_after_free},
    {"use-after-destroy", "slab 'guarded': used after it was destroyed", use_after_destroy},
    {"free-after-destroy", "slab 'guarded': used after it was destroyed", free_after_destroy},
    {"destroyed-twice", "slab 'guarded': used after it was destroyed", destroyed_twice},
    {"use-of-a-destroyed-handle", "slab handle 'guarded': used after it was destroyed", use_of_a_destroyed_handle},
    {"free-by-a-destroyed-handle", "slab handle 'guarded': used after it was destroyed", free_by_a_destroyed_handle},
    {"destroyed-with-handles", "slab 'with handles': destroyed while it has handles", destroyed_with_handles},
    {"handle-of-another-thread", "slab handle 'guarded': used by a thread that is not its owner", handle_of_another_thread},
    {"handle-destroyed-by-another-thread", "slab handle: used by a thread that is not its owner", handle_destroyed_by_another_thread},
    {"no-slab", "slab: the handle is NULL", no_slab},
    {"no-slab-to-free", "slab: the handle is NULL", no_slab_to_free},
    {"no-handle", "slab handle: the handle is NULL", no_handle},
    {"no-slab-for-statistics", "slab: the handle is NULL", no_slab_for_statistics},
    {"no-such-slab", "slab: the pointer is not a live handle", no_such_slab},
    {"slab-at-no-address", "slab: the pointer is not a live handle", slab_at_no_address},
    {"arena-for-a-slab", "slab: the pointer is not a live handle", arena_for_a_slab},
    {"shared-slot-freed-twice", "double free", shared_slot_freed_twice},
    {"beyond-the-budget", "slab 'poor': ", beyond_the_budget},
    {"bad-alignment", "slab: an alignment of 24 is not a power of two", bad_alignment},
};

static void *try_elsewhere(void *handle)
{
    EXPECT(allot_slab_handle_try_alloc((allot_slab_handle *)handle) == NULL);
    EXPECT(allot_last_error()->kind == ALLOT_WRONG_THREAD && strcmp(allot_last_error()->name, "guarded") == 0);
    return NULL;
}

static void try_calls_report(void)
{
    allot_slab *slab = guarded();
    allot_slab_handle *handle = allot_slab_handle_create(slab);
    on_another_thread(try_elsewhere, handle);
    EXPECT(allot_slab_handle_try_alloc(handle) != NULL);
    allot_slab_handle_destroy(handle);
    EXPECT(allot_slab_handle_try_alloc(handle) == NULL && allot_last_error()->kind == ALLOT_BAD_HANDLE);
    allot_slab_destroy(slab);
    EXPECT(allot_slab_try_alloc(slab) == NULL && allot_last_error()->kind == ALLOT_BAD_HANDLE);
    EXPECT(allot_slab_handle_try_create(slab) == NULL && allot_last_error()->kind == ALLOT_BAD_HANDLE);
    EXPECT(strstr(allot_last_error()->message, "slab 'guarded': used after it was destroyed") != NULL);
    allot_set_hardened(true);
    static char nothing[256];
    EXPECT(allot_slab_try_alloc((allot_slab *)(void *)nothing) == NULL && allot_last_error()->kind == ALLOT_BAD_HANDLE);
    allot_slab *shared = allot_slab_by_size(40, 8), *also = allot_slab_by_size(41, 8);
    allot_slab_free(shared, allot_slab_alloc(also));
    EXPECT(allot_slab_slot_size(shared) == 48);
    allot_slab_destroy(shared);
    allot_slab_destroy(also);
}

int main(int count, char **arguments)
{
    return main_of(count, arguments, cases, sizeof cases / sizeof *cases, try_calls_report);
}
