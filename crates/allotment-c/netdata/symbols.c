/* The inline functions of the headers, as symbols: for callers that only declare them, for pointers
 * to them, and for code that is compiled without optimisation. */
#define ALLOT_NETDATA_SYMBOLS
#include "internal.h"
