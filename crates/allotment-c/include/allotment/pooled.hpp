/* Classes whose objects live in pools: see allotment.hpp. */
#ifndef ALLOTMENT_POOLED_HPP
#define ALLOTMENT_POOLED_HPP

#include "refs.hpp"

#include <new>
#include <utility>

namespace allot {

/* A class that derives from this is allocated by `new` from the pool that the thread is in, or from malloc where it is in
 * none. `delete` finds the owner by the address, on any thread, before or after the pool's end:
 *
 *     class request : public allot::pooled { ... };
 *
 * Nothing is stored beside the object, unless it is aligned to more than 16. To be deleted as one of its base classes it needs a virtual destructor, as any class
 * does. There is no `new (std::nothrow)`: see try_new(). */
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

    /* If the constructor threw, its counterpart would have to free the memory without knowing its size. */
    static void *operator new(std::size_t, const std::nothrow_t &) = delete;
    static void *operator new[](std::size_t, const std::nothrow_t &) = delete;

    static void operator delete(void *object, std::size_t size) noexcept { allot_free_sized(object, size, usual); }
    static void operator delete[](void *first, std::size_t size) noexcept { allot_free_sized(first, size, usual); }
    /* If a constructor throws, C++ knows no size where the alignment is larger than usual: such blocks know theirs. */
    static void operator delete(void *object, std::align_val_t) noexcept { allot_free(object); }
    static void operator delete[](void *first, std::align_val_t) noexcept { allot_free(first); }
    static void operator delete(void *, void *) noexcept {}
    static void operator delete[](void *, void *) noexcept {}

    /* Nothing is protected, or `new request{...}` would not compile for a class without constructors. */

private:
    static constexpr std::size_t usual = __STDCPP_DEFAULT_NEW_ALIGNMENT__;
};

/* `new T(arguments...)` for such a class, or null with the reason in allot_last_error() where there is no memory. */
template <class T, class... Arguments>
T *try_new(Arguments &&...arguments)
{
    static_assert(std::is_base_of<pooled, T>::value, "T has to derive from allot::pooled");
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
