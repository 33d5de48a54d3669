/* std::pmr::memory_resource for the allocators: see allotment.hpp. */
#ifndef ALLOTMENT_RESOURCE_HPP
#define ALLOTMENT_RESOURCE_HPP

#include "owners.hpp"

#include <memory_resource>

namespace allot {

/* A std::pmr::memory_resource that allocates through a ref. It owns no memory: the allocator that
 * the ref refers to and the resource itself must outlive the containers. Two resources compare
 * equal if their refs do. */
template <class Ref>
class basic_resource final : public std::pmr::memory_resource {
public:
    template <class R = Ref, class = std::enable_if_t<std::is_default_constructible<R>::value>>
    basic_resource() noexcept
    {
    }
    basic_resource(const Ref &ref) noexcept : ref_(ref) {}
    basic_resource(const basic_resource &) = delete;
    basic_resource &operator=(const basic_resource &) = delete;

    const Ref &ref() const noexcept { return ref_; }

private:
    void *do_allocate(std::size_t size, std::size_t align) override
    {
        /* A precondition of the standard. Stated, so that the compiler drops later checks. */
        if (align == 0 || (align & (align - 1)) != 0) {
            __builtin_unreachable();
        }
        return ref_.allocate(size, align);
    }

    void do_deallocate(void *block, std::size_t size, std::size_t align) override { ref_.deallocate(block, size, align); }

    bool do_is_equal(const std::pmr::memory_resource &other) const noexcept override
    {
        const basic_resource *same = detail::as_same(*this, other);
        return same != nullptr && same->ref_ == ref_;
    }

    Ref ref_;
};

/* Deallocation reclaims the bytes of the newest object and does nothing for any other. */
using arena_resource = basic_resource<arena_ref>;
using reap_resource = basic_resource<reap_ref>;
/* Only the pool's own thread may use it. */
using pool_resource = basic_resource<local_pool_ref>;
/* Any thread may use it, and the containers may outlive the pool: they then allocate from
 * malloc. */
using pool_ref_resource = basic_resource<pool_ref>;
/* Allocates from the pool that the calling thread has entered at the time of the call; frees by
 * address. */
using current_pool_resource = basic_resource<current_ref>;

/* A current_pool_resource that lasts as long as the process. */
inline std::pmr::memory_resource *current_pool() noexcept
{
    alignas(current_pool_resource) static unsigned char place[sizeof(current_pool_resource)];
    static std::pmr::memory_resource *resource = ::new (static_cast<void *>(place)) current_pool_resource();
    return resource;
}

} // namespace allot

#endif
