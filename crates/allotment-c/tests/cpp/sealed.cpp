/* Objects that are built once and never change. */
#include "check.hpp"

#include <allotment.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include <map>
#include <memory_resource>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

namespace {

struct route {
    std::string_view prefix;
    int target;
    allot::read_only<route> next;
};

struct server {
    std::string_view name;
    allot::read_only_span<int> ports;
    allot::read_only<route> routes;
};

server built(allot::sealer &sealer)
{
    const std::vector<int> ports{80, 443, 8080};
    const route *last = nullptr;
    for (int target = 3; target > 0; --target) {
        last = sealer.make<route>(route{sealer.copy("/" + std::to_string(target)), target, last});
    }
    return server{sealer.copy("main"), sealer.copy(ports.data(), ports.size()), last};
}

/* Holds containers: in the sealer's memory, where nothing has to be destroyed. */
struct dictionary {
    explicit dictionary(std::pmr::memory_resource *memory) : words(memory) {}
    std::pmr::map<std::pmr::string, std::pmr::vector<int>, std::less<>> words;
};

} // namespace

template <>
struct allot::is_sealable<dictionary> : std::true_type {};

CLAIM(all_access_to_a_sealed_object_is_const_and_so_is_what_it_links_to)
{
    using sealed = allot::sealed<server>;
    static_assert(std::is_same_v<decltype(*std::declval<sealed &>()), const server &>);
    static_assert(std::is_same_v<decltype(std::declval<sealed &>().operator->()), const server *>);
    static_assert(std::is_same_v<decltype(*std::declval<server &>().routes), const route &>);
    static_assert(std::is_same_v<decltype(std::declval<server &>().ports[0]), const int &>);
    static_assert(!std::is_copy_constructible_v<sealed> && std::is_nothrow_move_constructible_v<sealed>);
    static_assert(!allot::is_sealable<std::string>::value);
}

CLAIM(a_sealed_object_is_read_by_many_threads)
{
    auto sealed = allot::sealed<server>::build(allot::options().name("server"), built);
    std::vector<std::thread> readers;
    for (int reader = 0; reader < 4; ++reader) {
        readers.emplace_back([&] {
            CHECK(sealed->name == "main" && sealed->name.data()[4] == '\0');
            int sum = 0;
            for (int port : sealed->ports) {
                sum += port;
            }
            CHECK(sum == 8603 && sealed->ports.size() == 3);
            int targets = 0;
            for (allot::read_only<route> each = sealed->routes; each; each = each->next) {
                targets = targets * 10 + each->target;
            }
            CHECK(targets == 123);
        });
    }
    for (std::thread &reader : readers) {
        reader.join();
    }
    CHECK(sealed.statistics().held_bytes > 0);
    auto moved = std::move(sealed);
    allot::read_only<server> adaptor = moved;
    CHECK(adaptor->routes->prefix == "/1" && adaptor.get() == moved.get());
}

CLAIM(a_stray_write_ends_the_process_that_does_it)
{
    auto sealed = allot::sealed<int>::make(7);
    const pid_t child = fork();
    if (child == 0) {
        /* Without the report of a memory checker. */
        close(2);
        *const_cast<volatile int *>(sealed.get()) = 8;
        _exit(0);
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(!(WIFEXITED(status) && WEXITSTATUS(status) == 0));
    CHECK(*sealed == 7);
}

CLAIM(standard_containers_are_sealed_with_their_object)
{
    auto sealed = allot::sealed<dictionary>::build([](allot::sealer &sealer) {
        auto *made = sealer.make<dictionary>(sealer.resource());
        for (int number = 0; number < 100; ++number) {
            made->words["a word that is too long for a small string " + std::pmr::string(std::to_string(number))] = {number};
        }
        return made;
    });
    const auto &words = sealed->words;
    CHECK(words.size() == 100 && words.find("a word that is too long for a small string 42")->second[0] == 42);
    std::pmr::map<std::pmr::string, std::pmr::vector<int>, std::less<>> copy = words;
    copy.erase(copy.begin());
    CHECK(copy.size() == 99);
}

CLAIM(a_sealed_object_that_is_leaked_is_there_to_the_end)
{
    allot::read_only<server> server = allot::sealed<::server>::build(built).leak();
    std::thread([server] { CHECK(server->ports[1] == 443); }).join();
}

CLAIM(empty_parts_can_be_sealed)
{
    auto sealed = allot::sealed<server>::build([](allot::sealer &sealer) {
        return server{sealer.copy(""), sealer.copy(static_cast<const int *>(nullptr), 0), nullptr};
    });
    CHECK(sealed->name.empty() && sealed->ports.empty() && !sealed->routes && sealed->ports.begin() == sealed->ports.end());
}

CLAIM(a_sealed_object_that_was_moved_from_is_null)
{
    auto first = allot::sealed<int>::make(1);
    auto second = std::move(first);
    CHECK(first.get() == nullptr && *second == 1);
    first = allot::sealed<int>::make(2);
    second = std::move(first);
    CHECK(first.get() == nullptr && *second == 2);
    auto &itself = second;
    second = std::move(itself);
    CHECK(*second == 2);
}
