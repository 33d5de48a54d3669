/* Sources, budgets, options, statistics and the report: see allotment.hpp. */
#ifndef ALLOTMENT_OPTIONS_HPP
#define ALLOTMENT_OPTIONS_HPP

#include "error.hpp"

#include <cstdint>
#include <cstring>
#include <memory>
#include <memory_resource>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

namespace allot {

using statistics = allot_statistics;

namespace detail {

/* Destroys any object of the C interface. */
struct destroy {
    void operator()(allot_arena *arena) const noexcept { allot_arena_destroy(arena); }
    void operator()(allot_free_list *list) const noexcept { allot_free_list_destroy(list); }
    void operator()(allot_slab *slab) const noexcept { allot_slab_destroy(slab); }
    void operator()(allot_slab_handle *handle) const noexcept { allot_slab_handle_destroy(handle); }
    void operator()(allot_reap *reap) const noexcept { allot_reap_destroy(reap); }
    void operator()(allot_pool *pool) const noexcept { allot_pool_destroy(pool); }
    void operator()(allot_sealed *sealed) const noexcept { allot_sealed_destroy(sealed); }
    void operator()(allot_source *source) const noexcept { allot_source_destroy(source); }
    void operator()(allot_budget *budget) const noexcept { allot_budget_destroy(budget); }
};

template <class Raw>
using handle = std::unique_ptr<Raw, destroy>;

/* Returns `other` if it is of the same final class, otherwise null. Compares the pointers to the
 * virtual tables: dynamic_cast needs run-time type information of both objects, and resources from
 * units that were compiled without it have none. */
template <class Resource>
inline const Resource *as_same(const Resource &one, const std::pmr::memory_resource &other) noexcept
{
    static_assert(std::is_final<Resource>::value && !std::is_empty<Resource>::value, "a final class with virtual functions");
    const void *table_of_one = nullptr;
    const void *table_of_other = nullptr;
    std::memcpy(&table_of_one, static_cast<const void *>(&one), sizeof table_of_one);
    std::memcpy(&table_of_other, static_cast<const void *>(&other), sizeof table_of_other);
    return table_of_one == table_of_other ? static_cast<const Resource *>(&other) : nullptr;
}

} // namespace detail

/* A hard limit on the bytes that allocators hold. An allocator that was created with it keeps
 * it. */
class budget {
public:
    explicit budget(std::size_t limit) : budget_(detail::checked(allot_budget_try_create(limit))) {}
    /* A limit inside this one. */
    budget child(std::size_t limit) const { return budget(handle(detail::checked(allot_budget_try_child(get(), limit)))); }
    std::size_t limit() const noexcept { return allot_budget_limit(get()); }
    std::size_t used() const noexcept { return allot_budget_used(get()); }
    allot_budget *get() const noexcept { return budget_.get(); }

private:
    using handle = detail::handle<allot_budget>;
    explicit budget(handle made) noexcept : budget_(std::move(made)) {} /* a pointer: 0 would convert */
    handle budget_;
};

/* Where allocators get their memory. An allocator that was created with it keeps it. */
class source {
public:
    explicit source(allot_source *made) : source_(detail::checked(made)) {}
    static source mmap() { return source(allot_source_try_mmap()); }
    static source small_pages() { return source(allot_source_try_small_pages()); }
    static source huge_pages() { return source(allot_source_try_huge_pages()); }
    static source malloc() { return source(allot_source_try_malloc()); }
    /* A file in this directory, unlinked at once. */
    static source file_in(const char *directory) { return source(allot_source_try_file_in(directory)); }
    /* A new file that keeps its name. As long as its memory is in use, nothing else may write to it
     * or shorten it. */
    static source file(const char *path) { return source(allot_source_try_file(path)); }

    /* A memory resource as a source. It must outlive every allocator that is created with the
     * source, and must allow calls of any thread that uses such an allocator. If it throws, the
     * allocator's call fails with ALLOT_SOURCE_REFUSED. */
    static source of(std::pmr::memory_resource &upstream, const char *name = "upstream")
    {
        allot_source_calls calls{};
        calls.name = name;
        calls.acquire = [](void *context, std::size_t size, std::size_t align) noexcept -> void * {
#ifdef __cpp_exceptions
            try {
                return static_cast<std::pmr::memory_resource *>(context)->allocate(size, align);
            } catch (...) {
                return nullptr;
            }
#else
            return static_cast<std::pmr::memory_resource *>(context)->allocate(size, align);
#endif
        };
        calls.release = [](void *context, void *block, std::size_t size, std::size_t align) noexcept {
            static_cast<std::pmr::memory_resource *>(context)->deallocate(block, size, align);
        };
        return source(allot_source_try_create(&calls, &upstream));
    }

    allot_source *get() const noexcept { return source_.get(); }

private:
    detail::handle<allot_source> source_;
};

/* The options of all allocators. An option has its default value until it is set:
 *
 *     allot::arena arena(allot::options().name("query").hint(1 << 20));
 *
 * An option that the allocator does not support is an error. The name, the budget and the source
 * must stay valid until the allocator has been created. */
class options {
public:
    options &name(const char *text) noexcept { return options_.name = text, *this; }
    options &budget(const allot::budget &limit) noexcept { return options_.budget = limit.get(), *this; }
    options &source(const allot::source &from) noexcept { return options_.source = from.get(), *this; }
    options &release(allot_release_kind kind, std::uint64_t amount = 0) noexcept
    {
        options_.release.kind = kind;
        options_.release.amount = amount;
        return *this;
    }
    options &hardened(bool on = true) noexcept { return options_.hardened = on, *this; }
    options &report_live(bool on = true) noexcept { return options_.report_live = on, *this; }
    options &packing(bool on = true) noexcept { return options_.packing = on, *this; }
    options &hint(std::size_t bytes) noexcept { return options_.hint = bytes, *this; }
    options &retain(allot_retain_kind kind, std::size_t bytes = 0) noexcept
    {
        options_.retain.kind = kind;
        options_.retain.bytes = bytes;
        return *this;
    }
    options &objects_per_chunk(std::size_t objects) noexcept { return options_.objects_per_chunk = objects, *this; }
    options &max_page_bytes(std::size_t bytes) noexcept { return options_.max_page_bytes = bytes, *this; }
    options &max_cached_bytes(std::size_t bytes) noexcept { return options_.max_cached_bytes = bytes, *this; }
    options &reserved(std::size_t bytes) noexcept { return options_.reserved = bytes, *this; }
    options &initial(std::size_t bytes) noexcept { return options_.initial = bytes, *this; }
    options &increment(std::size_t bytes) noexcept { return options_.increment = bytes, *this; }
    options &maximum(std::size_t bytes) noexcept { return options_.maximum = bytes, *this; }

    const allot_options *get() const noexcept { return &options_; }

private:
    allot_options options_{};
};

/* The allocator that an address belongs to. */
struct owner {
    const char *kind;
    char name[ALLOT_MAX_NAME + 1];
    allot::statistics statistics;
};

/* Returns nullopt if the address belongs to no allocator, or if its owner cannot be found by
 * address. */
inline std::optional<owner> owner_of(const void *address)
{
    owner found{};
    if (allot_owner_of(address, &found.kind, found.name, &found.statistics)) {
        return found;
    }
    return std::nullopt;
}

namespace detail {

template <class Write>
std::string whole_report(Write write)
{
    std::string text;
    std::size_t length = write(nullptr, 0);
    while (length > text.size()) {
        /* The report grows if another thread creates an allocator between the calls. */
        text.resize(length);
        length = write(&text[0], text.size() + 1);
    }
    text.resize(length);
    return text;
}

} // namespace detail

/* The statistics of every living allocator that has a name. */
inline std::string report_text()
{
    return detail::whole_report(allot_report_text);
}

inline std::string report_json()
{
    return detail::whole_report(allot_report_json);
}

} // namespace allot

#endif
