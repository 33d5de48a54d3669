/* std::pmr::memory_resource for the allocators: see allotment.hpp. */
#ifndef ALLOTMENT_RESOURCE_HPP
#define ALLOTMENT_RESOURCE_HPP

#include "owners.hpp"

#include <memory_resource>

namespace allot {

/* The memory of a ref for the containers of std::pmr. It owns nothing: what the ref stands for has to outlive the containers,
 * and so has the resource. Two are equal where their refs are. */
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
        /* The standard's precondition; said so that it isn't checked again. */
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

/* Deallocating gives the last object's bytes back, and does nothing with any other. */
using arena_resource = basic_resource<arena_ref>;
using reap_resource = basic_resource<reap_ref>;
/* For the pool's own thread. */
using pool_resource = basic_resource<local_pool_ref>;
/* For any thread, and for containers that outlive the pool: they go on with malloc. */
using pool_ref_resource = basic_resource<pool_ref>;
/* Allocates from the pool that the calling thread is in at that moment, and frees by address. */
using current_pool_resource = basic_resource<current_ref>;

/* One for everybody, which lasts as long as the process. */
inline std::pmr::memory_resource *current_pool() noexcept
{
    alignas(current_pool_resource) static unsigned char place[sizeof(current_pool_resource)];
    static std::pmr::memory_resource *resource = ::new (static_cast<void *>(place)) current_pool_resource();
    return resource;
}

} // namespace allot

#endif
