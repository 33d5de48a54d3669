/* Linked with units that were compiled with other options: without exceptions and type information, and with
 * hidden symbols. */
#include <allotment.hpp>

#include <cstdlib>
#include <list>
#include <memory_resource>
#include <vector>

#define CHECK(condition) ((condition) ? (void)0 : std::abort())

using numbers = std::list<long, allot::slab_allocator<long>>;

void *allocate_barely(allot::arena &arena, std::size_t size);
std::pmr::memory_resource *bare_resource();
void fill(numbers &list);

int main()
{
    allot::budget limit(100000);
    allot::arena arena(allot::options().budget(limit));
    CHECK(allocate_barely(arena, 10) != nullptr);
    try {
        arena.allocate(1000000);
        return 1;
    } catch (const allot::error &error) {
        CHECK(error.kind() == ALLOT_BUDGET_EXCEEDED);
    }

    allot::arena_resource memory(arena);
    allot::slab_resource slabs;
    CHECK(memory != *bare_resource() && slabs != *bare_resource() && memory == allot::arena_resource(arena));
    std::pmr::vector<int> vector({1, 2, 3}, bare_resource());
    std::pmr::vector<int> taken(&memory);
    taken = std::move(vector);
    CHECK(taken.size() == 3);

    numbers list;
    fill(list);
    list.clear();
    list.push_back(1);
    CHECK(list.front() == 1);
    return 0;
}
