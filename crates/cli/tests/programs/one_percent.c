// Computes; a hundredth of its time goes to malloc.

#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 120000, WORDS = 256 };

struct table {
    unsigned words[WORDS];
};

static unsigned mix(const struct table *table, unsigned seed)
{
    for (int turn = 0; turn < 2; turn++)
        for (int i = 0; i < WORDS; i++)
            seed = (seed ^ table->words[(i + seed) % WORDS]) * 16777619u + turn;
    return seed;
}

static struct table *make_table(unsigned seed)
{
    struct table *table = malloc(sizeof *table);
    for (int i = 0; i < WORDS; i++)
        table->words[i] = seed += 0x9e3779b9u;
    return table;
}

int main(void)
{
    unsigned seed = 1;
    for (int i = 0; i < ROUNDS; i++) {
        struct table *table = make_table(seed);
        seed = mix(table, seed);
        free(table);
    }
    return seed == 0;
}
