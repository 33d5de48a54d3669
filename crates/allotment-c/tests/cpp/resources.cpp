/* The memory resources: the requirements of std::pmr, and the claims of each resource. */
#include "check.hpp"
#include "counting.hpp"

#include <allotment.hpp>

#include <cstring>
#include <list>
#include <map>
#include <memory_resource>
#include <random>
#include <string>
#include <vector>

namespace {

struct block {
    unsigned char *start;
    std::size_t size;
    std::size_t align;
    unsigned char mark;
};

/* Takes and gives back blocks of all sizes and alignments; each keeps what was written to it, so no two overlap. */
void keeps_blocks_apart(std::pmr::memory_resource &memory, std::size_t most)
{
    std::mt19937 random(7);
    std::vector<block> live;
    for (int step = 0; step < 4000; ++step) {
        if (live.size() < 100 || random() % 2 == 0) {
            const std::size_t size = random() % 4 == 0 ? random() % most : random() % 300;
            const std::size_t align = std::size_t{1} << random() % 9;
            auto *start = static_cast<unsigned char *>(memory.allocate(size, align));
            CHECK(start != nullptr && is_aligned(start, align));
            const auto mark = static_cast<unsigned char>(random());
            std::memset(start, mark, size);
            live.push_back({start, size, align, mark});
        } else {
            const std::size_t place = random() % live.size();
            const block going = live[place];
            live[place] = live.back();
            live.pop_back();
            for (std::size_t byte = 0; byte < going.size; ++byte) {
                CHECK(going.start[byte] == going.mark);
            }
            memory.deallocate(going.start, going.size, going.align);
        }
    }
    for (const block &left : live) {
        memory.deallocate(left.start, left.size, left.align);
    }
}

} // namespace

CLAIM(every_resource_keeps_blocks_apart_and_aligned)
{
    allot::arena arena;
    allot::arena_resource of_arena(arena);
    keeps_blocks_apart(of_arena, 50000);
    allot::reap reap;
    allot::reap_resource of_reap(reap);
    keeps_blocks_apart(of_reap, 50000);
    allot::pool pool;
    allot::pool_resource of_pool(pool);
    keeps_blocks_apart(of_pool, 50000);
    allot::pool_ref_resource of_ref{allot::pool_ref(pool)};
    keeps_blocks_apart(of_ref, 50000);
    keeps_blocks_apart(*allot::current_pool(), 50000);
    allot::slab_resource of_slabs;
    keeps_blocks_apart(of_slabs, 50000);
    allot::own_slab_resource of_own_slabs(allot::options().name("own"));
    keeps_blocks_apart(of_own_slabs, 50000);
    allot::monotonic_buffer_resource monotonic;
    keeps_blocks_apart(monotonic, 50000);
    counting_resource upstream;
    {
        allot::monotonic_buffer_resource with_upstream(&upstream);
        keeps_blocks_apart(with_upstream, 50000);
        CHECK(upstream.blocks > 0);
    }
    CHECK(upstream.blocks == 0);
}

CLAIM(zero_bytes_are_a_block_like_any_other)
{
    allot::arena arena;
    allot::arena_resource of_arena(arena);
    allot::slab_resource of_slabs;
    allot::monotonic_buffer_resource monotonic;
    for (std::pmr::memory_resource *memory :
         {static_cast<std::pmr::memory_resource *>(&of_arena), static_cast<std::pmr::memory_resource *>(&of_slabs),
          static_cast<std::pmr::memory_resource *>(&monotonic), allot::current_pool()}) {
        void *one = memory->allocate(0, 1);
        void *other = memory->allocate(0, 1);
        CHECK(one != nullptr && other != nullptr && one != other);
        memory->deallocate(one, 0, 1);
        memory->deallocate(other, 0, 1);
    }
}

CLAIM(resources_are_equal_where_one_may_free_what_the_other_took)
{
    allot::arena arena;
    allot::arena another;
    allot::arena_resource one(arena);
    allot::arena_resource same(arena);
    allot::arena_resource other(another);
    CHECK(one == same && one != other && one != *std::pmr::new_delete_resource());
    allot::pool pool;
    allot::pool_resource of_pool(pool);
    allot::pool_resource of_pool_too(pool);
    CHECK(of_pool == of_pool_too && of_pool != one);
    allot::current_pool_resource current;
    CHECK(current == *allot::current_pool());
    allot::slab_resource slabs;
    allot::slab_resource slabs_too;
    allot::slab_resource slabs_elsewhere(&one);
    CHECK(slabs == slabs_too && slabs != slabs_elsewhere);
    allot::own_slab_resource own(allot::options{});
    CHECK(own == own && own != slabs);
}

CLAIM(containers_on_an_arena_leave_nothing_behind_after_a_reset)
{
    allot::arena arena(allot::options().name("containers").retain(ALLOT_RETAIN_NOTHING));
    allot::arena_resource memory(arena);
    {
        std::pmr::map<std::pmr::string, std::pmr::vector<int>> map(&memory);
        for (int key = 0; key < 1000; ++key) {
            map[std::pmr::string(std::to_string(key) + " is too long for a small string", &memory)].assign(10, key);
        }
        int sum = 0;
        for (const auto &[key, values] : map) {
            CHECK(key.get_allocator().resource() == &memory && values.get_allocator().resource() == &memory);
            sum += values.back();
        }
        CHECK(sum == 999 * 500);
    }
    CHECK(arena.statistics().held_bytes > 0);
    arena.reset();
    CHECK(arena.statistics().live_objects == 0 && arena.statistics().live_bytes == 0);
}

CLAIM(the_last_object_of_an_arena_gives_its_bytes_back)
{
    allot::arena arena;
    allot::arena_resource memory(arena);
    void *first = memory.allocate(100, 8);
    for (int round = 0; round < 100; ++round) {
        void *last = memory.allocate(40, 16);
        memory.deallocate(last, 40, 16);
    }
    CHECK(arena.statistics().live_objects == 1 && arena.statistics().live_bytes == 100);
    void *second = memory.allocate(24, 8);
    memory.deallocate(first, 100, 8);
    std::memset(second, 1, 24);
    memory.deallocate(second, 24, 8);
}

CLAIM(temporary_strings_take_no_more_than_one_place_in_an_arena)
{
    allot::arena arena;
    allot::arena_resource memory(arena);
    for (int round = 0; round < 100000; ++round) {
        std::pmr::string text("a string that is too long to be kept inside of its object", &memory);
        CHECK(text.size() == 57);
    }
#if !defined(ALLOT_OUT_OF_LINE)
    /* Hardened arenas, and those under Valgrind, have each object at an address of its own. */
    if (std::getenv("LD_PRELOAD") == nullptr && std::getenv("ALLOTMENT_HARDENED") == nullptr) {
        CHECK(arena.statistics().held_bytes <= 128 << 10);
    }
#endif
    CHECK(arena.statistics().live_objects == 0);
}

CLAIM(a_pool_or_a_reap_counts_what_its_containers_hold)
{
    allot::pool pool;
    allot::pool_resource of_pool(pool);
    allot::reap reap;
    allot::reap_resource of_reap(reap);
    {
        std::pmr::list<int> in_pool(&of_pool);
        std::pmr::list<int> in_reap(&of_reap);
        for (int number = 0; number < 100; ++number) {
            in_pool.push_back(number);
            in_reap.push_front(number);
        }
        CHECK(pool.statistics().live_objects == 100 && reap.statistics().live_objects == 100);
    }
    CHECK(pool.statistics().live_objects == 0 && reap.statistics().live_objects == 0);
}

CLAIM(the_current_pool_is_asked_at_each_allocation_and_frees_go_to_the_owner)
{
    allot::pool pool;
    std::pmr::vector<int> numbers(allot::current_pool());
    numbers.assign(10, 1); /* of malloc */
    CHECK(!allot_pool_any_holds(numbers.data()));
    {
        allot::pool_scope scope(pool);
        numbers.reserve(1000);
        CHECK(allot_pool_any_holds(numbers.data()) && pool.statistics().live_objects == 1);
        std::pmr::vector<int> more(allot::current_pool());
        more.assign(10, 1);
        CHECK(pool.statistics().live_objects == 2);
    }
    CHECK(pool.statistics().live_objects == 1);
    numbers.clear();
    numbers.shrink_to_fit(); /* outside of the pool */
    CHECK(pool.statistics().live_objects == 0);
}

CLAIM(a_slab_resource_has_a_class_for_every_size_and_the_smallest_one)
{
    using classes = allot::detail::slab_classes;
    CHECK(classes::size_of(classes::of(0, 1)) == 16);
    for (std::size_t align = 1; align <= 64; align *= 2) {
        std::size_t before = 0;
        for (std::size_t size = 1; size <= classes::largest; ++size) {
            const std::size_t place = classes::of(size, align);
            CHECK(place < classes::count && place >= before);
            CHECK(classes::size_of(place) >= size && classes::align_of(place) >= align);
            CHECK(classes::size_of(place) % classes::align_of(place) == 0);
            const bool first_of_its_kind = place == 0 || place == classes::first_aligned;
            CHECK(first_of_its_kind || classes::size_of(place - 1) < size || classes::size_of(place) == 16 ||
                  classes::size_of(place) == align);
            before = place;
        }
        CHECK(classes::of(classes::largest + 1, align) >= classes::count);
    }
    CHECK(classes::of(1, classes::largest) == classes::count - 1);
    CHECK(classes::of(1, 2 * classes::largest) >= classes::count);
}

CLAIM(a_slab_resource_takes_large_blocks_from_upstream)
{
    counting_resource upstream;
    allot::slab_resource memory(&upstream);
    CHECK(memory.upstream_resource() == &upstream);
    void *small = memory.allocate(allot::slab_resource::largest, 8);
    CHECK(upstream.blocks == 0);
    void *large = memory.allocate(allot::slab_resource::largest + 1, 8);
    void *aligned = memory.allocate(8, 2 * allot::slab_resource::largest);
    CHECK(upstream.blocks == 2);
    memory.deallocate(small, allot::slab_resource::largest, 8);
    memory.deallocate(large, allot::slab_resource::largest + 1, 8);
    memory.deallocate(aligned, 8, 2 * allot::slab_resource::largest);
    CHECK(upstream.blocks == 0);
}

CLAIM(a_slab_resource_of_its_own_keeps_to_its_budget_and_its_name)
{
    allot::budget limit(std::size_t{1} << 20);
    allot::own_slab_resource memory(allot::options().name("limited").budget(limit));
    std::pmr::list<long> numbers(&memory);
    THROWS(allot::error, for (;;) numbers.push_back(1));
    CHECK(limit.used() <= limit.limit() && numbers.size() > 1000);
    CHECK(std::strcmp(allot_last_error()->name, "limited") == 0);
    CHECK(allot::report_text().find("limited") != std::string::npos);
    const std::size_t before = limit.used();
    numbers.clear();
    CHECK(memory.trim() > 0 && limit.used() < before);
}

CLAIM(a_monotonic_buffer_comes_first_and_is_there_again_after_release)
{
    alignas(16) unsigned char buffer[256];
    counting_resource upstream;
    allot::monotonic_buffer_resource memory(buffer, sizeof buffer, &upstream);
    for (int round = 0; round < 3; ++round) {
        CHECK(memory.allocate(100, 1) == buffer);
        CHECK(memory.allocate(100, 4) == buffer + 100);
        CHECK(upstream.blocks == 0);
        auto *beyond = static_cast<unsigned char *>(memory.allocate(100, 8));
        CHECK(beyond < buffer || beyond >= buffer + sizeof buffer);
        CHECK(upstream.blocks == 1 && upstream.bytes >= 2 * sizeof buffer);
        memory.release();
        CHECK(upstream.blocks == 0);
    }
}

CLAIM(a_monotonic_buffer_without_upstream_goes_on_in_an_arena)
{
    unsigned char buffer[64];
    allot::monotonic_buffer_resource memory(buffer, sizeof buffer);
    CHECK(memory.upstream_resource() == std::pmr::get_default_resource());
    for (int round = 0; round < 3; ++round) {
        std::pmr::vector<std::pmr::string> lines(&memory);
        for (int line = 0; line < 1000; ++line) {
            lines.emplace_back("a line that is too long to be kept inside of its string");
        }
        CHECK(lines.back().size() == 55);
        lines = std::pmr::vector<std::pmr::string>(&memory);
        memory.release();
        CHECK(memory.allocate(1, 1) == buffer);
        memory.release();
    }
    void *whole = memory.allocate(std::size_t{16} << 20, 4096);
    CHECK(is_aligned(whole, 4096));
    std::memset(whole, 1, std::size_t{16} << 20);
}

CLAIM(a_monotonic_buffer_heeds_another_default_resource)
{
    counting_resource usual;
    std::pmr::memory_resource *before = std::pmr::set_default_resource(&usual);
    {
        allot::monotonic_buffer_resource memory(1000);
        CHECK(memory.upstream_resource() == &usual && usual.blocks == 0);
        (void)memory.allocate(1, 1);
        CHECK(usual.blocks == 1 && usual.bytes >= 1000);
    }
    CHECK(usual.blocks == 0);
    std::pmr::set_default_resource(before);
}

CLAIM(a_monotonic_buffer_on_the_null_resource_is_a_limit)
{
    unsigned char buffer[128];
    allot::monotonic_buffer_resource memory(buffer, sizeof buffer, std::pmr::null_memory_resource());
    CHECK(memory.allocate(128, 1) == buffer);
    THROWS(std::bad_alloc, (void)memory.allocate(1, 1));
    memory.release();
    CHECK(memory.allocate(64, 1) == buffer);
}

/* Records the last request, and refuses each. */
class recording_resource final : public std::pmr::memory_resource {
public:
    std::size_t size = 0;
    std::size_t align = 0;
    std::size_t calls = 0;

private:
    void *do_allocate(std::size_t requested, std::size_t with_align) override
    {
        size = requested;
        align = with_align;
        calls += 1;
        throw std::bad_alloc();
    }
    void do_deallocate(void *, std::size_t, std::size_t) override {}
    bool do_is_equal(const std::pmr::memory_resource &other) const noexcept override { return this == &other; }
};

CLAIM(a_monotonic_buffer_asks_upstream_for_any_size_and_alignment)
{
    const std::size_t most = std::numeric_limits<std::size_t>::max();
    recording_resource upstream;
    allot::monotonic_buffer_resource memory(&upstream);
    std::size_t calls = 0;
    for (std::size_t size : {most, most - 1, most - 100, most / 2 + 1, most / 4}) {
        for (std::size_t align = 1; align <= 4096; align *= 8) {
            THROWS(std::bad_alloc, (void)memory.allocate(size, align));
            calls += 1;
            CHECK(upstream.calls == calls && upstream.size >= size && upstream.align >= align);
        }
    }
    /* What upstream lends is given back with the size and the alignment that it was lent with. */
    counting_resource lender;
    {
        allot::monotonic_buffer_resource large(&lender);
        CHECK(is_aligned(large.allocate(100, 4096), 4096) && is_aligned(large.allocate(100000, 64), 64));
    }
    CHECK(lender.blocks == 0 && lender.bytes == 0);
}

CLAIM(a_monotonic_buffer_grows_by_doubling)
{
    counting_resource upstream;
    allot::monotonic_buffer_resource memory(&upstream);
    for (int object = 0; object < 100000; ++object) {
        CHECK(is_aligned(memory.allocate(16, 8), 8));
    }
    CHECK(upstream.calls < 20 && upstream.bytes < std::size_t{4} << 20);
}

CLAIM(a_large_object_does_not_end_a_monotonic_chunk_that_has_more_room)
{
    counting_resource upstream;
    allot::monotonic_buffer_resource memory(std::size_t{1} << 16, &upstream);
    auto *first = static_cast<unsigned char *>(memory.allocate(16, 16));
    (void)memory.allocate(std::size_t{1} << 18, 16);
    CHECK(memory.allocate(16, 16) == first + 16 && upstream.blocks == 2);
}

CLAIM(sizes_beyond_any_memory_are_refused)
{
    const std::size_t most = std::numeric_limits<std::size_t>::max();
    allot::arena arena;
    allot::arena_resource of_arena(arena);
    allot::pool pool;
    allot::pool_resource of_pool(pool);
    allot::slab_resource of_slabs;
    counting_resource upstream;
    allot::monotonic_buffer_resource monotonic;
    allot::monotonic_buffer_resource with_upstream(&upstream);
    for (std::pmr::memory_resource *memory :
         {static_cast<std::pmr::memory_resource *>(&of_arena), static_cast<std::pmr::memory_resource *>(&of_pool),
          static_cast<std::pmr::memory_resource *>(&of_slabs), static_cast<std::pmr::memory_resource *>(&monotonic),
          static_cast<std::pmr::memory_resource *>(&with_upstream)}) {
        for (std::size_t size : {most, most - 7, most - 16, most / 2, most / 2 + 1}) {
            for (std::size_t align : {std::size_t{1}, std::size_t{16}, std::size_t{4096}}) {
                THROWS(std::bad_alloc, (void)memory->allocate(size, align));
            }
        }
        void *after = memory->allocate(10, 1);
        memory->deallocate(after, 10, 1);
    }
}
