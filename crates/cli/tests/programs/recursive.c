// Trees that recursive functions build and free again. An arena for a tree is created and reset in
// the loop that calls the outermost of them.

#include <stdlib.h>

struct node {
    struct node *left, *right;
};

static struct node *value(int depth);

__attribute__((noinline)) static struct node *array(int depth)
{
    struct node *node = malloc(sizeof *node);
    node->left = value(depth - 1);
    node->right = value(depth - 1);
    return node;
}

__attribute__((noinline)) static struct node *object(int depth)
{
    struct node *node = malloc(sizeof *node);
    node->left = value(depth - 1);
    node->right = 0;
    return node;
}

// The outer levels have one child each, so nearly all is allocated deep in the recursion.
__attribute__((noinline)) static struct node *value(int depth)
{
    if (!depth)
        return 0;
    return depth > 13 ? object(depth) : array(depth);
}

static void release(struct node *node)
{
    if (!node)
        return;
    release(node->left);
    release(node->right);
    free(node);
}

__attribute__((noinline)) static void load_all(int trees)
{
    for (int tree = 0; tree < trees; tree++)
        release(value(18)); // here
}

int main(void)
{
    load_all(60);
    return 0;
}
