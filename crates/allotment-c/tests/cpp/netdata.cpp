// The functions of netdata's allocators in C++, and pointers to them.
#include <allotment_netdata.h>

#undef NDEBUG
#include <cassert>
#include <cstring>
#include <new>
#include <thread>
#include <vector>

namespace {

struct Point {
    double value;
    long time;
};

void a_query_takes_its_memory_of_one_arena()
{
    ONEWAYALLOC *owa = onewayalloc_create(0);
    auto *points = static_cast<Point *>(onewayalloc_callocz(owa, 10, sizeof(Point)));
    for (int at = 0; at < 10; at++) {
        assert(points[at].time == 0);
        new (&points[at]) Point{at * 1.5, at};
    }
    points = static_cast<Point *>(onewayalloc_doublesize(owa, points, 10 * sizeof(Point)));
    assert(points[9].time == 9);
    const char *name = onewayalloc_strdupz(owa, "system.cpu");
    assert(std::strcmp(name, "system.cpu") == 0);
    onewayalloc_freez(owa, name);
    assert(onewayalloc_allocated_memory() > 0);
    onewayalloc_reset(owa);
    onewayalloc_destroy(owa);
    assert(onewayalloc_allocated_memory() == 0);
}

void elements_go_from_thread_to_thread()
{
    aral_statistics statistics = {};
    ARAL *ar = aral_create("points", sizeof(Point), 0, 0, &statistics, nullptr, nullptr, true, true, false);
    std::vector<Point *> points;
    std::thread([&] {
        for (int at = 0; at < 5000; at++) {
            points.push_back(new (at % 2 == 0 ? aral_mallocz(ar) : aral_mallocz_marked(ar)) Point{0.5, at});
        }
    }).join();
    assert(aral_used_bytes_from_stats(&statistics) == 5000 * sizeof(Point));
    long expected = 0;
    for (Point *point : points) {
        assert(point->time == expected++);
        aral_freez(ar, point);
    }
    assert(aral_used_bytes(ar) == 0);
    aral_destroy(ar);
}

void functions_can_be_passed_on()
{
    void *(*allocate)(ARAL *) = aral_mallocz;
    void (*release)(ARAL *, void *) = aral_freez;
    ARAL *ar = aral_by_size_acquire(64);
    release(ar, allocate(ar));
    aral_by_size_release(ar);
    void *(*take)(free_list *) = list_malloc;
    free_list list;
    list_create(&list, sizeof(Point), 100);
    auto *point = new (take(&list)) Point{1.0, 2};
    assert(point->time == 2);
    list_free(&list, point);
    list_destroy(&list);
}

} // namespace

int main(int count, char **)
{
    if (count > 1) {
        return 0; // there is no misuse to be stopped
    }
    a_query_takes_its_memory_of_one_arena();
    elements_go_from_thread_to_thread();
    functions_can_be_passed_on();
}
