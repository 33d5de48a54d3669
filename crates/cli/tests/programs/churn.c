// Builds a list for each piece of work and frees it, so that the C library gives its memory back each time.

#include <stdio.h>
#include <stdlib.h>

enum { PIECES = 150, NODES = 4000 };

struct node {
    struct node *next;
    unsigned char text[248];
};

static unsigned work(unsigned seed)
{
    struct node *first = 0, **end = &first;
    unsigned sum = 0;
    for (int i = 0; i < NODES; i++) {
        struct node *node = malloc(sizeof *node);
        node->text[i % 248] = seed + i;
        sum += node->text[i % 248];
        *end = node;
        end = &node->next;
    }
    *end = 0;
    while (first) {
        struct node *next = first->next;
        free(first);
        first = next;
    }
    return sum;
}

int main(void)
{
    unsigned sum = 0;
    for (int i = 0; i < PIECES; i++)
        sum += work(i);
    printf("%u\n", sum);
    return 0;
}
