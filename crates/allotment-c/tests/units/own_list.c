/* A program with its own functions of two short names, which uses the library for something else. */
#include <allotment.h>

#undef NDEBUG
#include <assert.h>

int list_create(int number);
int list_destroy(int number);

int list_create(int number)
{
    return number + 1;
}

int list_destroy(int number)
{
    return number - 1;
}

int main(void)
{
    allot_free_list *list = allot_free_list_create(64, 8, NULL);
    allot_free_list_free(list, allot_free_list_alloc(list));
    allot_free_list_destroy(list);
    assert(list_destroy(list_create(7)) == 7);
    return 0;
}
