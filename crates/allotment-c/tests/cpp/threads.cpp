/* Objects that are created by one thread and destroyed by another. */
#include "check.hpp"

#include <allotment.hpp>

#include <atomic>
#include <list>
#include <map>
#include <memory>
#include <memory_resource>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace {

class base : public allot::pooled {
public:
    virtual ~base() = default;
    virtual int value() const = 0;
};

class derived final : public base {
public:
    explicit derived(int of) : value_(of) {}
    int value() const override { return value_ + filler_[0]; }

private:
    int value_;
    int filler_[30] = {};
};

class alignas(128) over_aligned : public allot::pooled {
public:
    ~over_aligned() { ended += 1; }
    static inline std::atomic<int> ended{0};
    char bytes[128] = {};
};

struct plain : allot::pooled {
    int number = 0;
};

} // namespace

CLAIM(pooled_objects_come_from_the_pool_and_die_on_any_thread)
{
    allot::pool pool;
    std::vector<std::unique_ptr<base>> objects;
    {
        allot::pool_scope scope(pool);
        for (int number = 0; number < 1000; ++number) {
            objects.push_back(std::make_unique<derived>(number));
        }
        CHECK(allot_pool_any_holds(objects.front().get()) && pool.statistics().live_objects == 1000);
    }
    std::thread([&] {
        for (int number = 0; number < 1000; ++number) {
            CHECK(objects[static_cast<std::size_t>(number)]->value() == number);
        }
        objects.clear();
    }).join();
    CHECK(pool.statistics().live_objects == 0);
}

CLAIM(pooled_objects_outlive_their_pool)
{
    std::unique_ptr<base> survivor;
    {
        allot::pool pool;
        allot::pool_scope scope(pool);
        survivor = std::make_unique<derived>(7);
    }
    CHECK(survivor->value() == 7);
    std::thread([object = std::move(survivor)]() mutable { object.reset(); }).join();
}

CLAIM(pooled_arrays_and_over_aligned_objects_end_anywhere)
{
    allot::pool pool;
    over_aligned *one = nullptr;
    over_aligned *many = nullptr;
    plain *trivial = nullptr;
    {
        allot::pool_scope scope(pool);
        one = new over_aligned;
        many = new over_aligned[10];
        trivial = new plain[10];
        CHECK(reinterpret_cast<std::uintptr_t>(one) % 128 == 0 && reinterpret_cast<std::uintptr_t>(many) % 128 == 0);
        CHECK(pool.statistics().live_objects == 3);
    }
    std::thread([=] {
        delete one;
        delete[] many;
        delete[] trivial;
        delete static_cast<plain *>(nullptr);
    }).join();
    CHECK(over_aligned::ended == 11 && pool.statistics().live_objects == 0);
}

CLAIM(pooled_objects_outside_of_pools_are_of_malloc)
{
    auto one = std::make_unique<derived>(1);
    CHECK(!allot_pool_any_holds(one.get()));
    alignas(plain) unsigned char place[sizeof(plain)];
    auto *placed = ::new (static_cast<void *>(place)) plain;
    auto *by_class = new (static_cast<void *>(place)) plain;
    CHECK(placed == by_class);
    plain *tried = allot::try_new<plain>();
    CHECK(tried != nullptr && tried->number == 0);
    delete tried;
}

CLAIM(containers_of_a_pool_go_on_with_malloc_elsewhere)
{
    std::vector<int, allot::pool_allocator<int>> numbers;
    {
        allot::pool pool;
        numbers = std::vector<int, allot::pool_allocator<int>>(100, 1, allot::pool_allocator<int>(pool));
        CHECK(allot_pool_any_holds(numbers.data()));
        std::thread([&] {
            numbers.resize(1000, 1);
            CHECK(!allot_pool_any_holds(numbers.data()));
        }).join();
        CHECK(pool.statistics().live_objects == 0);
        numbers.shrink_to_fit();
    }
    numbers.resize(2000, 1);
    CHECK(numbers[1999] == 1);
}

CLAIM(pool_pointers_travel)
{
    allot::pool pool;
    auto text = pool.make_unique<std::string>("a text that is too long for a small string");
    std::thread([moved = std::move(text)]() mutable {
        CHECK(moved->size() == 42);
        moved.reset();
    }).join();
    CHECK(pool.statistics().live_objects == 0);
}

CLAIM(slab_pointers_are_freed_by_other_threads_and_after_the_slab)
{
    std::vector<allot::slab_ptr<std::string>> survivors;
    {
        allot::slab<std::string> slab;
        std::vector<allot::slab_ptr<std::string>> made;
        for (int number = 0; number < 1000; ++number) {
            made.push_back(slab.make_unique(std::to_string(number)));
            survivors.push_back(slab.make_unique(std::to_string(number)));
        }
        std::thread([&] { made.clear(); }).join();
        CHECK(slab.statistics().live_objects == 1000);
    }
    CHECK(*survivors[999] == "999");
    survivors.clear();
}

CLAIM(a_slab_resource_serves_many_threads_at_once)
{
    allot::slab_resource memory;
    std::mutex lock;
    std::pmr::map<int, std::pmr::string> shared(&memory);
    std::vector<std::thread> threads;
    for (int thread = 0; thread < 4; ++thread) {
        threads.emplace_back([&, thread] {
            std::pmr::map<int, std::pmr::vector<int>> own(&memory);
            for (int round = 0; round < 2000; ++round) {
                own[round % 100].push_back(round);
                std::lock_guard<std::mutex> held(lock);
                const int key = round % 50;
                if (auto found = shared.find(key); found != shared.end() && round % 3 == thread % 3) {
                    shared.erase(found);
                } else {
                    shared[key] = "a text that is too long for a small string";
                }
            }
            for (const auto &[key, values] : own) {
                CHECK(values.size() == 20 && values[0] == key);
            }
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    for (const auto &[key, text] : shared) {
        CHECK(key < 50 && text.size() == 42);
    }
}

CLAIM(slab_allocators_hand_nodes_between_threads)
{
    using map = std::map<int, int, std::less<int>, allot::slab_allocator<std::pair<const int, int>>>;
    map numbers;
    for (int number = 0; number < 10000; ++number) {
        numbers.emplace(number, number);
    }
    std::thread([moved = std::move(numbers)]() mutable {
        moved.erase(moved.begin(), std::next(moved.begin(), 5000));
        moved.emplace(-1, -1);
        CHECK(moved.size() == 5001);
    }).join();
}

CLAIM(threads_that_end_last_may_still_free)
{
    /* By the destructor of a thread-local, which runs after those of the library may have. */
    struct holder {
        allot::slab_ptr<int> of_slab;
        allot::pool_ptr<int> of_pool;
        std::unique_ptr<derived> pooled;
    };
    allot::slab<int> slab;
    std::thread([&] {
        thread_local holder held;
        allot::pool pool;
        allot::pool_scope scope(pool);
        held.of_slab = slab.make_unique(1);
        held.of_pool = pool.make_unique<int>(2);
        held.pooled = std::make_unique<derived>(3);
    }).join();
    CHECK(slab.statistics().live_objects == 0);
}

CLAIM(containers_of_slabs_may_end_after_the_thread_s_handles)
{
    using list = std::list<int, allot::slab_allocator<int>>;
    std::thread([] {
        thread_local list before; /* made before the thread's first handle, so it ends after that */
        before.push_back(1);
        struct late {
            list numbers;
            ~late()
            {
                numbers.push_back(2);
                CHECK(numbers.size() == 3);
            }
        };
        before.push_back(2);
        thread_local late too;
        too.numbers = before;
    }).join();
    std::thread([] {
        /* A thread that frees before it ever allocates. */
        auto *made = new list{1, 2, 3};
        std::thread([made] { delete made; }).join();
    }).join();
}

CLAIM(an_arena_may_go_to_another_thread_that_adopts_it)
{
    allot::arena arena(allot::options().hardened());
    arena.make<int>(1);
    std::thread([moved = std::move(arena)]() mutable {
        moved.adopt();
        CHECK(*moved.make<int>(2) == 2 && moved.statistics().live_objects == 2);
    }).join();
}

CLAIM(a_monotonic_buffer_goes_from_thread_to_thread_as_the_standard_s_does)
{
    auto memory = std::make_unique<allot::monotonic_buffer_resource>();
    (void)memory->allocate(100000);
    std::thread([&] {
        (void)memory->allocate(1000000);
        memory->release();
        (void)memory->allocate(1000000);
    }).join();
    (void)memory->allocate(1000000);
    std::thread([&] { memory.reset(); }).join();
}

CLAIM(pooled_objects_without_constructors_are_made_with_braces)
{
    auto *one = new plain{};
    auto *other = new plain{{}, 5};
    const plain local{};
    CHECK(one->number == 0 && other->number == 5 && local.number == 0);
    delete one;
    delete other;
}
