/* The classes of the pattern Thread-local Memory Pool, used as it describes them. */
#include "check.hpp"

#include <allotment.hpp>

#include <sys/types.h>

#include <cstring>
#include <sstream>
#include <string>
#include <thread>
#include <unordered_set>
#include <vector>

namespace {

using allot::Allocator;
using allot::Storage;
using allot::String;

/* A user's own, by the pattern's text: it overrides the hook and Free. */
class CountingAllocator : public Allocator {
public:
    explicit CountingAllocator(long allocatorid) : Allocator(allocatorid) {}
    void Free(void *vp) override
    {
        live -= vp != nullptr ? 1 : 0;
        ::free(vp);
    }
    int live = 0;
    size_t last = 0;
    bool refuses = false;

protected:
    void *Alloc(u_long allocSize) override
    {
        last = allocSize;
        if (refuses) {
            return nullptr;
        }
        live += 1;
        return ::malloc(allocSize);
    }
};

struct message : allot::pooled {
    int number = 1;
};

} // namespace

CLAIM(without_a_scope_the_current_allocator_is_the_global_one)
{
    CHECK(Allocator::Current() == Allocator::Global() && Storage::Current() == Storage::Global());
    CHECK(Allocator::Global()->GetAllocatorId() == 0);
    void *block = Allocator::Global()->Malloc(100);
    std::memset(block, 1, 100);
    Allocator::Global()->Free(block);
    Allocator::Global()->Free(nullptr);
}

CLAIM(calloc_zeroes_by_way_of_the_hook_and_notices_overflow)
{
    CountingAllocator counting(7);
    CHECK(counting.GetAllocatorId() == 7);
    auto *numbers = static_cast<int *>(counting.Calloc(100, sizeof(int)));
    CHECK(counting.last == 400 && numbers[0] == 0 && numbers[99] == 0);
    counting.Free(numbers);
    CHECK(counting.Calloc(static_cast<size_t>(-1), 2) == nullptr);
    void *empty = counting.Calloc(0, 8);
    CHECK(empty != nullptr);
    counting.Free(empty);
    counting.refuses = true;
    CHECK(counting.Calloc(1, 1) == nullptr && counting.Malloc(1) == nullptr);
    CHECK(counting.live == 0);
}

CLAIM(the_allocator_of_the_innermost_scope_is_current)
{
    CountingAllocator counting(1);
    allot::PoolAllocator pooled(2);
    allot::pool pool;
    {
        Storage::Scope outer(counting);
        CHECK(Storage::Current() == &counting);
        {
            Storage::Scope inner(pooled);
            CHECK(Allocator::Current() == &pooled && allot::current() == pooled.Reference());
            {
                Storage::Scope innermost(*Storage::Global());
                CHECK(Storage::Current() == Storage::Global());
            }
            CHECK(Storage::Current() == &pooled);
        }
        CHECK(Storage::Current() == &counting && allot::current() == allot::global());
        {
            /* A pool that was entered otherwise is the innermost one as well. */
            allot::pool_scope entered(pool);
            CHECK(Storage::Current() != &counting && Storage::Current() != Storage::Global());
            void *block = Storage::Current()->Malloc(10);
            CHECK(allot_pool_any_holds(block));
            Storage::Current()->Free(block);
        }
        CHECK(Storage::Current() == &counting);
    }
    CHECK(Storage::Current() == Storage::Global());
}

CLAIM(current_is_the_thread_s_own)
{
    CountingAllocator counting(1);
    Storage::Scope scope(counting);
    std::thread([] { CHECK(Storage::Current() == Storage::Global()); }).join();
    CHECK(Storage::Current() == &counting);
}

CLAIM(a_pool_allocator_takes_from_its_pool_and_any_thread_frees)
{
    allot::PoolAllocator pooled(1);
    void *block = pooled.Malloc(100);
    CHECK(allot_pool_any_holds(block));
    void *elsewhere = nullptr;
    std::thread([&] {
        pooled.Free(block);
        elsewhere = pooled.Malloc(10);
        CHECK(!allot_pool_any_holds(elsewhere));
    }).join();
    pooled.Free(elsewhere);

    allot::pool pool;
    allot::PoolAllocator of_pool(2, pool);
    void *zeroed = of_pool.Calloc(10, 10);
    CHECK(pool.statistics().live_objects == 1 && static_cast<char *>(zeroed)[99] == 0);
    of_pool.Free(zeroed);
    CHECK(pool.statistics().live_objects == 0);
}

CLAIM(new_takes_from_the_pool_allocator_that_is_current)
{
    allot::pool pool;
    allot::PoolAllocator pooled(1, pool);
    message *made = nullptr;
    {
        Storage::Scope scope(pooled);
        made = new message;
        CHECK(pool.statistics().live_objects == 1);
    }
    std::thread([made] { delete made; }).join();
    CHECK(pool.statistics().live_objects == 0);
}

CLAIM(a_string_lives_in_the_current_allocator_or_in_the_one_that_is_named)
{
    CountingAllocator counting(1);
    CountingAllocator other(2);
    {
        Storage::Scope scope(counting);
        String text;
        CHECK(text.GetAllocator() == &counting && text.empty() && std::strcmp(text.c_str(), "") == 0);
        text = "transient";
        CHECK(counting.live == 1 && text == "transient" && text.size() == 9);
        String named("shared", &other);
        CHECK(other.live == 1 && named.GetAllocator() == &other);
        String copy(named);
        CHECK(copy.GetAllocator() == &counting && copy == named);
        String copied_there(text, &other);
        CHECK(other.live == 2 && copied_there == text);
    }
    CHECK(counting.live == 0 && other.live == 0);
    CHECK(String().GetAllocator() == Storage::Global());
    CHECK(String(static_cast<Allocator *>(nullptr)).GetAllocator() == Storage::Global());
}

CLAIM(strings_move_within_an_allocator_and_are_copied_between_two)
{
    CountingAllocator one(1);
    CountingAllocator two(2);
    {
        String first("first", &one);
        const char *buffer = first.c_str();
        String moved(std::move(first));
        CHECK(moved.c_str() == buffer && moved.GetAllocator() == &one && first.empty());
        String same(&one);
        same = std::move(moved);
        CHECK(same.c_str() == buffer);
        String elsewhere(&two);
        elsewhere = std::move(same);
        CHECK(elsewhere == "first" && elsewhere.GetAllocator() == &two && elsewhere.c_str() != buffer);
        String &itself = elsewhere;
        elsewhere = itself;
        elsewhere = std::move(itself);
        CHECK(elsewhere == "first");
        elsewhere = same = "other";
        CHECK(elsewhere == "other" && elsewhere.GetAllocator() == &two && same.GetAllocator() == &one);
    }
    CHECK(one.live == 0 && two.live == 0);
}

CLAIM(strings_grow_also_by_parts_of_themselves)
{
    CountingAllocator counting(1);
    {
        String text("ab", &counting);
        std::string expected("ab");
        for (int round = 0; round < 12; ++round) {
            text.append(text.view());
            text += 'x';
            expected += std::string(expected);
            expected += 'x';
            CHECK(text == expected.c_str() && text.c_str()[text.size()] == '\0');
        }
        text.assign(text.view().substr(100, 1000));
        expected = expected.substr(100, 1000);
        CHECK(text == expected.c_str());
        text.assign(text.view().substr(1));
        CHECK(text.size() == 999);
        text[0] = '!';
        CHECK(text.c_str()[0] == '!');
        text.clear();
        CHECK(text.empty() && text == "");
        text.reserve(10000);
        CHECK(text.capacity() >= 10000);
        counting.refuses = true;
        text += "stays";
        THROWS(std::bad_alloc, text.reserve(100000));
        THROWS(std::bad_alloc, text.reserve(static_cast<size_t>(-1)));
        CHECK(text == "stays");
        std::ostringstream out;
        out << text;
        CHECK(out.str() == "stays");
    }
    CHECK(counting.live == 0);
}

CLAIM(strings_are_keys)
{
    std::unordered_set<String> set;
    set.emplace("one");
    set.emplace("two");
    set.emplace("one");
    CHECK(set.size() == 2 && set.count(String("two")) == 1);
    CHECK(String("a") < String("b") && String("a") != String("b") && String("a") == std::string_view("a"));
}

CLAIM(a_string_of_a_pool_may_be_changed_and_ended_by_another_thread)
{
    allot::PoolAllocator pooled(1);
    String text("a", &pooled);
    std::thread([&] {
        for (int round = 0; round < 1000; ++round) {
            text += "more";
        }
    }).join();
    CHECK(text.size() == 4001);
}

CLAIM(an_arena_allocator_frees_everything_at_once)
{
    allot::ArenaAllocator in_arena(3);
    {
        Storage::Scope scope(in_arena);
        std::vector<String> strings;
        for (int number = 0; number < 100; ++number) {
            strings.emplace_back(std::to_string(number).c_str());
        }
        CHECK(strings[99] == "99" && in_arena.Arena().statistics().live_objects == 100);
    }
    in_arena.Arena().reset();
    CHECK(in_arena.Arena().statistics().live_objects == 0);
}

CLAIM(an_empty_string_ends_where_it_begins)
{
    String empty;
    CHECK(empty[0] == '\0' && empty.c_str()[0] == '\0');
    const String constant;
    CHECK(constant[0] == '\0');
}

CLAIM(strings_are_compared_with_other_texts_on_either_side)
{
    const String text("text");
    const std::string same("text");
    CHECK(text == "text" && "text" == text && text == same && same == text && text == std::string_view(same));
    CHECK(text != "other" && "other" != text && text != same.substr(1) && same.substr(1) != text);
}
