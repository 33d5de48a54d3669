/* The header and the library of a program have the same version. */
#include <allotment.h>

#include <assert.h>
#include <string.h>

int main(void)
{
    assert(allot_abi() == ALLOT_ABI);
    assert(strcmp(allot_version(), ALLOT_VERSION) == 0);
    return 0;
}
