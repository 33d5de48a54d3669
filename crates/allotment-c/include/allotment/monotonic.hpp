/* A replacement for std::pmr::monotonic_buffer_resource: see allotment.hpp. */
#ifndef ALLOTMENT_MONOTONIC_HPP
#define ALLOTMENT_MONOTONIC_HPP

#include "owners.hpp"

#include <limits>
#include <memory_resource>

namespace allot {

/* A drop-in replacement for std::pmr::monotonic_buffer_resource, with two differences:
 *
 * - release() always returns to the initial buffer. Not every standard library does that.
 * - If no upstream resource is passed, and the default resource is the program's heap, further
 *   memory comes from an arena: release() keeps the newest chunk, and the recycler keeps the others
 *   warm for the next resource of any thread.
 *
 * One thread at a time may use it. Deallocation does nothing. */
class monotonic_buffer_resource final : public std::pmr::memory_resource {
public:
    monotonic_buffer_resource() : monotonic_buffer_resource(nullptr, 0, std::pmr::get_default_resource(), usual_size, false) {}
    explicit monotonic_buffer_resource(std::pmr::memory_resource *upstream)
        : monotonic_buffer_resource(nullptr, 0, upstream, usual_size, true)
    {
    }
    /* The first chunk has room for `initial_size` bytes. */
    explicit monotonic_buffer_resource(std::size_t initial_size)
        : monotonic_buffer_resource(nullptr, 0, std::pmr::get_default_resource(), initial_size, false)
    {
    }
    monotonic_buffer_resource(std::size_t initial_size, std::pmr::memory_resource *upstream)
        : monotonic_buffer_resource(nullptr, 0, upstream, initial_size, true)
    {
    }
    /* Uses this buffer first. */
    monotonic_buffer_resource(void *buffer, std::size_t buffer_size)
        : monotonic_buffer_resource(buffer, buffer_size, std::pmr::get_default_resource(), 2 * buffer_size, false)
    {
    }
    monotonic_buffer_resource(void *buffer, std::size_t buffer_size, std::pmr::memory_resource *upstream)
        : monotonic_buffer_resource(buffer, buffer_size, upstream, 2 * buffer_size, true)
    {
    }
    monotonic_buffer_resource(const monotonic_buffer_resource &) = delete;
    monotonic_buffer_resource &operator=(const monotonic_buffer_resource &) = delete;
    ~monotonic_buffer_resource() override
    {
        give_back();
        if (arena_.get() != nullptr) {
            arena_.adopt();
        }
    }

    /* Frees everything. The next object starts at the beginning of the initial buffer, if there is
     * one. */
    void release() noexcept
    {
        give_back();
        if (arena_.get() != nullptr) {
            arena_.adopt();
            arena_.reset();
        }
        next_size_ = first_size_;
        position_ = buffer_;
        end_ = buffer_ + buffer_size_;
    }

    /* The resource that memory comes from, unless it comes from an arena. */
    std::pmr::memory_resource *upstream_resource() const noexcept { return upstream_; }

private:
    /* Header of each piece that came from upstream. */
    struct alignas(std::max_align_t) piece {
        piece *before;
        std::size_t size;
        std::size_t align;
    };

    static constexpr std::size_t usual_size = 1024;
    static constexpr std::size_t least_size = 128;
    static constexpr std::size_t most_growth = std::size_t{1} << 20;

    monotonic_buffer_resource(void *buffer, std::size_t buffer_size, std::pmr::memory_resource *upstream,
                              std::size_t first_size, bool named)
        : position_(static_cast<char *>(buffer)), end_(position_ + buffer_size), buffer_(position_),
          buffer_size_(buffer_size), first_size_(first_size < least_size ? least_size : first_size), next_size_(first_size_),
          upstream_(upstream), has_arena_(!named && upstream->is_equal(*std::pmr::new_delete_resource()))
    {
    }

    void *do_allocate(std::size_t size, std::size_t align) override
    {
        const std::size_t bytes = size == 0 ? 1 : size;
        const std::size_t left = static_cast<std::size_t>(end_ - position_);
        const std::size_t padding = padding_before(position_, align);
        if (ALLOT_UNLIKELY(bytes > left || padding > left - bytes)) {
            return allocate_slowly(bytes, align);
        }
        char *object = position_ + padding;
        position_ = object + bytes;
        return object;
    }

    void do_deallocate(void *, std::size_t, std::size_t) override {}

    bool do_is_equal(const std::pmr::memory_resource &other) const noexcept override { return this == &other; }

    static std::size_t padding_before(const char *position, std::size_t align)
    {
        return (std::size_t{0} - reinterpret_cast<std::uintptr_t>(position)) & (align - 1);
    }

    [[gnu::cold, gnu::noinline]] void *allocate_slowly(std::size_t bytes, std::size_t align)
    {
        if (has_arena_) {
            detail::check_size(bytes, align);
        }
        /* A sum that overflows becomes the largest size, which upstream then refuses. */
        const std::size_t needed = sum(bytes, align > alignof(std::max_align_t) ? align : 0);
        const std::size_t size = needed > next_size_ ? needed : next_size_;
        char *first = has_arena_ ? from_arena(size) : from_upstream(size, align);
        if (next_size_ < most_growth) {
            next_size_ *= 2;
        }
        char *object = first + padding_before(first, align);
        char *position = object + bytes;
        char *end = first + size;
        if (end - position > end_ - position_) {
            /* Continue in the chunk that has more room left. */
            position_ = position;
            end_ = end;
        }
        return object;
    }

    char *from_arena(std::size_t size)
    {
        if (arena_.get() == nullptr) {
            arena_ = arena();
        }
        /* A standard resource may move to another thread without a call, so take ownership here. */
        arena_.adopt();
        return static_cast<char *>(arena_.allocate(size, alignof(std::max_align_t)));
    }

    static std::size_t sum(std::size_t one, std::size_t other)
    {
        const std::size_t most = std::numeric_limits<std::size_t>::max();
        return one > most - other ? most : one + other;
    }

    char *from_upstream(std::size_t size, std::size_t align)
    {
        const std::size_t whole = sum(sizeof(piece), size);
        const std::size_t with_align = align > alignof(piece) ? align : alignof(piece);
        void *place = upstream_->allocate(whole, with_align);
        if (ALLOT_UNLIKELY(whole > std::numeric_limits<std::size_t>::max() / 2)) {
            /* No block is so large: upstream did not notice that rounding up overflows. */
            upstream_->deallocate(place, whole, with_align);
            detail::fail_length();
        }
        pieces_ = ::new (place) piece{pieces_, whole, with_align};
        return static_cast<char *>(place) + sizeof(piece);
    }

    void give_back() noexcept
    {
        while (pieces_ != nullptr) {
            piece *going = pieces_;
            pieces_ = going->before;
            upstream_->deallocate(going, going->size, going->align);
        }
    }

    char *position_;
    char *end_;
    char *buffer_;
    std::size_t buffer_size_;
    std::size_t first_size_;
    std::size_t next_size_;
    std::pmr::memory_resource *upstream_;
    piece *pieces_ = nullptr;
    arena arena_{static_cast<allot_arena *>(nullptr)};
    bool has_arena_;
};

} // namespace allot

#endif
