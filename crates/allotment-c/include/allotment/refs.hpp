/* References to allocators: see allotment.hpp.
 *
 * A ref is no larger than a pointer and can be copied. It determines where to allocate and how to
 * free. Unless stated otherwise, the allocator that it refers to must outlive the objects that are
 * created through it. Memory resources, standard allocators and deleters are built from refs:
 *
 *   ref             allocates from                   frees               used by
 *   arena_ref       an arena                         newest object only  the arena's thread
 *   reap_ref        a reap                           to the reap         the reap's thread
 *   local_pool_ref  a pool                           to the pool         the pool's thread
 *   pool_ref        a pool, on its own thread while  by address,         any thread
 *                   it lives; otherwise malloc       to the owner
 *   current_ref     the thread's current pool        by address,         any thread
 *                                                    to the owner
 */
#ifndef ALLOTMENT_REFS_HPP
#define ALLOTMENT_REFS_HPP

#include "options.hpp"

#include <cstddef>

namespace allot {

class arena;
class reap;
class pool;

namespace detail {

/* Whether freeing the object needs a call of the arena. An arena can reuse the bytes of an object
 * only if it is the newest in the window that the arena allocates from, or if it lies before that
 * window and the window is empty. Freeing any other object needs no call. A hardened arena has a
 * limit of 0 and must see every free. */
inline bool arena_heeds_free(const allot_arena *arena, const void *object, std::size_t size)
{
#ifdef ALLOT_OUT_OF_LINE
    (void)arena;
    (void)object;
    (void)size;
    return true;
#else
    const std::uint64_t offset = __atomic_load_n(arena->allot_word, __ATOMIC_RELAXED) >> 40;
    const char *end = static_cast<const char *>(object) + ((size + 7) & ~std::size_t{7});
    return end == arena->allot_base + offset || ALLOT_UNLIKELY(offset == 0 || arena->allot_limit == 0);
#endif
}

} // namespace detail

/* Frees every object through the arena, so that its statistics stay exact. */
class arena_freer {
public:
    explicit arena_freer(allot_arena *arena) noexcept : arena_(arena) {}
    void deallocate(void *object, std::size_t size, std::size_t align) const noexcept
    {
        allot_arena_free_sized(arena_, object, size, align);
    }

private:
    allot_arena *arena_;
};

class arena_ref {
public:
    explicit arena_ref(allot_arena *arena) noexcept : arena_(arena) {}
    arena_ref(const arena &arena) noexcept;

    void *try_allocate(std::size_t size, std::size_t align) const noexcept
    {
        return allot_arena_try_alloc_aligned(arena_, size, align);
    }
    void *allocate(std::size_t size, std::size_t align) const
    {
        void *object = allot_arena_alloc_inline(arena_, size, align);
        return ALLOT_UNLIKELY(object == nullptr) ? allocate_slowly(arena_, size, align) : object;
    }
    /* Reclaims the bytes of the newest object. Does nothing for any other; the statistics count it
     * as live. */
    void deallocate(void *object, std::size_t size, std::size_t align) const noexcept
    {
        if (ALLOT_UNLIKELY(detail::arena_heeds_free(arena_, object, size))) {
            allot_arena_free_sized(arena_, object, size, align);
        }
    }
    allot_arena *get() const noexcept { return arena_; }
    friend bool operator==(arena_ref one, arena_ref other) noexcept { return one.arena_ == other.arena_; }

    using freer = arena_freer;
    freer get_freer() const noexcept { return freer(arena_); }

private:
    /* A separate function, so that the inlined fast path needs no stack frame. */
    [[gnu::cold, gnu::noinline]] static void *allocate_slowly(allot_arena *arena, std::size_t size, std::size_t align)
    {
        return detail::checked(allot_arena_try_alloc_slowly(arena, size, align));
    }

    allot_arena *arena_;
};

class reap_ref {
public:
    explicit reap_ref(allot_reap *reap) noexcept : reap_(reap) {}
    reap_ref(const reap &reap) noexcept;

    void *try_allocate(std::size_t size, std::size_t align) const noexcept
    {
        return allot_reap_try_alloc(reap_, size, align);
    }
    void *allocate(std::size_t size, std::size_t align) const { return detail::checked(try_allocate(size, align)); }
    void deallocate(void *block, std::size_t size, std::size_t align) const noexcept
    {
        allot_reap_free_sized(reap_, block, size, align);
    }
    allot_reap *get() const noexcept { return reap_; }
    friend bool operator==(reap_ref one, reap_ref other) noexcept { return one.reap_ == other.reap_; }

    using freer = reap_ref;
    freer get_freer() const noexcept { return *this; }

private:
    allot_reap *reap_;
};

class local_pool_ref {
public:
    explicit local_pool_ref(allot_pool *pool) noexcept : pool_(pool) {}
    local_pool_ref(const pool &pool) noexcept;

    void *try_allocate(std::size_t size, std::size_t align) const noexcept
    {
        return allot_pool_try_alloc(pool_, size, align);
    }
    void *allocate(std::size_t size, std::size_t align) const { return detail::checked(try_allocate(size, align)); }
    void deallocate(void *block, std::size_t size, std::size_t align) const noexcept
    {
        allot_pool_free_sized(pool_, block, size, align);
    }
    allot_pool *get() const noexcept { return pool_; }
    friend bool operator==(local_pool_ref one, local_pool_ref other) noexcept { return one.pool_ == other.pool_; }

    using freer = local_pool_ref;
    freer get_freer() const noexcept { return *this; }

private:
    allot_pool *pool_;
};

/* Frees, by address, blocks of pools and of malloc that were allocated through a pool_ref or
 * current_ref. */
struct free_anywhere {
    void deallocate(void *block, std::size_t size, std::size_t align) const noexcept
    {
        allot_free_sized(block, size, align);
    }
};

/* May outlive its pool. Two refs compare equal if they refer to the same pool. Each frees what the
 * other allocated, equal or not. */
class pool_ref {
public:
    /* The calling thread's current pool, or the program's malloc. */
    pool_ref() noexcept : ref_(allot_current()) {}
    explicit pool_ref(allot_pool_ref ref) noexcept : ref_(ref) {}
    pool_ref(const pool &pool) noexcept;

    void *try_allocate(std::size_t size, std::size_t align) const noexcept
    {
        return allot_ref_try_alloc(ref_, size, align);
    }
    void *allocate(std::size_t size, std::size_t align) const { return detail::checked(try_allocate(size, align)); }
    void deallocate(void *block, std::size_t size, std::size_t align) const noexcept
    {
        allot_free_sized(block, size, align);
    }
    /* Whether allocation takes from a pool: on the pool's thread, while the pool exists. */
    bool is_usable() const noexcept { return allot_ref_is_usable(ref_); }
    allot_pool_ref get() const noexcept { return ref_; }
    friend bool operator==(pool_ref one, pool_ref other) noexcept { return one.ref_ == other.ref_; }
    friend bool operator!=(pool_ref one, pool_ref other) noexcept { return one.ref_ != other.ref_; }

    using freer = free_anywhere;
    freer get_freer() const noexcept { return freer(); }

private:
    allot_pool_ref ref_;
};

inline pool_ref current() noexcept
{
    return pool_ref(allot_current());
}

/* The program's malloc. */
inline pool_ref global() noexcept
{
    return pool_ref(allot_global());
}

class current_ref {
public:
    void *try_allocate(std::size_t size, std::size_t align) const noexcept
    {
        return allot_ref_try_alloc(allot_current(), size, align);
    }
    void *allocate(std::size_t size, std::size_t align) const { return detail::checked(try_allocate(size, align)); }
    void deallocate(void *block, std::size_t size, std::size_t align) const noexcept
    {
        allot_free_sized(block, size, align);
    }
    friend bool operator==(current_ref, current_ref) noexcept { return true; }

    using freer = free_anywhere;
    freer get_freer() const noexcept { return freer(); }
};

/* Frees a slot of any slab. */
struct free_slot {
    void deallocate(void *slot, std::size_t, std::size_t) const noexcept { allot_slab_free_anywhere(slot); }
};

class free_list_freer {
public:
    explicit free_list_freer(allot_free_list *list) noexcept : list_(list) {}
    void deallocate(void *object, std::size_t, std::size_t) const noexcept { allot_free_list_free(list_, object); }

private:
    allot_free_list *list_;
};

namespace detail {

template <class Freer>
Freer empty_freer() noexcept
{
    if constexpr (std::is_default_constructible<Freer>::value) {
        return Freer();
    } else {
        return Freer(nullptr);
    }
}

} // namespace detail

/* A deleter for unique_ptr: destroys the object and frees its memory through Freer. Adds no size if
 * Freer is an empty class. It needs the object's own type, because a unique_ptr to a base class
 * cannot know the size. For such pointers, derive the class from `pooled`. */
template <class T, class Freer>
class deleter : private Freer {
public:
    static_assert(!std::is_array<T>::value, "make a std::vector with an allocator of the same name instead");
    /* For a null pointer. Assigning another unique_ptr assigns that pointer's deleter too. */
    template <class F = Freer, class = std::enable_if_t<std::is_default_constructible<F>::value ||
                                                        std::is_constructible<F, std::nullptr_t>::value>>
    deleter() noexcept : Freer(detail::empty_freer<F>())
    {
    }
    explicit deleter(const Freer &by) noexcept : Freer(by) {}
    /* From a T to a const T. */
    template <class U, class = std::enable_if_t<std::is_same<std::remove_cv_t<U>, std::remove_cv_t<T>>::value &&
                                                std::is_convertible<U *, T *>::value>>
    deleter(const deleter<U, Freer> &other) noexcept : Freer(other.freer())
    {
    }
    const Freer &freer() const noexcept { return *this; }
    void operator()(T *object) const noexcept
    {
        object->~T();
        Freer::deallocate(const_cast<std::remove_cv_t<T> *>(object), sizeof(T), alignof(T));
    }
};

/* For memory of allot_malloc() and the other functions whose blocks allot_free() frees. */
struct free_deleter {
    void operator()(void *block) const noexcept { allot_free(block); }
};

template <class T>
using arena_ptr = std::unique_ptr<T, deleter<T, arena_freer>>;
template <class T>
using reap_ptr = std::unique_ptr<T, deleter<T, reap_ref>>;
template <class T>
using local_pool_ptr = std::unique_ptr<T, deleter<T, local_pool_ref>>;
/* Any thread may destroy it, also after its pool. As large as a plain pointer. */
template <class T>
using pool_ptr = std::unique_ptr<T, deleter<T, free_anywhere>>;
/* Any thread may destroy it, also after its slab. As large as a plain pointer. */
template <class T>
using slab_ptr = std::unique_ptr<T, deleter<T, free_slot>>;
template <class T>
using free_list_ptr = std::unique_ptr<T, deleter<T, free_list_freer>>;

namespace detail {

/* Constructs an object in fresh memory. Frees the memory if the constructor throws. */
template <class T, class Freer, class... Arguments>
T *construct(void *place, const Freer &by, Arguments &&...arguments)
{
    if constexpr (std::is_nothrow_constructible<T, Arguments &&...>::value) {
        (void)by;
        return ::new (place) T(std::forward<Arguments>(arguments)...);
    } else {
        struct guard {
            void *place;
            const Freer &by;
            ~guard()
            {
                if (place != nullptr) {
                    by.deallocate(place, sizeof(T), alignof(T));
                }
            }
        } held{place, by};
        T *object = ::new (place) T(std::forward<Arguments>(arguments)...);
        held.place = nullptr;
        return object;
    }
}

} // namespace detail

/* std::make_unique, with memory of a ref. */
template <class T, class Ref, class... Arguments>
std::unique_ptr<T, deleter<T, typename Ref::freer>> make_unique_in(const Ref &ref, Arguments &&...arguments)
{
    using freer = typename Ref::freer;
    const freer end = ref.get_freer();
    void *place = ref.allocate(sizeof(T), alignof(T));
    T *object = detail::construct<T>(place, end, std::forward<Arguments>(arguments)...);
    return std::unique_ptr<T, deleter<T, freer>>(object, deleter<T, freer>(end));
}

/* std::make_unique, with memory of the calling thread's current pool, or of the program's
 * malloc. */
template <class T, class... Arguments>
pool_ptr<T> make_pooled(Arguments &&...arguments)
{
    return make_unique_in<T>(current_ref(), std::forward<Arguments>(arguments)...);
}

} // namespace allot

#endif
