/* A shared library that hides its symbols, except one. */
#include <allotment.hpp>

#include <list>

using numbers = std::list<long, allot::slab_allocator<long>>;

[[gnu::visibility("default")]] void fill(numbers &list)
{
    for (long number = 0; number < 1000; ++number) {
        list.push_back(number);
    }
}
