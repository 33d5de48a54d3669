/* A program with two static libraries that are written in Rust. */
#include <allotment.h>

#include <stdint.h>
#include <stdio.h>

uint64_t other_sum(uint64_t n);

int main(void)
{
    allot_arena *arena = allot_arena_create(NULL);
    uint64_t *sum = (uint64_t *)allot_arena_alloc(arena, sizeof *sum);
    *sum = other_sum(1000);
    int wrong = *sum != 500500;
    allot_arena_destroy(arena);
    puts(wrong ? "wrong" : "both work");
    return wrong;
}
