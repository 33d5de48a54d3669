/* Standard containers with the allocators in their types, and unique_ptr with the deleters. */
#include "check.hpp"

#include <allotment.hpp>

#include <deque>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

namespace {

template <template <class> class Allocator, class... From>
void serves_containers(const From &...from)
{
    using string = std::basic_string<char, std::char_traits<char>, Allocator<char>>;
    std::vector<int, Allocator<int>> vector{Allocator<int>(from...)};
    std::deque<long, Allocator<long>> deque{Allocator<long>(from...)};
    std::list<string, Allocator<string>> list{Allocator<string>(from...)};
    std::map<int, string, std::less<int>, Allocator<std::pair<const int, string>>> map{
        Allocator<std::pair<const int, string>>(from...)};
    std::unordered_map<int, int, std::hash<int>, std::equal_to<int>, Allocator<std::pair<const int, int>>> table(
        8, std::hash<int>(), std::equal_to<int>(), Allocator<std::pair<const int, int>>(from...));
    for (int number = 0; number < 500; ++number) {
        vector.push_back(number);
        deque.push_front(number);
        list.emplace_back(60, 'a', Allocator<char>(from...));
        map.emplace(number, string("a value too long for a small string", Allocator<char>(from...)));
        table[number] = number;
    }
    for (int number = 0; number < 500; number += 2) {
        table.erase(number);
        map.erase(number);
    }
    CHECK(vector[499] == 499 && deque[0] == 499 && list.back().size() == 60 && map.at(3).size() == 35 && table.size() == 250);

    auto copy = map;
    auto moved = std::move(map);
    CHECK(copy == moved);
    copy.clear();
    swap(copy, moved);
    CHECK(copy.size() == 250 && moved.empty());
    moved = std::move(copy);
    CHECK(moved.size() == 250);
    moved.merge(decltype(moved)(moved.get_allocator()));

    auto shared = std::allocate_shared<string>(Allocator<string>(from...), "shared", Allocator<char>(from...));
    std::weak_ptr<string> weak = shared;
    shared.reset();
    CHECK(weak.expired());
}

struct counted {
    static inline int live = 0;
    int value;
    explicit counted(int of) : value(of) { ++live; }
    counted(const counted &) = delete;
    counted &operator=(const counted &) = delete;
    ~counted() { --live; }
};

struct alignas(64) wide {
    char bytes[64];
};

} // namespace

CLAIM(every_allocator_serves_the_standard_containers)
{
    allot::arena arena;
    serves_containers<allot::arena_allocator>(arena);
    allot::reap reap;
    serves_containers<allot::reap_allocator>(reap);
    CHECK(reap.statistics().live_objects == 0);
    allot::pool pool;
    serves_containers<allot::local_pool_allocator>(pool);
    serves_containers<allot::pool_allocator>(pool);
    CHECK(pool.statistics().live_objects == 0);
    serves_containers<allot::pool_allocator>();
    serves_containers<allot::current_allocator>();
    {
        allot::pool_scope scope(pool);
        serves_containers<allot::pool_allocator>();
        serves_containers<allot::current_allocator>();
    }
    CHECK(pool.statistics().live_objects == 0);
    serves_containers<allot::slab_allocator>();
}

CLAIM(allocators_are_as_small_as_what_they_keep)
{
    static_assert(sizeof(allot::arena_allocator<int>) == sizeof(void *));
    static_assert(sizeof(allot::pool_allocator<int>) == 8);
    static_assert(std::is_empty_v<allot::slab_allocator<int>>);
    static_assert(std::allocator_traits<allot::slab_allocator<int>>::is_always_equal::value);
    static_assert(std::allocator_traits<allot::current_allocator<int>>::is_always_equal::value);
    static_assert(!std::allocator_traits<allot::arena_allocator<int>>::is_always_equal::value);
    static_assert(sizeof(allot::pool_ptr<int>) == sizeof(void *));
    static_assert(sizeof(allot::slab_ptr<int>) == sizeof(void *));
    static_assert(sizeof(allot::arena_ptr<int>) == 2 * sizeof(void *));
}

CLAIM(a_default_pool_allocator_keeps_the_pool_that_it_was_made_in)
{
    allot::pool pool;
    std::vector<int, allot::pool_allocator<int>> outside;
    allot::pool_scope scope(pool);
    std::vector<int, allot::pool_allocator<int>> inside;
    outside.push_back(1);
    inside.push_back(1);
    CHECK(!allot_pool_any_holds(outside.data()) && allot_pool_any_holds(inside.data()));
    CHECK(outside.get_allocator() != inside.get_allocator());
    CHECK(inside.get_allocator() == allot::pool_allocator<int>(pool));
}

CLAIM(over_aligned_elements_are_aligned)
{
    allot::arena arena;
    std::vector<wide, allot::arena_allocator<wide>> in_arena{allot::arena_allocator<wide>(arena)};
    std::vector<wide, allot::pool_allocator<wide>> in_pool;
    std::list<wide, allot::slab_allocator<wide>> in_slab;
    std::vector<wide, allot::slab_allocator<wide>> array;
    for (int number = 0; number < 100; ++number) {
        in_arena.emplace_back();
        in_pool.emplace_back();
        in_slab.emplace_back();
        array.emplace_back();
        const auto &last = in_slab.back();
        CHECK(reinterpret_cast<std::uintptr_t>(&last) % 64 == 0);
    }
    CHECK(reinterpret_cast<std::uintptr_t>(in_arena.data()) % 64 == 0);
    CHECK(reinterpret_cast<std::uintptr_t>(in_pool.data()) % 64 == 0);
    CHECK(reinterpret_cast<std::uintptr_t>(array.data()) % 64 == 0);
}

CLAIM(unique_pointers_destroy_and_give_back)
{
    allot::arena arena;
    allot::reap reap;
    allot::pool pool;
    allot::free_list<counted> list;
    allot::slab<counted> slab;
    {
        auto in_arena = arena.make_unique<counted>(1);
        auto in_reap = reap.make_unique<counted>(2);
        auto in_pool = pool.make_unique<counted>(3);
        auto in_list = list.make_unique(4);
        auto in_slab = slab.make_unique(5);
        auto in_local = allot::make_unique_in<counted>(allot::local_pool_ref(pool), 6);
        auto anywhere = allot::make_pooled<const counted>(7);
        CHECK(counted::live == 7);
        CHECK(in_arena->value + in_reap->value + in_pool->value + in_list->value + in_slab->value + in_local->value +
                  anywhere->value == 28);
        CHECK(arena.statistics().live_objects == 1 && pool.statistics().live_objects == 2 && list.live() == 1);
        CHECK(slab.statistics().live_objects == 1);
    }
    CHECK(counted::live == 0);
    CHECK(arena.statistics().live_objects == 0 && reap.statistics().live_objects == 0);
    CHECK(pool.statistics().live_objects == 0);
    CHECK(list.live() == 0);
    CHECK(slab.statistics().live_objects == 0);
}

CLAIM(blocks_of_the_c_interface_have_a_deleter_too)
{
    std::unique_ptr<char, allot::free_deleter> text(static_cast<char *>(allot_malloc(100)));
    CHECK(allot_usable_size(text.get()) >= 100);
}

CLAIM(owners_make_destroy_and_say_what_they_hold)
{
    allot::free_list<counted> list(allot::options().name("counted"));
    counted *one = list.make(1);
    counted *two = list.make(2);
    list.destroy(one);
    list.destroy(nullptr);
    CHECK(list.live() == 1 && counted::live == 1);
    list.destroy(two);
    CHECK(list.trim() > 0 && list.statistics().held_bytes == 0);

    auto slab = allot::slab<counted>::by_size();
    slab.reserve(100);
    counted *three = slab.make(3);
    {
        allot::slab_handle<counted> handle(slab);
        counted *four = handle.make(4);
        handle.destroy(three);
        slab.destroy(four);
        handle.destroy(nullptr);
    }
    slab.flush();
    CHECK(counted::live == 0 && slab.trim() > 0);
}

CLAIM(an_arena_makes_objects_arrays_and_copies)
{
    allot::arena arena;
    auto *point = arena.make<std::pair<int, int>>(1, 2);
    int *zeros = arena.make_array<int>(1000);
    CHECK(point->second == 2 && zeros[0] == 0 && zeros[999] == 0);
    std::string_view name = arena.copy("name");
    CHECK(name == "name" && name.data()[4] == '\0' && arena.copy("").data()[0] == '\0');
    using in_arena = std::vector<int, allot::arena_allocator<int>>;
    auto *numbers = arena.make_undestroyed<in_arena>(allot::arena_allocator<int>(arena));
    numbers->assign(1000, 7);
    CHECK((*numbers)[999] == 7);
    arena.reset();
    CHECK(arena.statistics().live_objects == 0);
}

CLAIM(an_arena_scope_frees_what_came_since_it_began)
{
    allot::arena arena;
    int *outer = arena.make<int>(1);
    {
        allot::arena_scope scope(arena);
        for (int number = 0; number < 100000; ++number) {
            arena.make<int>(number);
        }
        scope.rewind();
        CHECK(arena.statistics().live_objects == 1);
        {
            allot::arena_scope inner(arena);
            arena.make<int>(3);
        }
        arena.make<int>(2);
        CHECK(arena.statistics().live_objects == 2);
    }
    CHECK(arena.statistics().live_objects == 1 && *outer == 1);
}

CLAIM(an_arena_moves_with_its_objects)
{
    allot::arena first;
    int *number = first.make<int>(5);
    allot::arena second = std::move(first);
    CHECK(*number == 5 && second.statistics().live_objects == 1 && first.get() == nullptr);
    allot::arena third(second.release());
    CHECK(third.statistics().live_objects == 1);
}

CLAIM(an_address_leads_to_its_allocator)
{
    allot::pool pool(allot::options().name("found"));
    allot::slab<wide> slab(allot::options().name("wide slots"));
    auto slot = slab.make_unique();
    auto found = allot::owner_of(slot.get());
    CHECK(found && std::string(found->name) == "wide slots" && found->statistics.live_objects == 1);
    int local = 0;
    CHECK(!allot::owner_of(&local));
    CHECK(allot::report_text().find("found") != std::string::npos);
    CHECK(allot::report_json().find("\"wide slots\"") != std::string::npos);
}

namespace {

template <template <class> class Pointer>
struct node {
    int number = 0;
    Pointer<node> next; /* null, until a pointer with its deleter is assigned */
};

} // namespace

CLAIM(pointers_are_members_that_begin_with_null)
{
    allot::arena arena;
    allot::arena_ptr<node<allot::arena_ptr>> first = nullptr;
    for (int number = 0; number < 3; ++number) {
        auto next = std::move(first);
        first = arena.make_unique<node<allot::arena_ptr>>();
        first->number = number;
        first->next = std::move(next);
    }
    CHECK(first->next->next->number == 0 && first->next->next->next == nullptr);
    allot::reap reap;
    allot::reap_ptr<node<allot::reap_ptr>> in_reap;
    in_reap = reap.make_unique<node<allot::reap_ptr>>();
    allot::free_list<int> list;
    allot::free_list_ptr<int> of_list;
    of_list = list.make_unique(1);
    allot::local_pool_ptr<int> in_pool;
    CHECK(in_reap->next == nullptr && *of_list == 1 && in_pool == nullptr);
    allot::free_list_ptr<int> taken = std::move(of_list);
    taken.reset();
    in_reap.reset();
    CHECK(list.live() == 0 && reap.statistics().live_objects == 0);
}

CLAIM(a_pointer_becomes_one_to_const_but_not_one_to_a_base)
{
    allot::arena arena;
    allot::arena_ptr<const std::string> text = arena.make_unique<std::string>("a text that is too long for a small string");
    allot::pool_ptr<const int> number = allot::make_pooled<int>(1);
    number = allot::make_pooled<int>(2);
    CHECK(text->size() == 42 && *number == 2);
    struct base {};
    struct derived : base {};
    static_assert(!std::is_convertible<allot::pool_ptr<derived>, allot::pool_ptr<base>>::value, "its size would be lost");
    static_assert(!std::is_convertible<allot::pool_ptr<const int>, allot::pool_ptr<int>>::value, "const stays");
}
