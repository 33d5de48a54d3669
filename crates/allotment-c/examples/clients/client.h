/* What the examples in this folder have in common: each is a piece of work that a library of others does, once on
 * malloc and once on Allotment. It is a program of its own; `allot bench client-...` calls the same functions. */
#ifndef CLIENT_H
#define CLIENT_H

/* For the clock, processes and their resources, also where the compiler is told -std=c11. So this header comes first. */
#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE 1
#endif

#include <stdint.h>

typedef enum client_allocator {
    CLIENT_MALLOC = 0,
    CLIENT_ALLOTMENT = 1
} client_allocator;

/* What the work came to: as many operations, and the same sum of all results, with either allocator. */
typedef struct client_result {
    uint64_t operations;
    uint64_t checksum;
    const char *error; /* NULL, or why it ended early */
} client_result;

typedef struct client_program {
    const char *name;
    const char *operation; /* what one is, in a word or two */
    const char *work;      /* what is done, in one line */
    const char *size_is;   /* what `size` counts */
    unsigned size;         /* as it is done if nobody asks for another */
    unsigned times;
    /* What the work reads, made before anything is measured; NULL if there is no memory. */
    void *(*prepare)(unsigned size);
    client_result (*work_on)(client_allocator allocator, const void *prepared, unsigned times);
    void (*dispose)(void *prepared);
} client_program;

extern const client_program client_sqlite;
extern const client_program client_lua;
extern const client_program client_expat;

/* Adds what a result is to a sum. */
static inline uint64_t client_mixed(uint64_t sum, uint64_t value)
{
    sum = (sum ^ value) * UINT64_C(0x9E3779B97F4A7C15);
    return sum ^ (sum >> 29);
}

/* Numbers that look random, and are the same in each run (xorshift64*). `state` is never 0. */
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
