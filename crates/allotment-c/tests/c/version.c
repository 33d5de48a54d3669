/* The header and the library that a program was linked with are of one version. */
#include <allotment.h>

#include <assert.h>
#include <string.h>

int main(void)
{
    assert(allot_abi() == ALLOT_ABI);
    assert(strcmp(allot_version(), ALLOT_VERSION) == 0);
    return 0;
}
