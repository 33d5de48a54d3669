#include <allotment.h>

#include <string>

int main()
{
    allot_arena *arena = allot_arena_create(nullptr);
    const std::string text = allot_arena_strdup(arena, "by CMake");
    allot_arena_destroy(arena);
    return text == "by CMake" && std::string(allot_version()) == ALLOT_VERSION ? 0 : 1;
}
