// The unit of the program in C++.
#include <allotment_netdata.h>

extern "C" ARAL *acquired_in_cpp(size_t size)
{
    return aral_by_size_acquire(size);
}

extern "C" void *allocated_in_cpp(ONEWAYALLOC **owa, size_t size)
{
    *owa = onewayalloc_create(0);
    return onewayalloc_mallocz(*owa, size);
}
