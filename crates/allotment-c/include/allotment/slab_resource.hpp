/* Memory resources for any thread, made of slabs: see allotment.hpp. */
#ifndef ALLOTMENT_SLAB_RESOURCE_HPP
#define ALLOTMENT_SLAB_RESOURCE_HPP

#include "options.hpp"
#include "shared_slabs.hpp"

#include <atomic>
#include <memory_resource>

namespace allot {

/* The process's shared slabs, one for each size class, for containers that many threads use, each its own or one under a lock:
 * any thread allocates, any thread frees, no lock is taken, and pages that are empty go back. Larger blocks come from another
 * resource. Two of them are equal where their upstream resources are.
 *
 * What is not deallocated stays allocated: the resource itself owns nothing. */
class slab_resource final : public std::pmr::memory_resource {
public:
    /* A block of more bytes, or aligned to more, comes from the upstream resource. */
    static constexpr std::size_t largest = detail::slab_classes::largest;

    explicit slab_resource(std::pmr::memory_resource *upstream = std::pmr::get_default_resource()) noexcept
        : upstream_(upstream)
    {
    }
    slab_resource(const slab_resource &) = delete;
    slab_resource &operator=(const slab_resource &) = delete;

    std::pmr::memory_resource *upstream_resource() const noexcept { return upstream_; }

    /* Gives empty pages of the shared slabs back, and what the calling thread has at hand. Returns the bytes. */
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

/* The same with slabs of its own, made with options: a name, a budget, a source, packing and so on. Somewhat dearer, since each
 * thread's part of a slab has to be looked up. What is not deallocated when it ends stays allocated. */
class own_slab_resource final : public std::pmr::memory_resource {
public:
    /* The name, the budget and the source have to be there as long as the resource, since a slab is made when its size is first
     * wanted. */
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
        allot_slab *slab = detail::checked(allot_slab_try_create(slot, slot_align, wanted_.get()));
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
};

} // namespace allot

#endif
