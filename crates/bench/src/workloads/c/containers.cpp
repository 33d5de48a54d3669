// Standard containers over memory resources: ours, from allotment.hpp, and those of the C++
// library. Containers call all of them through their virtual functions.
//
// All functions are noexcept: an exception must not unwind into Rust, and a benchmark has no plan
// for exhausted memory.

#include <allotment.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <memory_resource>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace {

// Numbered as in `containers.rs`.
enum class kind : std::uint32_t {
    arena = 0,
    pool = 1,
    slab = 2,
    monotonic = 3,
    unsynchronized_pool = 4,
    synchronized_pool = 5,
    new_delete = 6,
};

// The state that all threads share.
struct shared {
    explicit shared(kind which) : which(which)
    {
        if (which == kind::slab) {
            slab.emplace();
        } else if (which == kind::synchronized_pool) {
            synchronized.emplace();
        }
    }

    kind which;
    std::optional<allot::slab_resource> slab;
    std::optional<std::pmr::synchronized_pool_resource> synchronized;
};

// A thread's own state: pools live as long as the thread, arenas and buffers as long as a task.
class state {
public:
    explicit state(shared& all) : all_(all)
    {
        if (all.which == kind::pool) {
            pool_.emplace();
            pool_resource_.emplace(allot::local_pool_ref(pool_->get()));
        } else if (all.which == kind::unsynchronized_pool) {
            unsynchronized_.emplace();
        }
    }

    std::pmr::memory_resource* begin()
    {
        switch (all_.which) {
        case kind::arena:
            arena_.emplace();
            return &arena_resource_.emplace(allot::arena_ref(arena_->get()));
        case kind::pool:
            return &*pool_resource_;
        case kind::slab:
            return &*all_.slab;
        case kind::monotonic:
            return &monotonic_.emplace();
        case kind::unsynchronized_pool:
            return &*unsynchronized_;
        case kind::synchronized_pool:
            return &*all_.synchronized;
        case kind::new_delete:
            break;
        }
        return std::pmr::new_delete_resource();
    }

    void end()
    {
        arena_resource_.reset();
        arena_.reset();
        monotonic_.reset();
    }

private:
    shared& all_;
    std::optional<allot::arena> arena_;
    std::optional<allot::arena_resource> arena_resource_;
    std::optional<allot::pool> pool_;
    std::optional<allot::pool_resource> pool_resource_;
    std::optional<std::pmr::monotonic_buffer_resource> monotonic_;
    std::optional<std::pmr::unsynchronized_pool_resource> unsynchronized_;
};

// Numbers that look random (splitmix64).
class numbers {
public:
    explicit numbers(std::uint64_t seed) : state_(seed) {}

    std::uint64_t next()
    {
        std::uint64_t z = (state_ += 0x9E3779B97F4A7C15u);
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
        return z ^ (z >> 31);
    }

    std::uint32_t below(std::uint32_t bound)
    {
        return static_cast<std::uint32_t>(((next() & 0xFFFFFFFFu) * bound) >> 32);
    }

private:
    std::uint64_t state_;
};

constexpr std::size_t VECTORS = 500;
constexpr std::uint32_t LONGEST = 48;

// One task of `pmr-vector`: vectors that grow by one element at a time, all of them live together.
// Then the numbers of all vectors are added up. Returns the number of elements.
[[gnu::noinline]] std::uint64_t vectors(std::pmr::memory_resource* memory, std::uint64_t task, std::uint64_t& sum)
{
    numbers drawn(task);
    std::uint64_t elements = 0;
    std::pmr::vector<std::pmr::vector<std::uint64_t>> all(memory);
    all.reserve(VECTORS);
    for (std::size_t index = 0; index < VECTORS; index++) {
        std::pmr::vector<std::uint64_t>& one = all.emplace_back();
        for (std::uint32_t length = drawn.below(LONGEST) + 1; length > 0; length--) {
            one.push_back(elements++);
        }
    }
    for (const auto& one : all) {
        for (std::uint64_t element : one) {
            sum += element;
        }
    }
    return elements;
}

constexpr std::size_t MAPS = 100;
constexpr std::uint32_t MOST_KEYS = 16;

// One task of `pmr-map`: small ordered maps of strings, such as the headers of a request or the
// fields of a record. A part of the keys is looked up, replaced and erased. Returns the number of
// inserted keys.
[[gnu::noinline]] std::uint64_t maps(std::pmr::memory_resource* memory, std::uint64_t task, std::uint64_t& sum)
{
    // Longer than the strings that need no allocation.
    static constexpr std::string_view VALUE = "text/html,application/xhtml+xml,application/xml;q=0.9";
    numbers drawn(task);
    std::uint64_t keys = 0;
    std::pmr::vector<std::pmr::map<std::uint32_t, std::pmr::string>> all(memory);
    all.reserve(MAPS);
    for (std::size_t index = 0; index < MAPS; index++) {
        auto& one = all.emplace_back();
        for (std::uint32_t count = drawn.below(MOST_KEYS) + 1; count > 0; count--) {
            one.try_emplace(drawn.below(1000), VALUE.substr(0, 20 + drawn.below(30)));
            keys++;
        }
        const auto found = one.lower_bound(500);
        if (found != one.end()) {
            sum += found->second.size();
            one.erase(found);
        }
    }
    for (const auto& one : all) {
        for (const auto& [key, value] : one) {
            sum += key + value.size();
        }
    }
    return keys;
}

}  // namespace

extern "C" {

void* workloads_pmr_shared(std::uint32_t which) noexcept { return new shared(static_cast<kind>(which)); }

void workloads_pmr_end(void* all) noexcept { delete static_cast<shared*>(all); }

void* workloads_pmr_sit(void* all) noexcept { return new state(*static_cast<shared*>(all)); }

void workloads_pmr_leave(void* own) noexcept { delete static_cast<state*>(own); }

// Does one task, adds its results to `sum`, and returns its number of operations.
std::uint64_t workloads_pmr_task(void* own, std::uint32_t maps_or_vectors, std::uint64_t task, std::uint64_t* sum) noexcept
{
    state& place = *static_cast<state*>(own);
    std::pmr::memory_resource* memory = place.begin();
    const std::uint64_t operations = maps_or_vectors != 0 ? maps(memory, task, *sum) : vectors(memory, task, *sum);
    place.end();
    return operations;
}

}
