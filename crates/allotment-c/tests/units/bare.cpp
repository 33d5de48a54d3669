/* Compiled without exceptions and type information, in a program that has both. */
#include <allotment.hpp>

#include <memory_resource>

namespace {

class plain_resource final : public std::pmr::memory_resource {
    void *do_allocate(std::size_t size, std::size_t align) override
    {
        return std::pmr::new_delete_resource()->allocate(size, align);
    }
    void do_deallocate(void *block, std::size_t size, std::size_t align) override
    {
        std::pmr::new_delete_resource()->deallocate(block, size, align);
    }
    bool do_is_equal(const std::pmr::memory_resource &other) const noexcept override { return this == &other; }
};

} // namespace

void *allocate_barely(allot::arena &arena, std::size_t size)
{
    return arena.allocate(size);
}

std::pmr::memory_resource *bare_resource()
{
    static plain_resource resource;
    return &resource;
}
