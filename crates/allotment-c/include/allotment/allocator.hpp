/* Standard allocators: see allotment.hpp. */
#ifndef ALLOTMENT_ALLOCATOR_HPP
#define ALLOTMENT_ALLOCATOR_HPP

#include "owners.hpp"
#include "shared_slabs.hpp"

#include <type_traits>

namespace allot {

/* A standard allocator that allocates through a ref, without a virtual call. */
template <class T, class Ref>
class basic_allocator {
public:
    using value_type = T;
    using is_always_equal = std::is_empty<Ref>;
    using propagate_on_container_move_assignment = std::true_type;
    using propagate_on_container_swap = std::true_type;

    template <class R = Ref, class = std::enable_if_t<std::is_default_constructible<R>::value>>
    basic_allocator() noexcept
    {
    }
    basic_allocator(const Ref &ref) noexcept : ref_(ref) {}
    template <class From, class = std::enable_if_t<std::is_convertible<const From &, Ref>::value>>
    basic_allocator(const From &from) noexcept : ref_(from)
    {
    }
    template <class U>
    basic_allocator(const basic_allocator<U, Ref> &other) noexcept : ref_(other.ref())
    {
    }

    T *allocate(std::size_t count)
    {
        return static_cast<T *>(ref_.allocate(detail::array_bytes<T>(count), alignof(T)));
    }
    void deallocate(T *first, std::size_t count) noexcept { ref_.deallocate(first, count * sizeof(T), alignof(T)); }
    const Ref &ref() const noexcept { return ref_; }

private:
    Ref ref_;
};

template <class T, class U, class Ref>
bool operator==(const basic_allocator<T, Ref> &one, const basic_allocator<U, Ref> &other) noexcept
{
    return one.ref() == other.ref();
}

template <class T, class U, class Ref>
bool operator!=(const basic_allocator<T, Ref> &one, const basic_allocator<U, Ref> &other) noexcept
{
    return !(one == other);
}

template <class T>
using arena_allocator = basic_allocator<T, arena_ref>;
template <class T>
using reap_allocator = basic_allocator<T, reap_ref>;
/* Only the pool's own thread may use it. */
template <class T>
using local_pool_allocator = basic_allocator<T, local_pool_ref>;
/* Refers to the pool that was current when it was created. Valid on any thread, also after the pool
 * is destroyed. */
template <class T>
using pool_allocator = basic_allocator<T, pool_ref>;
/* Stores nothing: allocates from the pool that is current at the time of the call. */
template <class T>
using current_allocator = basic_allocator<T, current_ref>;

/* Allocates single objects from the process's slab for their size, on any thread. For lists, maps
 * and sets. Arrays, and objects of more than 32 KiB, come from operator new. */
template <class T>
class slab_allocator {
public:
    using value_type = T;
    using is_always_equal = std::true_type;

    slab_allocator() noexcept = default;
    template <class U>
    slab_allocator(const slab_allocator<U> &) noexcept
    {
    }

    T *allocate(std::size_t count)
    {
        if (has_slab && count == 1) {
            return static_cast<T *>(detail::shared_slabs::allocate(place));
        }
        return static_cast<T *>(::operator new(detail::array_bytes<T>(count), std::align_val_t(alignof(T))));
    }
    void deallocate(T *first, std::size_t count) noexcept
    {
        if (has_slab && count == 1) {
            detail::shared_slabs::deallocate(place, first);
        } else {
            ::operator delete(first, std::align_val_t(alignof(T)));
        }
    }

private:
    static constexpr std::size_t place = detail::slab_classes::of(sizeof(T), alignof(T));
    static constexpr bool has_slab = place < detail::slab_classes::count;
};

template <class T, class U>
bool operator==(slab_allocator<T>, slab_allocator<U>) noexcept
{
    return true;
}

template <class T, class U>
bool operator!=(slab_allocator<T>, slab_allocator<U>) noexcept
{
    return false;
}

} // namespace allot

#endif
