/* Misuse of hardened allocators through C++: each case is named and stops the program. */
#include "check.hpp"

#include <allotment.hpp>

#include <memory_resource>
#include <string>
#include <thread>
#include <vector>

CASE(a_resource_used_by_another_thread, "pool 'one thread's': used by a thread that is not its owner")
{
    allot::pool pool(allot::options().name("one thread's").hardened());
    allot::pool_resource memory(pool);
    std::pmr::vector<int> numbers(100, &memory);
    std::thread([&] { numbers = std::pmr::vector<int>(&memory); }).join();
}

CASE(an_arena_object_freed_twice, "arena 'query': double free: 100 bytes")
{
    allot::arena arena(allot::options().name("query").hardened());
    allot::arena_resource memory(arena);
    void *object = memory.allocate(100, 8);
    (void)memory.allocate(100, 8);
    memory.deallocate(object, 100, 8);
    memory.deallocate(object, 100, 8);
}

CASE(an_arena_used_after_its_end, "arena 'ended': used after it was destroyed")
{
    allot_set_hardened(true);
    auto *arena = new allot::arena(allot::options().name("ended"));
    allot::arena_resource memory(*arena);
    delete arena;
    try {
        (void)memory.allocate(8, 8);
    } catch (const allot::error &error) {
        /* A try_ call may report it this way; the others stop. */
        std::fprintf(stderr, "%s\n", error.what());
        std::abort();
    }
}

CASE(a_free_list_object_destroyed_twice, "free list 'longs': double free: 8 bytes")
{
    allot::free_list<long> list(allot::options().name("longs").hardened());
    long *one = list.make(1);
    list.destroy(one);
    list.destroy(one);
}

CASE(a_slot_of_another_slab, "foreign pointer, no live object of this allocator: 8 bytes")
{
    allot::slab<long> slab(allot::options().hardened());
    allot::slab<long> other(allot::options().hardened());
    slab.destroy(other.make(1));
}

CASE(a_pool_ended_while_a_scope_is_open, "pool 'entered': destroyed while its thread is in it")
{
    auto *pool = new allot::pool(allot::options().name("entered"));
    allot::pool_scope scope(*pool);
    delete pool;
}

CASE(a_block_that_is_none, "is not a live block with a stored size")
{
    alignas(16) char buffer[64] = {};
    allot::PoolAllocator pooled(1);
    pooled.Free(buffer + 32);
}
