/* A call that fails throws an exception with the cause, and changes nothing. */
#include "check.hpp"
#include "counting.hpp"

#include <allotment.hpp>

#include <cerrno>
#include <cstring>
#include <memory_resource>
#include <stdexcept>
#include <string>
#include <sys/resource.h>
#include <vector>

namespace {

struct refusal : std::runtime_error {
    refusal() : std::runtime_error("refused") {}
};

/* The n-th construction throws. */
struct fragile {
    static inline int left = 0;
    static inline int live = 0;
    fragile()
    {
        if (left-- == 0) {
            throw refusal();
        }
        ++live;
    }
    ~fragile() { --live; }
    long filler[5] = {};
};

struct fragile_pooled : allot::pooled, fragile {};
struct alignas(64) fragile_aligned : allot::pooled, fragile {};

} // namespace

CLAIM(an_error_says_which_allocator_how_many_bytes_and_why)
{
    allot::budget limit(100000);
    allot::arena arena(allot::options().name("query").budget(limit));
    try {
        arena.allocate(1000000);
        CHECK(false);
    } catch (const allot::error &error) {
        CHECK(error.kind() == ALLOT_BUDGET_EXCEEDED && error.requested() >= 1000000 && error.system_error() == 0);
        CHECK(std::strcmp(error.allocator(), "arena") == 0 && std::strcmp(error.name(), "query") == 0);
        CHECK(std::strstr(error.what(), "query") != nullptr && std::strchr(error.what(), '\n') == nullptr);
    }
    CHECK(arena.allocate(100) != nullptr && arena.statistics().live_objects == 1);
    THROWS(std::bad_alloc, arena.allocate(1000000));
    CHECK(arena.try_allocate(1000000) == nullptr && allot_last_error()->kind == ALLOT_BUDGET_EXCEEDED);
}

/* The kernel's signal SIGXFSZ would end the process. */
CLAIM(a_limit_on_files_is_thrown_and_the_allocator_goes_on)
{
    rlimit before;
    CHECK(getrlimit(RLIMIT_FSIZE, &before) == 0);
    const rlimit low = {1 << 20, before.rlim_max};
    CHECK(setrlimit(RLIMIT_FSIZE, &low) == 0);
    allot::arena arena(allot::options().source(allot::source::file_in("/tmp")));
    allot::arena_resource memory(arena);
    std::pmr::vector<std::pmr::string> texts(&memory);
    try {
        for (;;) {
            texts.emplace_back(10000, 't');
        }
    } catch (const allot::error &error) {
        CHECK(error.kind() == ALLOT_SYSTEM && error.system_error() == EFBIG);
    }
    const std::size_t count = texts.size();
    THROWS(std::bad_alloc, texts.resize(1 << 20));
    CHECK(count > 10 && texts.size() == count && texts.back().size() == 10000);
    CHECK(arena.try_allocate(1) != nullptr);
    CHECK(setrlimit(RLIMIT_FSIZE, &before) == 0);
}

CLAIM(an_error_keeps_its_text_while_others_follow)
{
    allot::budget limit(1000);
    allot::arena first(allot::options().name("first").budget(limit));
    allot::arena second(allot::options().name("second").budget(limit));
    try {
        first.allocate(100000);
    } catch (const allot::error &error) {
        CHECK(second.try_allocate(100000) == nullptr);
        CHECK(std::strcmp(error.name(), "first") == 0 && std::strcmp(allot_last_error()->name, "second") == 0);
    }
}

CLAIM(wrong_options_and_names_are_thrown)
{
    THROWS(allot::error, allot::arena(allot::options().packing()));
    CHECK(allot_last_error()->kind == ALLOT_BAD_OPTION);
    THROWS(allot::error, allot::pool(allot::options().hint(1)));
    const std::string longest(ALLOT_MAX_NAME + 1, 'n');
    THROWS(allot::error, allot::arena(allot::options().name(longest.c_str())));
    CHECK(allot_last_error()->kind == ALLOT_NAME_TOO_LONG);
    THROWS(allot::error, allot::source::file("/nowhere/at/all"));
    CHECK(allot_last_error()->kind == ALLOT_SYSTEM && allot_last_error()->system_error != 0);
}

CLAIM(a_budget_may_be_nothing)
{
    allot::budget none(0);
    allot::arena arena(allot::options().budget(none));
    THROWS(allot::error, arena.allocate(1));
    CHECK(none.limit() == 0 && none.used() == 0);
}

CLAIM(containers_stay_as_they_were_when_a_budget_is_used_up)
{
    allot::budget limit(std::size_t{1} << 20);
    allot::arena arena(allot::options().budget(limit));
    allot::arena_resource of_arena(arena);
    allot::pool pool(allot::options().maximum(std::size_t{1} << 20));
    allot::pool_resource of_pool(pool);
    for (std::pmr::memory_resource *memory :
         {static_cast<std::pmr::memory_resource *>(&of_arena), static_cast<std::pmr::memory_resource *>(&of_pool)}) {
        std::pmr::vector<int> numbers(memory);
        int next = 0;
        THROWS(allot::error, for (;; ++next) numbers.push_back(next));
        CHECK(next > 1000 && numbers.size() == static_cast<std::size_t>(next) && numbers.back() == next - 1);
    }
}

CLAIM(an_array_of_too_many_is_a_length_error_before_anything_is_asked)
{
    allot::arena arena;
    const std::size_t most = static_cast<std::size_t>(-1);
    THROWS(std::bad_array_new_length, arena.make_array<int>(most / 2));
    allot::pool_allocator<long> of_pool;
    allot::slab_allocator<long> of_slab;
    allot::arena_allocator<long> of_arena(arena);
    THROWS(std::bad_array_new_length, (void)of_pool.allocate(most / 4));
    THROWS(std::bad_array_new_length, (void)of_slab.allocate(most / 4));
    THROWS(std::bad_array_new_length, (void)of_arena.allocate(most / 4));
}

CLAIM(memory_goes_back_when_a_constructor_throws)
{
    allot::arena arena;
    allot::reap reap;
    allot::pool pool;
    allot::free_list<fragile> list;
    allot::slab<fragile> slab;
    allot::slab_handle<fragile> handle(slab);
    allot::pool_scope scope(pool);
    fragile::left = 0;
    THROWS(refusal, arena.make_undestroyed<fragile>());
    fragile::left = 0;
    THROWS(refusal, arena.make_unique<fragile>());
    fragile::left = 0;
    THROWS(refusal, reap.make_unique<fragile>());
    fragile::left = 0;
    THROWS(refusal, pool.make_unique<fragile>());
    fragile::left = 0;
    THROWS(refusal, allot::make_pooled<fragile>());
    fragile::left = 0;
    THROWS(refusal, list.make());
    fragile::left = 0;
    THROWS(refusal, list.make_unique());
    fragile::left = 0;
    THROWS(refusal, slab.make());
    fragile::left = 0;
    THROWS(refusal, handle.make());
    fragile::left = 0;
    THROWS(refusal, new fragile_pooled);
    fragile::left = 3;
    THROWS(refusal, new fragile_pooled[5]);
    fragile::left = 0;
    THROWS(refusal, new fragile_aligned);
    fragile::left = 3;
    THROWS(refusal, new fragile_aligned[5]);
    fragile::left = 0;
    THROWS(refusal, allot::try_new<fragile_aligned>());
    CHECK(fragile::live == 0);
    CHECK(arena.statistics().live_objects == 0 && reap.statistics().live_objects == 0);
    CHECK(pool.statistics().live_objects == 0);
    CHECK(list.live() == 0);
    CHECK(slab.statistics().live_objects == 0);
}

CLAIM(pooled_objects_are_refused_by_a_budget)
{
    allot::pool pool(allot::options().maximum(200000));
    allot::pool_scope scope(pool);
    struct large : allot::pooled {
        char bytes[1 << 20];
    };
    THROWS(allot::error, new large);
    CHECK(allot::try_new<large>() == nullptr && allot_last_error()->kind == ALLOT_BUDGET_EXCEEDED);
}

CLAIM(what_an_upstream_source_throws_becomes_an_error)
{
    counting_resource upstream;
    {
        allot::source source = allot::source::of(upstream);
        allot::arena arena(allot::options().name("on upstream").source(source));
        CHECK(arena.allocate(100) != nullptr && upstream.blocks == 1);
        upstream.refuse_after = upstream.calls;
        THROWS(allot::error, for (;;) arena.allocate(1000));
        CHECK(allot_last_error()->kind == ALLOT_SOURCE_REFUSED);
    }
    allot_recycler_trim();
    CHECK(upstream.blocks == 0);
}

CLAIM(an_initialiser_that_throws_seals_nothing)
{
    THROWS(refusal, allot::sealed<int>::build([](allot::sealer &) -> int { throw refusal(); }));
    THROWS(refusal, allot::sealed<int>::build([](allot::sealer &sealer) -> const int * {
        sealer.make<int>(1);
        throw refusal();
    }));
    try {
        allot::sealed<int>::build([](allot::sealer &) -> const int * { return nullptr; });
        CHECK(false);
    } catch (const allot::error &error) {
        CHECK(error.kind() == ALLOT_NO_ERROR && std::strstr(error.what(), "returned no object") != nullptr);
    }
    allot::budget limit(65536);
    THROWS(allot::error, allot::sealed<int>::build(allot::options().budget(limit), [](allot::sealer &sealer) {
        sealer.allocate(1 << 20);
        return 1;
    }));
    CHECK(allot_last_error()->kind == ALLOT_BUDGET_EXCEEDED && limit.used() == 0);
}

CLAIM(unwinding_leaves_scopes_and_pools)
{
    allot::arena arena;
    allot::pool pool;
    THROWS(refusal, {
        allot::arena_scope scope(arena);
        allot::pool_scope entered(pool);
        arena.make<int>(1);
        CHECK(allot::current() == pool.reference());
        throw refusal();
    });
    CHECK(allot::current() == allot::global() && arena.statistics().live_objects == 0);
}
