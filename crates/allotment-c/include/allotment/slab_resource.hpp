/* A memory resource for any thread, made of slabs: see allotment.hpp. */
#ifndef ALLOTMENT_SLAB_RESOURCE_HPP
#define ALLOTMENT_SLAB_RESOURCE_HPP

#include "options.hpp"

#include <atomic>
#include <memory_resource>

namespace allot {

namespace detail {

/* The sizes that a slab_resource has slabs for:
 *
 *   size, bytes                             slots
 *   up to 1 KiB                             multiples of 16
 *   up to 32 KiB                            eight steps a doubling
 *   up to 32 KiB, aligned to more than 16   powers of two, aligned to themselves
 *
 * Places in the table follow each other in that order; the first is that of size 0, which counts as 1. */
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

    /* `count` or more where there is none. */
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

} // namespace detail

/* Slabs by size class, for containers that many threads use, each its own or one under a lock: any thread allocates, any
 * thread frees, no lock is taken, and pages that are empty go back. Larger blocks come from another resource.
 *
 * Two resources are equal only if they are the same one. What is not deallocated stays allocated when the resource ends. */
class slab_resource final : public std::pmr::memory_resource {
public:
    /* A block of more bytes, or aligned to more, comes from the upstream resource. */
    static constexpr std::size_t largest = detail::slab_classes::largest;

    /* With the process's shared slabs, which all resources of this kind have in common. */
    explicit slab_resource(std::pmr::memory_resource *upstream = std::pmr::get_default_resource()) noexcept
        : upstream_(upstream)
    {
    }
    /* With slabs of its own. The name, the budget and the source have to be there as long as the resource, since a slab is made
     * when its size is first wanted. */
    explicit slab_resource(const options &wanted,
                           std::pmr::memory_resource *upstream = std::pmr::get_default_resource()) noexcept
        : upstream_(upstream), wanted_(wanted), own_(true)
    {
    }
    slab_resource(const slab_resource &) = delete;
    slab_resource &operator=(const slab_resource &) = delete;
    ~slab_resource() override
    {
        for (const std::atomic<allot_slab *> &slab : slabs_) {
            allot_slab_destroy(slab.load(std::memory_order_acquire));
        }
    }

    std::pmr::memory_resource *upstream_resource() const noexcept { return upstream_; }

    /* Gives empty pages back, and what the calling thread has at hand. Returns the bytes. */
    std::size_t trim() noexcept
    {
        std::size_t bytes = 0;
        for (const std::atomic<allot_slab *> &place : slabs_) {
            if (allot_slab *slab = place.load(std::memory_order_acquire)) {
                bytes += allot_slab_trim(slab);
            }
        }
        return bytes;
    }

private:
    using classes = detail::slab_classes;

    void *do_allocate(std::size_t size, std::size_t align) override
    {
        const std::size_t place = classes::of(size, align);
        if (!ALLOT_UNLIKELY(place >= classes::count)) {
            if (allot_slab *slab = slabs_[place].load(std::memory_order_acquire)) {
                return detail::checked(allot_slab_try_alloc(slab));
            }
        }
        return allocate_slowly(place, size, align);
    }

    void do_deallocate(void *block, std::size_t size, std::size_t align) override
    {
        const std::size_t place = classes::of(size, align);
        if (ALLOT_UNLIKELY(place >= classes::count)) {
            upstream_->deallocate(block, size, align);
        } else {
            /* There is one, since the block is of it. */
            allot_slab_free(slabs_[place].load(std::memory_order_relaxed), block);
        }
    }

    bool do_is_equal(const std::pmr::memory_resource &other) const noexcept override { return this == &other; }

    [[gnu::cold, gnu::noinline]] void *allocate_slowly(std::size_t place, std::size_t size, std::size_t align)
    {
        if (place >= classes::count) {
            detail::check_size(size, align);
            return upstream_->allocate(size, align);
        }
        const std::size_t slot = classes::size_of(place);
        const std::size_t slot_align = classes::align_of(place);
        allot_slab *slab = detail::checked(own_ ? allot_slab_try_create(slot, slot_align, wanted_.get())
                                                : allot_slab_try_by_size(slot, slot_align));
        allot_slab *before = nullptr;
        if (!slabs_[place].compare_exchange_strong(before, slab, std::memory_order_acq_rel)) {
            /* Another thread was faster. */
            allot_slab_destroy(slab);
            slab = before;
        }
        return detail::checked(allot_slab_try_alloc(slab));
    }

    std::atomic<allot_slab *> slabs_[classes::count] = {};
    std::pmr::memory_resource *upstream_;
    options wanted_;
    bool own_ = false;
};

} // namespace allot

#endif
