/* A library that is loaded with RTLD_LOCAL, so that no other library sees its names. */
#include <allotment_netdata.h>

#define FOR_OTHERS __attribute__((visibility("default")))

FOR_OTHERS ARAL *made_in_plugin(const char *name);
FOR_OTHERS size_t counted_in_plugin(ARAL *ar);
FOR_OTHERS void ended_in_plugin(ARAL *ar);

static struct aral_statistics all;

ARAL *made_in_plugin(const char *name)
{
    return aral_create(name, 48, 0, 0, &all, NULL, NULL, false, false, false);
}

/* Those that live of the same plugin. */
size_t counted_in_plugin(ARAL *ar)
{
    return aral_get_statistics(ar)->structures.allocations;
}

void ended_in_plugin(ARAL *ar)
{
    aral_destroy(ar);
}
