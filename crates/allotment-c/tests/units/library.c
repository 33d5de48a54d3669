/* The unit of the program in a shared library, which exports only marked functions. */
#include <allotment_netdata.h>

#define FOR_OTHERS __attribute__((visibility("default")))

FOR_OTHERS ARAL *acquired_in_library(size_t size);
FOR_OTHERS void *allocated_in_library(ONEWAYALLOC **owa, size_t size);
FOR_OTHERS struct aral_statistics *statistics_in_library(void);

ARAL *acquired_in_library(size_t size)
{
    return aral_by_size_acquire(size);
}

void *allocated_in_library(ONEWAYALLOC **owa, size_t size)
{
    *owa = onewayalloc_create(0);
    return onewayalloc_mallocz(*owa, size);
}

struct aral_statistics *statistics_in_library(void)
{
    return aral_by_size_statistics();
}
