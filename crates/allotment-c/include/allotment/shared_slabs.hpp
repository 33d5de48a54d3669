/* The process's shared slabs by size class, and each thread's handles to them. */
#ifndef ALLOTMENT_SHARED_SLABS_HPP
#define ALLOTMENT_SHARED_SLABS_HPP

#include "error.hpp"

#include <atomic>
#include <cstddef>
#include <new>
#include <utility>

namespace allot {
namespace detail {

/* The size classes that have shared slabs:
 *
 *   size                                    slot sizes in bytes
 *   up to 1 KiB                             multiples of 16
 *   up to 32 KiB                            eight steps per doubling
 *   up to 32 KiB, aligned to more than 16   powers of two, aligned to their size
 *
 * The table has the classes in this order. The first class is that of size 0, which counts as 1. */
struct slab_classes {
    static constexpr std::size_t largest = 32768;
    static constexpr std::size_t largest_looked_up = 1024;
    static constexpr std::size_t first_stepped = largest_looked_up / 16 + 1;
    static constexpr std::size_t first_aligned = first_stepped + 5 * 8;
    static constexpr std::size_t count = first_aligned + 11;

    static constexpr std::size_t log2(std::size_t number)
    {
        return 63u - static_cast<std::size_t>(__builtin_clzll(number));
    }

    /* The class of a size and an alignment; `count` or more if there is none. */
    static constexpr std::size_t of(std::size_t size, std::size_t align)
    {
        if (!ALLOT_UNLIKELY(size > largest_looked_up || align > 16)) {
            return (size + 15) / 16;
        }
        if (size > largest || align > largest) {
            return count;
        }
        if (align <= 16) {
            const std::size_t doubling = log2(size - 1);
            return first_stepped + 8 * (doubling - 10) + ((size - 1) >> (doubling - 3)) - 8;
        }
        const std::size_t least = size > align ? size : align;
        return first_aligned + log2(least - 1) - 4;
    }

    static constexpr std::size_t size_of(std::size_t place)
    {
        if (place < first_stepped) {
            return place == 0 ? 16 : place * 16;
        }
        if (place < first_aligned) {
            const std::size_t base = largest_looked_up << ((place - first_stepped) / 8);
            return base + base / 8 * ((place - first_stepped) % 8 + 1);
        }
        return std::size_t{32} << (place - first_aligned);
    }

    static constexpr std::size_t align_of(std::size_t place) { return place < first_aligned ? 16 : size_of(place); }
};

/* Slots of the shared slabs. The fast path is inline while the calling thread has cached slots.
 *
 * 1. A slab in the table stays there and is never destroyed, so that destructors of static objects
 * may
 *    use it. It releases empty pages, as any slab does.
 * 2. Each thread has its own handles. A handle is created when the thread first needs it; `ending`
 *    destroys the handles when the thread ends. Later calls of the thread use the slab itself.
 * 3. `handles` points to `none` or to the thread's table. Neither needs dynamic initialisation or
 *    destruction, so that reading `handles` is a plain load. */
class shared_slabs {
public:
    static void *allocate(std::size_t place)
    {
        void *slot = allot_slab_handle_alloc_inline(handles->of[place]);
        return ALLOT_UNLIKELY(slot == nullptr) ? allocate_slowly(place) : slot;
    }

    static void deallocate(std::size_t place, void *slot) noexcept
    {
        allot_slab_handle *handle = handles->of[place];
        if (!ALLOT_UNLIKELY(handle == nullptr)) {
            allot_slab_handle_free(handle, slot);
        } else {
            deallocate_slowly(place, slot);
        }
    }

    /* Flushes the calling thread's caches and releases empty pages. Returns the number of bytes
     * released. */
    static std::size_t trim() noexcept
    {
        std::size_t bytes = 0;
        for (const std::atomic<allot_slab *> &slab : slabs) {
            if (allot_slab *made = slab.load(std::memory_order_acquire)) {
                bytes += allot_slab_trim(made);
            }
        }
        return bytes;
    }

private:
    struct table {
        allot_slab_handle *of[slab_classes::count];
    };

    struct ending {
        ~ending()
        {
            const table *own = std::exchange(handles, &none);
            ended = true;
            for (allot_slab_handle *handle : own->of) {
                allot_slab_handle_destroy(handle);
            }
            delete own;
        }
    };

    /* A separate function, so that the fast path above needs no stack frame. */
    [[gnu::noinline]] static void *allocate_slowly(std::size_t place)
    {
        allot_slab_handle *handle = handles->of[place];
        if (ALLOT_UNLIKELY(handle == nullptr)) {
            allot_slab *slab = detail::checked(find(place));
            handle = find_handle(place, slab);
            if (handle == nullptr) {
                return detail::checked(allot_slab_try_alloc(slab));
            }
        }
        return detail::checked(allot_slab_handle_try_alloc(handle));
    }

    [[gnu::cold, gnu::noinline]] static void deallocate_slowly(std::size_t place, void *slot) noexcept
    {
        /* The slot's slab need not be in this table: a library with hidden symbols has a table of
         * its own. */
        allot_slab *slab = find(place);
        allot_slab_handle *handle = slab != nullptr ? find_handle(place, slab) : nullptr;
        if (handle != nullptr) {
            allot_slab_handle_free(handle, slot);
        } else {
            allot_slab_free_anywhere(slot);
        }
    }

    static allot_slab *find(std::size_t place) noexcept
    {
        allot_slab *slab = slabs[place].load(std::memory_order_acquire);
        if (slab != nullptr) {
            return slab;
        }
        slab = allot_slab_try_by_size(slab_classes::size_of(place), slab_classes::align_of(place));
        allot_slab *before = nullptr;
        if (slab != nullptr && !slabs[place].compare_exchange_strong(before, slab, std::memory_order_acq_rel)) {
            /* Another thread stored its slab first. */
            allot_slab_destroy(slab);
            return before;
        }
        return slab;
    }

    /* Null if there is no memory for the handle, or if the thread is ending. */
    static allot_slab_handle *find_handle(std::size_t place, allot_slab *slab) noexcept
    {
        if (ended) {
            return nullptr;
        }
        thread_local ending at_the_end;
        (void)at_the_end;
        if (handles == &none) {
            const table *own = new (std::nothrow) table();
            if (own == nullptr) {
                return nullptr;
            }
            handles = own;
        }
        allot_slab_handle *&handle = const_cast<table *>(handles)->of[place];
        handle = allot_slab_handle_try_create(slab);
        return handle;
    }

    static inline std::atomic<allot_slab *> slabs[slab_classes::count] = {};
    static inline const table none{};
    static inline thread_local const table *handles = &none;
    static inline thread_local bool ended = false;
};

} // namespace detail
} // namespace allot

#endif
