/* Classes whose objects live in pools: see allotment.hpp. */
#ifndef ALLOTMENT_POOLED_HPP
#define ALLOTMENT_POOLED_HPP

#include "refs.hpp"

#include <new>
#include <utility>

namespace allot {

/* `new` allocates objects of a class that derives from this one from the calling thread's current
 * pool, or from malloc outside of any pool. `delete` finds the owner by the address, on any thread,
 * before or after the pool is destroyed:
 *
 *     class request : public allot::pooled { ... };
 *
 * Objects have no header unless they are aligned to more than 16. Like any class, it needs a
 * virtual destructor to be deleted through a pointer to a base class. There is no `new
 * (std::nothrow)`; use try_new(). */
class pooled {
public:
    static void *operator new(std::size_t size) { return current_ref().allocate(size, usual); }
    static void *operator new[](std::size_t size) { return current_ref().allocate(size, usual); }
    static void *operator new(std::size_t size, std::align_val_t align)
    {
        return detail::checked(allot_try_aligned_alloc(static_cast<std::size_t>(align), size));
    }
    static void *operator new[](std::size_t size, std::align_val_t align)
    {
        return detail::checked(allot_try_aligned_alloc(static_cast<std::size_t>(align), size));
    }
    static void *operator new(std::size_t, void *place) noexcept { return place; }
    static void *operator new[](std::size_t, void *place) noexcept { return place; }

    /* Deleted: if the constructor threw, the matching delete would have to free memory of unknown
     * size. */
    static void *operator new(std::size_t, const std::nothrow_t &) = delete;
    static void *operator new[](std::size_t, const std::nothrow_t &) = delete;

    static void operator delete(void *object, std::size_t size) noexcept { allot_free_sized(object, size, usual); }
    static void operator delete[](void *first, std::size_t size) noexcept { allot_free_sized(first, size, usual); }
    /* If a constructor throws, C++ passes no size for over-aligned objects, so these blocks store
     * their size. */
    static void operator delete(void *object, std::align_val_t) noexcept { allot_free(object); }
    static void operator delete[](void *first, std::align_val_t) noexcept { allot_free(first); }
    static void operator delete(void *, void *) noexcept {}
    static void operator delete[](void *, void *) noexcept {}

    /* No member is protected: `new request{...}` would then not compile for a class without
     * constructors. */

private:
    static constexpr std::size_t usual = __STDCPP_DEFAULT_NEW_ALIGNMENT__;
};

/* `new T(arguments...)` for a class that derives from pooled. Without memory, returns null;
 * allot_last_error() has the reason. */
template <class T, class... Arguments>
T *try_new(Arguments &&...arguments)
{
    static_assert(std::is_base_of<pooled, T>::value, "T must derive from allot::pooled");
    constexpr std::size_t usual = __STDCPP_DEFAULT_NEW_ALIGNMENT__;
    constexpr bool aligned = alignof(T) > usual;
    void *place = aligned ? allot_try_aligned_alloc(alignof(T), sizeof(T)) : current_ref().try_allocate(sizeof(T), usual);
    if (place == nullptr) {
        return nullptr;
    }
    struct freer {
        void deallocate(void *block, std::size_t size, std::size_t) const noexcept
        {
            aligned ? allot_free(block) : allot_free_sized(block, size, usual);
        }
    };
    return detail::construct<T>(place, freer(), std::forward<Arguments>(arguments)...);
}

} // namespace allot

#endif
