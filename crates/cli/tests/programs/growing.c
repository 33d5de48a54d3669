// Joins text in a buffer that doubles up to 2 MiB, as a database's group_concat does, among small blocks of many sizes.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 20, LARGEST = 2 << 20, WORDS = 40000, LIVE = 64 };

static unsigned seed = 1;

static unsigned dice(unsigned sides)
{
    seed = seed * 1103515245 + 12345;
    return (seed >> 16) % sides;
}

__attribute__((noinline)) static char *grow(char *text, size_t size)
{
    text = realloc(text, size);
    memset(text + size / 2, 'x', size - size / 2);
    return text;
}

__attribute__((noinline)) static char *word(void)
{
    size_t size = 8 + dice(600);
    char *word = malloc(size);
    memset(word, 'w', size);
    return word;
}

int main(void)
{
    unsigned long sum = 0;
    char *words[LIVE] = { 0 };
    for (int i = 0; i < ROUNDS; i++) {
        char *text = NULL;
        for (size_t size = 16; size <= LARGEST; size *= 2)
            text = grow(text, size);
        for (int j = 0; j < WORDS; j++) {
            unsigned at = dice(LIVE);
            free(words[at]);
            words[at] = word();
            sum += words[at][0];
        }
        sum += text[LARGEST - 1];
        free(text);
    }
    printf("%lu\n", sum);
    return 0;
}
