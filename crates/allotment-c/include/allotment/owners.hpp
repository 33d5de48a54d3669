/* Classes that own an allocator and destroy it in their destructor: see allotment.hpp. */
#ifndef ALLOTMENT_OWNERS_HPP
#define ALLOTMENT_OWNERS_HPP

#include "refs.hpp"

#include <cstring>
#include <string_view>
#include <type_traits>
#include <utility>

namespace allot {

/* Many objects of one thread that are freed together. */
class arena {
public:
    arena() : arena(options()) {}
    explicit arena(const options &wanted) : arena_(detail::checked(allot_arena_try_create(wanted.get()))) {}
    /* Takes ownership of an arena of the C interface. */
    explicit arena(allot_arena *made) noexcept : arena_(made) {}

    void *allocate(std::size_t size, std::size_t align = 16) { return detail::checked(try_allocate(size, align)); }
    /* On failure returns null; allot_last_error() has the reason. */
    void *try_allocate(std::size_t size, std::size_t align = 16) noexcept
    {
        return allot_arena_try_alloc_aligned(get(), size, align);
    }
    /* Reclaims the bytes of the newest object. An older object is only subtracted from the
     * statistics. */
    void deallocate(void *object, std::size_t size, std::size_t align = 16) noexcept
    {
        allot_arena_free_sized(get(), object, size, align);
    }

    /* Creates an object without a destructor. It lives until the arena is reset or destroyed. */
    template <class T, class... Arguments>
    T *make(Arguments &&...arguments)
    {
        static_assert(std::is_trivially_destructible<T>::value,
                      "the arena would not run this destructor: use make_unique(), which does, or make_undestroyed() if "
                      "everything that the object owns is in the arena too");
        return make_undestroyed<T>(std::forward<Arguments>(arguments)...);
    }
    /* Creates an object whose destructor does not run. */
    template <class T, class... Arguments>
    T *make_undestroyed(Arguments &&...arguments)
    {
        void *place = allocate(sizeof(T), alignof(T));
        return detail::construct<T>(place, arena_freer(get()), std::forward<Arguments>(arguments)...);
    }
    /* Creates an object that its unique_ptr destroys. The pointer must be destroyed before the
     * arena is reset or destroyed. */
    template <class T, class... Arguments>
    arena_ptr<T> make_unique(Arguments &&...arguments)
    {
        return make_unique_in<T>(arena_ref(get()), std::forward<Arguments>(arguments)...);
    }
    /* Creates an array of `count` value-initialised objects: numbers are 0. */
    template <class T>
    T *make_array(std::size_t count)
    {
        static_assert(std::is_trivially_destructible<T>::value, "the arena would not run these destructors");
        T *first = static_cast<T *>(allocate(detail::array_bytes<T>(count), alignof(T)));
        std::uninitialized_value_construct_n(first, count);
        return first;
    }
    /* Copies the text and adds a NUL, which the result does not include. */
    std::string_view copy(std::string_view text)
    {
        char *bytes = static_cast<char *>(allocate(text.size() + 1, 1));
        if (!text.empty()) {
            std::memcpy(bytes, text.data(), text.size());
        }
        bytes[text.size()] = '\0';
        return std::string_view(bytes, text.size());
    }

    /* Frees every object and keeps the chunks that the option `retain` selects. */
    void reset() noexcept { allot_arena_reset(get()); }
    /* Makes the calling thread the owner; hardened mode refuses every other thread. */
    void adopt() noexcept { allot_arena_adopt(get()); }
    allot::statistics statistics() const noexcept { return allot_arena_statistics(get()); }
    allot_arena *get() const noexcept { return arena_.get(); }
    /* Gives up ownership; the caller destroys the arena through the C interface. */
    allot_arena *release() noexcept { return arena_.release(); }

private:
    detail::handle<allot_arena> arena_;
};

/* When the scope ends, frees everything that was allocated from the arena after it began. Scopes
 * nest. */
class [[nodiscard]] arena_scope {
public:
    explicit arena_scope(arena_ref arena) noexcept : arena_(arena), mark_(allot_arena_mark(arena.get())) {}
    ~arena_scope() { allot_arena_rewind(arena_.get(), &mark_); }
    arena_scope(const arena_scope &) = delete;
    arena_scope &operator=(const arena_scope &) = delete;
    static void *operator new(std::size_t) = delete;

    /* Frees everything that was allocated in the scope, and starts the scope again. */
    void rewind() noexcept
    {
        allot_arena_rewind(arena_.get(), &mark_);
        mark_ = allot_arena_mark(arena_.get());
    }

private:
    arena_ref arena_;
    allot_arena_position mark_;
};

/* Objects of one type for one thread. */
template <class T>
class free_list {
public:
    free_list() : free_list(options()) {}
    explicit free_list(const options &wanted)
        : list_(detail::checked(allot_free_list_try_create(sizeof(T), alignof(T), wanted.get())))
    {
    }

    template <class... Arguments>
    T *make(Arguments &&...arguments)
    {
        void *place = detail::checked(allot_free_list_try_alloc(get()));
        return detail::construct<T>(place, free_list_freer(get()), std::forward<Arguments>(arguments)...);
    }
    void destroy(T *object) noexcept
    {
        if (object != nullptr) {
            object->~T();
            allot_free_list_free(get(), object);
        }
    }
    template <class... Arguments>
    free_list_ptr<T> make_unique(Arguments &&...arguments)
    {
        T *object = make(std::forward<Arguments>(arguments)...);
        return free_list_ptr<T>(object, deleter<T, free_list_freer>(free_list_freer(get())));
    }

    std::size_t live() const noexcept { return allot_free_list_live(get()); }
    /* Releases empty slabs. Returns the number of bytes released. */
    std::size_t trim() noexcept { return allot_free_list_trim(get()); }
    void adopt() noexcept { allot_free_list_adopt(get()); }
    allot::statistics statistics() const noexcept { return allot_free_list_statistics(get()); }
    allot_free_list *get() const noexcept { return list_.get(); }

private:
    detail::handle<allot_free_list> list_;
};

/* Objects of one type that any thread creates and any thread destroys. */
template <class T>
class slab {
public:
    slab() : slab(options()) {}
    explicit slab(const options &wanted)
        : slab_(detail::checked(allot_slab_try_create(sizeof(T), alignof(T), wanted.get())))
    {
    }
    /* The slab that the whole process shares for this size. */
    static slab by_size() { return slab(detail::checked(allot_slab_try_by_size(sizeof(T), alignof(T)))); }

    template <class... Arguments>
    T *make(Arguments &&...arguments)
    {
        void *place = detail::checked(allot_slab_try_alloc(get()));
        return detail::construct<T>(place, free_slot(), std::forward<Arguments>(arguments)...);
    }
    void destroy(T *object) noexcept
    {
        if (object != nullptr) {
            object->~T();
            allot_slab_free(get(), object);
        }
    }
    template <class... Arguments>
    slab_ptr<T> make_unique(Arguments &&...arguments)
    {
        return slab_ptr<T>(make(std::forward<Arguments>(arguments)...));
    }

    /* Takes pages until `objects` slots are free in empty pages. */
    void reserve(std::size_t objects)
    {
        if (!allot_slab_try_reserve(get(), objects)) {
            detail::fail();
        }
    }
    std::size_t trim() noexcept { return allot_slab_trim(get()); }
    /* Empties the calling thread's cache. */
    void flush() noexcept { allot_slab_flush(get()); }
    allot::statistics statistics() const noexcept { return allot_slab_statistics(get()); }
    allot_slab *get() const noexcept { return slab_.get(); }

private:
    explicit slab(allot_slab *made) noexcept : slab_(made) {}
    detail::handle<allot_slab> slab_;
};

/* A handle to one thread's cache of a slab: allocating and freeing are inlined. The thread that
 * creates it must destroy it, before the slab is destroyed. */
template <class T>
class slab_handle {
public:
    explicit slab_handle(slab<T> &of) : handle_(detail::checked(allot_slab_handle_try_create(of.get()))) {}

    template <class... Arguments>
    T *make(Arguments &&...arguments)
    {
        void *place = detail::checked(allot_slab_handle_try_alloc(get()));
        return detail::construct<T>(place, free_slot(), std::forward<Arguments>(arguments)...);
    }
    void destroy(T *object) noexcept
    {
        if (object != nullptr) {
            object->~T();
            allot_slab_handle_free(get(), object);
        }
    }
    allot_slab_handle *get() const noexcept { return handle_.get(); }

private:
    detail::handle<allot_slab_handle> handle_;
};

/* Blocks of any size of one thread, freed one by one or all at once. */
class reap {
public:
    reap() : reap(options()) {}
    explicit reap(const options &wanted) : reap_(detail::checked(allot_reap_try_create(wanted.get()))) {}
    explicit reap(allot_reap *made) noexcept : reap_(made) {}

    void *allocate(std::size_t size, std::size_t align = 16) { return detail::checked(try_allocate(size, align)); }
    void *try_allocate(std::size_t size, std::size_t align = 16) noexcept
    {
        return allot_reap_try_alloc(get(), size, align);
    }
    void deallocate(void *block, std::size_t size, std::size_t align = 16) noexcept
    {
        allot_reap_free_sized(get(), block, size, align);
    }
    void *resize(void *block, std::size_t old_size, std::size_t new_size, std::size_t align = 16)
    {
        return detail::checked(allot_reap_try_resize(get(), block, old_size, new_size, align));
    }
    template <class T, class... Arguments>
    reap_ptr<T> make_unique(Arguments &&...arguments)
    {
        return make_unique_in<T>(reap_ref(get()), std::forward<Arguments>(arguments)...);
    }
    /* Frees everything. */
    void reset() noexcept { allot_reap_reset(get()); }
    std::size_t trim() noexcept { return allot_reap_trim(get()); }
    void adopt() noexcept { allot_reap_adopt(get()); }
    allot::statistics statistics() const noexcept { return allot_reap_statistics(get()); }
    allot_reap *get() const noexcept { return reap_.get(); }
    allot_reap *release() noexcept { return reap_.release(); }

private:
    detail::handle<allot_reap> reap_;
};

/* The memory of one thread, for all code that the thread runs while it is in the pool. Objects that
 * are live when the pool is destroyed stay valid. */
class pool {
public:
    pool() : pool(options()) {}
    explicit pool(const options &wanted) : pool_(detail::checked(allot_pool_try_create(wanted.get()))) {}
    explicit pool(allot_pool *made) noexcept : pool_(made) {}

    void *allocate(std::size_t size, std::size_t align = 16) { return detail::checked(try_allocate(size, align)); }
    void *try_allocate(std::size_t size, std::size_t align = 16) noexcept
    {
        return allot_pool_try_alloc(get(), size, align);
    }
    void deallocate(void *block, std::size_t size, std::size_t align = 16) noexcept
    {
        allot_pool_free_sized(get(), block, size, align);
    }
    void *resize(void *block, std::size_t old_size, std::size_t new_size, std::size_t align = 16)
    {
        return detail::checked(allot_pool_try_resize(get(), block, old_size, new_size, align));
    }
    template <class T, class... Arguments>
    pool_ptr<T> make_unique(Arguments &&...arguments)
    {
        return make_unique_in<T>(reference(), std::forward<Arguments>(arguments)...);
    }
    /* A reference for objects to store, valid on any thread and after the pool is destroyed. */
    pool_ref reference() const noexcept { return pool_ref(allot_pool_reference(get())); }
    std::size_t trim() noexcept { return allot_pool_trim(get()); }
    allot::statistics statistics() const noexcept { return allot_pool_statistics(get()); }
    allot_pool *get() const noexcept { return pool_.get(); }
    allot_pool *release() noexcept { return pool_.release(); }

private:
    detail::handle<allot_pool> pool_;
};

namespace detail {

inline allot_entered entered(allot_pool *pool)
{
    allot_entered made{};
    if (!allot_pool_try_enter(pool, &made)) {
        fail();
    }
    return made;
}

} // namespace detail

/* The thread is in the pool while the scope exists. Scopes nest and must end in the opposite order,
 * so they can only be local variables. */
class [[nodiscard]] pool_scope {
public:
    explicit pool_scope(local_pool_ref pool) : entered_(detail::entered(pool.get())) {}
    ~pool_scope() { allot_pool_leave(entered_); }
    pool_scope(const pool_scope &) = delete;
    pool_scope &operator=(const pool_scope &) = delete;
    static void *operator new(std::size_t) = delete;

private:
    allot_entered entered_;
};

inline arena_ref::arena_ref(const arena &arena) noexcept : arena_(arena.get()) {}
inline reap_ref::reap_ref(const reap &reap) noexcept : reap_(reap.get()) {}
inline local_pool_ref::local_pool_ref(const pool &pool) noexcept : pool_(pool.get()) {}
inline pool_ref::pool_ref(const pool &pool) noexcept : ref_(allot_pool_reference(pool.get())) {}

} // namespace allot

#endif
