/* An upstream resource that counts, and may refuse. */
#ifndef COUNTING_HPP
#define COUNTING_HPP

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory_resource>
#include <new>

class counting_resource final : public std::pmr::memory_resource {
public:
    std::size_t blocks = 0;
    std::size_t bytes = 0;
    std::size_t calls = 0;
    std::size_t refuse_after = std::numeric_limits<std::size_t>::max();

private:
    void *do_allocate(std::size_t size, std::size_t align) override
    {
        /* Memory tools end the program for a size beyond any memory. */
        if (calls == refuse_after || size > std::numeric_limits<std::size_t>::max() / 4) {
            throw std::bad_alloc();
        }
        void *block = std::pmr::new_delete_resource()->allocate(size, align);
        calls += 1;
        blocks += 1;
        bytes += size;
        return block;
    }
    void do_deallocate(void *block, std::size_t size, std::size_t align) override
    {
        std::pmr::new_delete_resource()->deallocate(block, size, align);
        blocks -= 1;
        bytes -= size;
    }
    bool do_is_equal(const std::pmr::memory_resource &other) const noexcept override { return this == &other; }
};

inline bool is_aligned(const void *block, std::size_t align)
{
    return reinterpret_cast<std::uintptr_t>(block) % align == 0;
}

#endif
