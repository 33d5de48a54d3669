/* Shared declarations of the examples in this folder. Each example does the same work with a
 * third-party library, once on malloc and once on Allotment. Each is a program; `allot bench
 * client-...` calls the same functions. */
#ifndef CLIENT_H
#define CLIENT_H

/* Declares the functions for the clock and for processes, also with -std=c11. So include this
 * header first. */
#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE 1
#endif

#include <stdint.h>

typedef enum client_allocator {
    CLIENT_MALLOC = 0,
    CLIENT_ALLOTMENT = 1
} client_allocator;

/* The result of the work. The operations and the checksum must be the same with both allocators. */
typedef struct client_result {
    uint64_t operations;
    uint64_t checksum;
    const char *error; /* NULL, or the reason for ending early */
} client_result;

typedef struct client_program {
    const char *name;
    const char *operation; /* the name of one operation */
    const char *work;      /* the work, in one line */
    const char *size_is;   /* what `size` counts */
    unsigned size;         /* the default size */
    unsigned times;
    /* Creates the input of the work, before the measurement. Returns NULL without memory. */
    void *(*prepare)(unsigned size);
    client_result (*work_on)(client_allocator allocator, const void *prepared, unsigned times);
    void (*dispose)(void *prepared);
} client_program;

extern const client_program client_sqlite;
extern const client_program client_lua;
extern const client_program client_expat;

/* Mixes a value into a checksum. */
static inline uint64_t client_mixed(uint64_t sum, uint64_t value)
{
    sum = (sum ^ value) * UINT64_C(0x9E3779B97F4A7C15);
    return sum ^ (sum >> 29);
}

/* Pseudo-random numbers, the same in each run (xorshift64*). `state` must not be 0. */
static inline uint32_t client_random(uint64_t *state)
{
    uint64_t x = *state;
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    *state = x;
    return (uint32_t)((x * UINT64_C(0x2545F4914F6CDD1D)) >> 32);
}

#endif
