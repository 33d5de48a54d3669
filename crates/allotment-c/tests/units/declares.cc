// A unit that includes no header, and declares what it calls, as netdata's gorilla.cc does.
#include <cstddef>

extern "C" {
struct aral;
void *aral_mallocz(struct aral *ar);
void aral_freez(struct aral *ar, void *ptr);
void aral_unmark_allocation(struct aral *ar, void *ptr);
void *onewayalloc_mallocz(void *owa, std::size_t size);
struct free_list;
void *list_malloc(struct free_list *from);
void list_free(struct free_list *to, void *freeptr);
}

extern "C" void *declared_aral(struct aral *ar)
{
    void *element = aral_mallocz(ar);
    aral_unmark_allocation(ar, element);
    aral_freez(ar, element);
    return aral_mallocz(ar);
}

extern "C" void *declared_arena(void *owa)
{
    return onewayalloc_mallocz(owa, 100);
}

extern "C" void declared_list(struct free_list *list)
{
    list_free(list, list_malloc(list));
}
