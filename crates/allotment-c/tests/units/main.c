/* A program with units in C, in C++ and in a shared library. The statistics of netdata's allocators cover all
 * of them. */
#include <allotment_netdata.h>

#undef NDEBUG
#include <assert.h>

ARAL *acquired_in_cpp(size_t size);
void *allocated_in_cpp(ONEWAYALLOC **owa, size_t size);
ARAL *acquired_in_library(size_t size);
void *allocated_in_library(ONEWAYALLOC **owa, size_t size);
struct aral_statistics *statistics_in_library(void);

int main(void)
{
    ARAL *ar = aral_by_size_acquire(40);
    assert(acquired_in_cpp(40) == ar && acquired_in_library(40) == ar);
    void *element = aral_mallocz(ar);
    assert(statistics_in_library() == aral_by_size_statistics());
    assert(statistics_in_library()->mmap.used_bytes == 40);
    aral_freez(ar, element);
    for (int user = 0; user < 3; user++) {
        assert(statistics_in_library()->structures.allocations >= 1);
        aral_by_size_release(ar);
    }
    assert(statistics_in_library()->structures.allocations == 0);

    ONEWAYALLOC *owa[2];
    allocated_in_cpp(&owa[0], 1 << 20);
    size_t one = onewayalloc_allocated_memory();
    assert(one >= 1 << 20);
    allocated_in_library(&owa[1], 1 << 20);
    assert(onewayalloc_allocated_memory() == 2 * one);
    onewayalloc_destroy(owa[0]);
    onewayalloc_destroy(owa[1]);
    assert(onewayalloc_allocated_memory() == 0);
    return 0;
}
