/* Memory resources for any thread, built from slabs: see allotment.hpp. */
#ifndef ALLOTMENT_SLAB_RESOURCE_HPP
#define ALLOTMENT_SLAB_RESOURCE_HPP

#include "options.hpp"
#include "shared_slabs.hpp"

#include <atomic>
#include <memory_resource>

namespace allot {

/* Allocates from the process's shared slabs, one for each size class. For many threads with their
 * own containers, or with shared containers under a lock. Any thread allocates and any thread
 * frees. The resource takes no lock, and empty pages are released. Larger blocks come from the
 * upstream resource. Two resources compare equal if their upstream resources do.
 *
 * The resource owns nothing: what is not deallocated stays allocated. */
class slab_resource final : public std::pmr::memory_resource {
public:
    /* A block with more bytes than this, or a larger alignment, comes from the upstream
     * resource. */
    static constexpr std::size_t largest = detail::slab_classes::largest;

    explicit slab_resource(std::pmr::memory_resource *upstream = std::pmr::get_default_resource()) noexcept
        : upstream_(upstream)
    {
    }
    slab_resource(const slab_resource &) = delete;
    slab_resource &operator=(const slab_resource &) = delete;

    std::pmr::memory_resource *upstream_resource() const noexcept { return upstream_; }

    /* Flushes the calling thread's caches and releases the shared slabs' empty pages. Returns the
     * number of bytes released. */
    static std::size_t trim() noexcept { return detail::shared_slabs::trim(); }

private:
    using classes = detail::slab_classes;

    void *do_allocate(std::size_t size, std::size_t align) override
    {
        const std::size_t place = classes::of(size, align);
        if (ALLOT_UNLIKELY(place >= classes::count)) {
            detail::check_size(size, align);
            return upstream_->allocate(size, align);
        }
        return detail::shared_slabs::allocate(place);
    }

    void do_deallocate(void *block, std::size_t size, std::size_t align) override
    {
        const std::size_t place = classes::of(size, align);
        if (ALLOT_UNLIKELY(place >= classes::count)) {
            upstream_->deallocate(block, size, align);
        } else {
            detail::shared_slabs::deallocate(place, block);
        }
    }

    bool do_is_equal(const std::pmr::memory_resource &other) const noexcept override
    {
        const slab_resource *same = detail::as_same(*this, other);
        return same != nullptr && same->upstream_->is_equal(*upstream_);
    }

    std::pmr::memory_resource *upstream_;
};

/* The same with private slabs, which are created with options: a name, a budget, a source, packing
 * and so on. Each call is somewhat slower, because it looks up the thread's cache of the slab.
 * Objects that are live when the resource is destroyed stay allocated. */
class own_slab_resource final : public std::pmr::memory_resource {
public:
    /* The name, the budget and the source must outlive the resource, because a slab is created when
     * its size class is first used. */
    explicit own_slab_resource(const options &wanted,
                               std::pmr::memory_resource *upstream = std::pmr::get_default_resource()) noexcept
        : upstream_(upstream), wanted_(wanted)
    {
    }
    own_slab_resource(const own_slab_resource &) = delete;
    own_slab_resource &operator=(const own_slab_resource &) = delete;
    ~own_slab_resource() override
    {
        for (const std::atomic<allot_slab *> &slab : slabs_) {
            allot_slab_destroy(slab.load(std::memory_order_acquire));
        }
    }

    std::pmr::memory_resource *upstream_resource() const noexcept { return upstream_; }

    /* Flushes the calling thread's caches and releases empty pages. Returns the number of bytes
     * released. */
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
            /* Not null: the block came from this slab. */
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
        allot_slab *slab = detail::checked(allot_slab_try_create(slot, slot_align, wanted_.get()));
        allot_slab *before = nullptr;
        if (!slabs_[place].compare_exchange_strong(before, slab, std::memory_order_acq_rel)) {
            /* Another thread stored its slab first. */
            allot_slab_destroy(slab);
            slab = before;
        }
        return detail::checked(allot_slab_try_alloc(slab));
    }

    std::atomic<allot_slab *> slabs_[classes::count] = {};
    std::pmr::memory_resource *upstream_;
    options wanted_;
};

} // namespace allot

#endif
