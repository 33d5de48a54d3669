/* Objects that are filled with a pattern of their own, so that overlaps are detected. */
#ifndef STAMPED_H
#define STAMPED_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "expect.h"

struct stamped {
    unsigned char *start;
    size_t size;
    size_t align;
    unsigned char fill;
};

static inline uint64_t draw(uint64_t *state, uint64_t below)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state % below;
}

static inline struct stamped stamp(void *start, size_t size, size_t align, uint64_t *state)
{
    struct stamped object = {.start = (unsigned char *)start, .size = size, .align = align};
    EXPECT(start != NULL && (uintptr_t)start % align == 0);
    object.fill = (unsigned char)draw(state, 256);
    memset(start, object.fill, size);
    return object;
}

/* Whether its first bytes are as they were stamped. */
static inline void expect_first(const struct stamped *object, size_t size)
{
    for (size_t i = 0; i < size; i++)
        EXPECT(object->start[i] == object->fill);
}

static inline void expect_whole(const struct stamped *object)
{
    expect_first(object, object->size);
}

#endif
